// What the page opens on: the branches, what was said when, and the question answered best.

const SITTINGS = 5; // sittings shown before all are asked for
const NEWEST = 4; // messages quoted of the newest prompt
const QUOTE = 280; // characters quoted of a message

/** The words of a text that are long enough to tell it from others. */
const wordsOf = (text) => new Set((text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => word.length > 3));

/** The part of a message that shares most words with a question, with these words marked. */
function quote(row, question) {
  const wanted = wordsOf(nodes[question].text ?? "");
  const text = (nodes[row].text ?? "").slice(0, 100_000).replace(/\s+/g, " ").trim();
  const element = isolated("blockquote", "");
  let from = 0;
  let best = 0;
  for (let at = 0; at < text.length && text.length > QUOTE; at = text.indexOf(" ", at + QUOTE / 4) + 1 || text.length) {
    const shared = [...wordsOf(text.slice(at, at + QUOTE))].filter((word) => wanted.has(word)).length;
    if (shared > best) [from, best] = [at, shared];
  }
  const part = text.slice(from, from + QUOTE);
  if (from) element.append("…");
  for (const piece of part.split(/([\p{L}\p{N}]+)/u)) element.append(wanted.has(piece.toLowerCase()) ? el("mark", "", piece) : piece);
  if (from + QUOTE < text.length) element.append("…");
  return element;
}

/** The card of the question answered best: what it asks, what was found for it, and the reply. */
function bestAnswered() {
  const best = data.overview.best;
  if (!best) return newestPrompt();
  const card = el("section", "card best", el("h2", "", "Best answered question"));
  const { question, found, reply } = best;
  const report = reports.get(question);
  const quotes = found.map((row) => {
    const entry = report.lines.find((each) => each[NODE] === row && each[IN]);
    const past = nodes.slice(row, question).filter((node) => node.role !== "merge").length;
    const when = nodes[row].at ? ` · ${dayName(nodes[row].at, true)}` : "";
    const who = isolated("span", "", nodes[row].name ?? nodes[row].role);
    const source = button("link", "", () => visit(row));
    source.append(who, `${when} · ${plural(past, "message")} earlier`);
    return el("li", "", quote(row, question), el("p", "source", relevance(entry), source));
  });
  card.append(isolated("p", "asked", beginning(nodes[question].text.replace(/\s+/g, " "))));
  card.append(el("h3", "", "Found for it"), el("ul", "quotes", ...quotes));
  if (reply !== null) card.append(el("h3", "", "The reply"), isolated("p", "reply", beginning(nodes[reply].text)));
  card.append(el("h3", "", "Its prompt"), ...budgetBar(report));
  card.append(button("open", "See what else was in its prompt", () => visit(question)));
  return card;
}

/** The card of the newest prompt, for a conversation in which recall has found nothing yet. */
function newestPrompt() {
  const card = el("section", "card best", el("h2", "", "Newest prompt"));
  const question = [...reports.keys()].filter((row) => reports.get(row).lines).at(-1);
  if (question === undefined) {
    card.append(el("p", "quiet", whyNone()));
    return card;
  }
  const report = reports.get(question);
  const sent = report.lines.filter((entry) => entry[IN] && entry[NODE] !== null && entry[NODE] !== question);
  const rows = [...new Set(sent.map((entry) => entry[NODE]))].sort((a, b) => a - b).slice(-NEWEST);
  const quotes = rows.map((row) => {
    const source = button("link", "", () => visit(row));
    source.append(isolated("span", "", nodes[row].name ?? nodes[row].role));
    return el("li", "", isolated("blockquote", "", beginning(nodes[row].text ?? "")), el("p", "source", source));
  });
  card.append(isolated("p", "asked", beginning((nodes[question].text ?? "").replace(/\s+/g, " "))), ...budgetBar(report));
  if (quotes.length) card.append(el("h3", "", "Sent with it"), el("ul", "quotes", ...quotes));
  card.append(el("p", "quiet", whyNone()), button("open", "See what else was in its prompt", () => visit(question)));
  return card;
}

