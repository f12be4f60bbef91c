// One message: what it says, where it stands, and if it is a question, what its prompt is made of.

const ALIKE = 400; // lines of one group that are shown at once

function button(kind, text, act) {
  const element = el("button", kind, text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

function isolated(tag, kind, text) {
  const element = el(tag, kind, text);
  element.dir = "auto";
  return element;
}

/** A button that leads to another message. */
function link(row) {
  const node = nodes[row];
  const element = button("link", "", () => go(row));
  element.append(el("b", "", node.name ?? node.role), " ", isolated("span", "", line(node, 90) || "(empty)"));
  return element;
}

function section(title, ...children) {
  return el("section", "card", el("h3", "", title), ...children);
}

/** Something that opens; what is in it is made when it first does. */
function folded(summary, make, open = false) {
  const element = el("details", "", el("summary", "", ...summary));
  const fill = () => element.childElementCount === 1 && element.append(make());
  element.addEventListener("toggle", fill);
  if (open) {
    fill();
    element.open = true;
  }
  return element;
}

function links(title, rows) {
  if (!rows?.length) return null;
  const few = rows.length <= 8;
  const list = () => el("ul", "links", ...rows.slice(0, ALIKE).map((row) => el("li", "", link(row))));
  return el("div", "related", few ? el("h4", "", title) : null, few ? list() : folded([`${title} (${number(rows.length)})`], list));
}

function facts(pairs) {
  const list = el("dl", "facts");
  for (const [name, value] of pairs) {
    if (value !== undefined && value !== null) list.append(el("dt", "", name), isolated("dd", "", value));
  }
  return list;
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

function budget(report) {
  if (report.error) return section("Its prompt", el("p", "warn", `No prompt could be built: ${report.error}`));
  const notes = [...report.degraded];
  if (report.pending) notes.push(`${plural(report.pending, "older message")} had no vector and ${report.pending === 1 ? "was" : "were"} ranked by words alone`);
  if (report.budget < report.total_tokens) notes.push("the prompt is larger than the budget");
  return section(
    "Its prompt",
    ...budgetBar(report),
    ...notes.map((note) => isolated("p", "warn", note)),
    ...groups(report),
    ...(report.lines.some((entry) => entry[BAND] !== null) ? [bandsExplained()] : []),
    isolated("p", "quiet", built(report)),
  );
}

/** How much of the budget a prompt takes, as numbers and as a bar with its legend. */
function budgetBar(report) {
  const free = report.budget - report.total_tokens;
  const legend = el("ul", "legend");
  report.totals.forEach((tokens, kind) => {
    if (tokens) legend.append(el("li", "", el("i", `dot k-${kindName(kind)}`), `${kindName(kind)} `, el("b", "", number(tokens))));
  });
  if (free > 0) legend.append(el("li", "", el("i", "dot free"), "free ", el("b", "", number(free))));
  const share = Math.round((100 * report.total_tokens) / Math.max(1, report.budget));
  const sum = el("p", "sum", el("strong", "", number(report.total_tokens)), ` of ${number(report.budget)} tokens`, el("span", "quiet", ` · ${share} % · ${number(report.reserve)} more kept for the reply`));
  return [sum, bar(report), legend];
}

/** What the bands mean, and a switch for the numbers behind them. */
function bandsExplained() {
  const meanings = {
    strong: "the words and the meaning of the message match the question, or one of them matches very well",
    fair: "the words or the meaning match",
    weak: "neither matches; the message takes room that is left, or stands close to one that matches",
  };
  const list = el("dl", "meanings", ...data.bands.flatMap((name) => [el("dt", "", name), el("dd", "", meanings[name])]));
  const shows = el("button", "step", "Show the numbers");
  shows.type = "button";
  shows.setAttribute("aria-pressed", part.message.classList.contains("numbers"));
  shows.addEventListener("click", () => shows.setAttribute("aria-pressed", part.message.classList.toggle("numbers")));
  return el("details", "bands", el("summary", "", "What strong, fair and weak mean"), list, shows);
}

/** The numbers behind a band. */
function numbers(entry) {
  return [["score", SCORE], ["words", WORDS], ["cosine", COSINE]]
    .filter(([, cell]) => typeof entry[cell] === "number")
    .map(([name, cell]) => `${name} ${entry[cell].toFixed(2)}`)
    .join(" · ");
}

/** How the prompt came about. */
function built(report) {
  const anew = "Prompts are not stored: this one was built for this page, without tool schemas.";
  if (report.embedder) return `${anew} What is recalled was found by words and by the vectors of ${report.embedder}.`;
  return report.lines.some((entry) => kindName(entry[KIND]) === "recalled") ? `${anew} What is recalled was found by words alone.` : anew;
}

/** Decisions in groups: parts of the prompt first, then what was left out, by reason. */
function groups(report) {
  const heads = {
    recalled: "Recalled", summary: "Summary", window: "Newest turns", question: "The question", grounding: "Retrieved",
    system: "Always sent", tools: "Tools",
  };
  const found = [];
  for (const name of [...Object.keys(heads), ...data.kinds.filter((kind) => !(kind in heads))]) {
    const lines = report.lines.filter((entry) => entry[IN] && kindName(entry[KIND]) === name);
    if (!lines.length) continue;
    const tokens = lines.reduce((sum, entry) => sum + entry[TOKENS], 0);
    const head = [el("i", `dot k-${name}`), heads[name] ?? name, el("span", "quiet", [number(lines.length), plural(tokens, "token"), ...inBands(lines)].join(" · "))];
    found.push(folded(head, () => decisions(lines), name === "recalled"));
  }
  const out = report.lines.filter((entry) => !entry[IN]);
  for (const why of new Set(out.map((entry) => entry[WHY]))) {
    const lines = out.filter((entry) => entry[WHY] === why);
    found.push(folded([el("i", "dot out"), "Not sent: ", data.reasons[why], el("span", "quiet", number(lines.length))], () => decisions(lines)));
  }
  return found;
}

/** How many lines are in each band, if any is. */
function inBands(lines) {
  const counts = data.bands.map((name, band) => [lines.filter((entry) => entry[BAND] === band).length, name]).filter(([count]) => count);
  return counts.length ? [counts.map(([count, name]) => `${number(count)} ${name}`).join(", ")] : [];
}

function decisions(lines) {
  const shown = (part) => part.map((entry) => decision(entry, entry[WHY] !== lines[0][WHY]));
  const list = el("ul", "decisions", ...shown(lines.slice(0, ALIKE)));
  if (lines.length <= ALIKE) return list;
  const more = button("more", `Show ${number(lines.length - ALIKE)} more`, () => {
    more.remove();
    list.append(...shown(lines.slice(ALIKE)));
  });
  return el("div", "", list, more);
}

/** One line of a report; it says why only where that is not what the first of its group says. */
function decision(entry, odd) {
  const row = entry[NODE];
  const says = row === null ? isolated("span", "stray", entry[SAYS] || data.reasons[entry[WHY]]) : link(row);
  const why = odd && (row !== null || entry[SAYS]) ? el("span", "why", data.reasons[entry[WHY]]) : null;
  const newer = row !== null && entry[SAYS] !== undefined ? el("span", "why", "superseded by ", link(entry[SAYS])) : null;
  const raw = numbers(entry) ? el("span", "why raw", numbers(entry)) : null;
  return el("li", "", says, relevance(entry), el("span", "cost", number(entry[TOKENS])), why, newer, raw);
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

function missing() {
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
  const report = reports.get(row);
  if (report) body.push(budget(report));
  else if (node.role === "user") body.push(missing());
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
