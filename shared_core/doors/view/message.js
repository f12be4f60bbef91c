// One message: what it says, where it stands, and if it is a question, what its prompt is made of.

/** A button that leads to another message. */
function link(row) {
  const node = nodes[row];
  const element = button("link", "", () => go(row));
  element.append(el("b", "", node.name ?? node.role), " ", isolated("span", "", line(node, 90) || "(empty)"));
  return element;
}

function links(title, rows) {
  if (!rows?.length) return null;
  const few = rows.length <= 8;
  const list = () => el("ul", "links", ...rows.slice(0, ALIKE).map((row) => el("li", "", link(row))));
  return el("div", "related", few ? el("h4", "", title) : null, few ? list() : folded([`${title} (${number(rows.length)})`], list));
}

function said(node) {
  const parts = [];
  if (node.text) parts.push(isolated("div", "said", node.text));
  if (node.text === "" && !node.calls) parts.push(el("p", "quiet", "It says nothing."));
  for (const call of node.calls ?? []) {
    // Some models number their calls anew in every turn.
    const results = (answers.get(call.id) ?? []).filter((row) => nodes[row].turn === node.turn).map(link);
    parts.push(el("div", "call", el("p", "", "calls ", isolated("code", "", call.name)), isolated("pre", "", pretty(call.arguments)), ...results));
  }
  if (node.grounding) parts.push(grounding(node.grounding));
  return parts;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function grounding({ items = [], header, footer }) {
  const passages = items.map((item) =>
    el("li", "", isolated("div", "said", item.text), typeof item.score === "number" ? el("p", "quiet", `score ${item.score}`) : null));
  return section("Retrieved for it", header ? isolated("p", "quiet", header) : null, el("ol", "passages", ...passages), footer ? isolated("p", "quiet", footer) : null);
}

function place(node, row, containing) {
  const chips = containing.map((n) => {
    const chip = button(`chip branch ${colour(n)}`, data.branches[n].name, () => follow(n));
    chip.dir = "auto";
    return chip;
  });
  const none = stashed.size && data.stashes.some((stash) => stash.rows.includes(row)) ? "put aside in a stash" : "on no branch now";
  return el("p", "on", ...(chips.length ? ["on ", ...chips] : [none]));
}

/** In which prompts a message was, and in which it was considered and left out. */
function used(row) {
  const found = uses(row);
  if (!found.length) return null;
  const counts = new Map();
  for (const [, entry] of found) {
    const name = entry[IN] ? kindName(entry[KIND]) : "out";
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const words = { out: "considered and left out", window: "among the newest turns", recalled: "recalled", system: "always sent", question: "as part of the question's turn" };
  const legend = el("ul", "legend", ...[...counts].map(([name, count]) =>
    el("li", "", el("i", `dot ${name === "out" ? "out" : `k-${name}`}`), `${words[name] ?? name} `, el("b", "", number(count)))));
  const list = () => el("ul", "decisions", ...found.slice(-ALIKE).reverse().map(([question, entry]) =>
    el("li", "", el("i", `dot ${entry[IN] ? `k-${kindName(entry[KIND])}` : "out"}`), link(question), el("span", "why", data.reasons[entry[WHY]]))));
  return section("In other prompts", legend, folded([plural(found.length, "question")], list));
}

/** What stands in place of a prompt that was not built. */
function missing(node) {
  if (live.build) return section("Its prompt", el("p", "quiet", "It was not built for this page."), button("open", "Build it", () => live.build(node.id)));
  const asked = data.questions === null ? "" : `the newest ${number(data.questions)} of each branch`;
  return el("p", "quiet", `The prompt of this question was not built for this page, which has ${asked}; make it with --questions all to see every one.`);
}

/** Fill the panel with one row of the tree. */
function show(row, containing) {
  const node = nodes[row];
  const heading = el("h2", "", el("span", `who ${node.role}`, node.role));
  heading.id = "heading";
  if (node.name) heading.append(" ", isolated("span", "name", node.name));
  const head = el("header", "", heading, node.at ? el("time", "quiet", `${node.at.slice(0, 10)} ${clock(node.at)} UTC`) : null);
  head.append(el("span", "turns", button("step", "Previous question", () => step(-1)), button("step", "Next question", () => step(1))));
  const body = [button("back", "Back to the conversation", leave), head, place(node, row, containing)];
  if (node.role === "merge") body.push(el("p", "said", `A merge: it ${line(node)}.`), links("It joins", node.parents));
  else body.push(...said(node));
  if (live.actions && node.role !== "merge") body.push(live.actions(node));
  const report = reports.get(row);
  if (report) body.push(budget(report));
  else if (node.role === "user") body.push(missing(node));
  const turn = node.turn !== undefined && node.turn !== node.id ? rowOf.get(node.turn) : undefined;
  if (turn !== undefined) body.push(links("Answers", [turn]));
  body.push(links("Sums up", node.sums), links("Summed up by", summaries.get(row)), links("Copies", copies.get(node.id)));
  if (node.picked_from !== undefined && rowOf.has(node.picked_from)) body.push(links("Copied from", [rowOf.get(node.picked_from)]));
  body.push(used(row));
  const large = node.text && node.text.length > 20_000 ? `${number(node.text.length)} characters` : null;
  const details = facts([
    ["id", node.id], ["tokens, as sent", node.tokens === undefined ? null : number(node.tokens)], ["size", large],
    ["time", node.at ? `${node.at.slice(0, 10)} ${node.at.slice(11, 19)} UTC` : null], ["turn", node.turn], ["answers the call", node.answers], ["copied from", node.picked_from],
    ["pinned", node.pinned ? "yes" : null], ["media tokens", node.media], ["original form", node.payload],
  ]);
  if (details.childElementCount) body.push(section("Details", details));
  part.message.replaceChildren(...body.filter(Boolean));
  part.message.scrollTop = 0;
}
