// What the page knows: the nodes of the tree, their paths, and the reports; nothing here touches the page.

const nodes = data.nodes;
const { kindName, bar, relevance, budget, budgetBar } = reporting(data, link);
const reports = new Map(Object.entries(data.reports).map(([row, report]) => [Number(row), report]));
const rowOf = new Map();
const answers = new Map(); // a tool call's id -> the rows of its results
const stashed = new Map(); // row -> names of the stashes that end there

nodes.forEach((node, row) => {
  if (node.id !== undefined) rowOf.set(node.id, row);
  if (node.answers !== undefined) answers.set(node.answers, [...(answers.get(node.answers) ?? []), row]);
});
for (const stash of data.stashes) {
  const row = stash.rows.at(-1);
  if (row !== undefined) stashed.set(row, [...(stashed.get(row) ?? []), stash.note || `stash ${stash.number}`]);
}

const copies = new Map(); // id -> rows of its copies
const summaries = new Map(); // row -> rows of the messages that sum it up
nodes.forEach((node, row) => {
  if (node.picked_from !== undefined) copies.set(node.picked_from, [...(copies.get(node.picked_from) ?? []), row]);
  for (const covered of node.sums ?? []) summaries.set(covered, [...(summaries.get(covered) ?? []), row]);
});

const colour = (owner) => (owner < 0 ? "nobody" : owner === 0 ? "c0" : `c${1 + ((owner - 1) % 7)}`);

/** What a node says on one line. */
function line(node, length = 240) {
  if (node.role === "merge") {
    const from = node.parents.slice(1).map((row) => data.branches[nodes[row].owner]?.name ?? "what was said there");
    return `brings in ${from.join(", ") || "a branch"}`;
  }
  const calls = (node.calls ?? []).map((call) => `calls ${call.name}(${call.arguments.slice(0, length)})`);
  return [node.text ? node.text.slice(0, length) : "", ...calls].join(" ").replace(/\s+/g, " ").trim();
}

/** All that is on the way from the root to a row, as one byte per row. */
function pathTo(row) {
  const on = new Uint8Array(nodes.length);
  const waiting = row === null || row === undefined ? [] : [row];
  while (waiting.length) {
    const at = waiting.pop();
    if (on[at]) continue;
    on[at] = 1;
    waiting.push(...nodes[at].parents);
  }
  return on;
}

/** The numbers of the branches that have a row on their path. */
function branchesWith(row) {
  const on = new Uint8Array(nodes.length);
  on[row] = 1;
  for (let at = row + 1; at < nodes.length; at++) {
    for (const parent of nodes[at].parents) if (on[parent]) on[at] = 1;
  }
  return data.branches.flatMap((branch, n) => (branch.row !== null && on[branch.row] ? [n] : []));
}

/** What the prompt for a question made of each message: row -> its line in the report. */
function verdicts(question) {
  const found = new Map();
  for (const entry of reports.get(question)?.lines ?? []) {
    const known = found.get(entry[NODE]);
    if (entry[NODE] !== null && (!known || (entry[IN] && !known[IN]))) found.set(entry[NODE], entry);
  }
  return found;
}

/** The prompts that considered a message: pairs of the question's row and the line of its report. */
const considered = [];
function uses(row) {
  if (!considered.length) {
    for (const [question, report] of reports) {
      for (const entry of report.lines ?? []) {
        if (entry[NODE] === null || entry[NODE] === question) continue;
        const found = (considered[entry[NODE]] ??= []);
        const known = found.at(-1);
        if (known?.[0] !== question) found.push([question, entry]);
        else if (!known[1][IN]) known[1] = entry;
      }
    }
  }
  return considered[row] ?? [];
}

/** What a search looks through, made when it is first needed. */
const haystacks = [];
function haystack(row) {
  const node = nodes[row];
  haystacks[row] ??= [
    node.text, node.name, node.id, node.role, ...(node.branches ?? []), ...(node.tags ?? []),
    ...(node.calls ?? []).flatMap((call) => [call.name, call.arguments]),
    ...(node.grounding?.items ?? []).map((item) => item.text),
  ].join("\n").toLowerCase();
  return haystacks[row];
}