/** Why no question is the one answered best. */
function whyNone() {
  if (!reports.size) return "No prompt was built for this page.";
  const recalled = [...reports.values()].some((report) => report.lines?.some((entry) => entry[IN] && kindName(entry[KIND]) === "recalled"));
  return recalled ? "No prompt on this page recalled a message that matches its question well." : "No prompt on this page needed an earlier message.";
}

/** The beginning of a text. */
function beginning(text) {
  const words = text.trim();
  return words.length > QUOTE ? `${words.slice(0, QUOTE)}…` : words;
}

/** The chart of what was said when, for the eye alone: the list of sittings below it says it in words. */
function chart() {
  const { unit, bars } = data.overview.activity;
  const most = Math.max(1, ...bars.map(([, asked, others]) => asked + others));
  const name = (day) => ({ month: `${MONTHS[Number(day.slice(5, 7)) - 1]} ${Number(day.slice(0, 4))}`, year: `${Number(day.slice(0, 4))}` })[unit] ?? dayName(day, true);
  const columns = bars.map(([day, asked, others, row]) => {
    const part = (kind, count) => {
      const element = el("span", kind);
      element.style.height = `${(100 * count) / most}%`;
      return element;
    };
    const column = el("span", "column", part("others", others), part("asked", asked));
    column.title = `${unit === "week" ? "week from " : ""}${name(day)}: ${plural(asked + others, "message")}, ${plural(asked, "question")}`;
    if (row !== null) column.addEventListener("click", () => visit(row));
    return column;
  });
  const ends = bars.length ? [...new Set([bars[0][0], bars.at(-1)[0]])] : [];
  const axis = el("p", "axis quiet", ...ends.map((day) => el("span", "", name(day))));
  const caption = el("p", "caption", el("span", "", el("i", "dot asking"), "questions"), el("span", "", el("i", "dot other"), "other messages"), el("span", "most", `up to ${number(most)} a ${unit}`));
  const element = el("div", "chart", caption, el("div", "columns", ...columns), axis);
  element.setAttribute("aria-hidden", true);
  return element;
}

/** When a sitting was: its day and its hours, and the day it ended and the year where these are other ones. */
function hours({ start, end }) {
  const newest = data.overview.sittings.at(-1).end;
  const from = `${dayName(start, start.slice(0, 4) !== newest.slice(0, 4))} ${clock(start)}`;
  if (start.slice(0, 16) === end.slice(0, 16)) return from;
  return start.slice(0, 10) === end.slice(0, 10) ? `${from}–${clock(end)}` : `${from} – ${dayName(end)} ${clock(end)}`;
}

/** A sitting in the list, which leads to its first question. */
function sittingItem(sitting) {
  const open = button("sitting", "", () => visit(sitting.row));
  open.append(el("span", "when", hours(sitting)), isolated("span", "title", sitting.title || "(no text)"), el("span", "quiet", plural(sitting.messages, "message")));
  return el("li", "", open);
}

/** The card of what was said when. */
function activity() {
  const sittings = [...data.overview.sittings].reverse();
  const list = el("ul", "sittings", ...sittings.slice(0, SITTINGS).map(sittingItem));
  const card = el("section", "card when", el("h2", "", "What was said when"), data.overview.activity.bars.length > 1 ? chart() : "", list);
  let shown = SITTINGS;
  const more = button("open", "", () => {
    list.append(...sittings.slice(shown, shown + ALIKE).map(sittingItem));
    shown += ALIKE;
    name();
  });
  const name = () => {
    more.textContent = `Show ${plural(sittings.length - shown, "earlier sitting")}`;
    more.hidden = shown >= sittings.length;
  };
  name();
  card.append(more);
  return card;
}

/** Fill the overview. */
function showOverviewCards() {
  if (!nodes.length) {
    part.overview.append(el("p", "empty quiet", "Nothing has been said yet."));
    return;
  }
  part.overview.append(branchCard(), activity(), bestAnswered());
}
