// What the page opens on: the branches, what was said when, and the question answered best.

const SITTINGS = 5; // sittings shown before all are asked for
const NEWEST = 4; // messages quoted of the newest prompt

/** The card of the question answered best; else, where recall has found nothing yet, of the newest prompt. */
function promptCard() {
  const { best } = data.overview;
  const card = el("section", "card best", el("h2", "", best ? "Best answered question" : "Newest prompt"));
  const question = best?.question ?? [...reports.keys()].filter((row) => reports.get(row).lines).at(-1);
  if (question === undefined) {
    card.append(el("p", "quiet", whyNone()));
    return card;
  }
  const report = reports.get(question);
  const quotes = (best?.found ?? newestOf(report, question)).map((row) => quotation(row, question, report));
  card.append(isolated("p", "asked", beginning(nodes[question].text)));
  if (quotes.length) card.append(el("h3", "", best ? "Found for it" : "Sent with it"), el("ul", "quotes", ...quotes));
  if (best?.reply != null) card.append(el("h3", "", "The reply"), isolated("p", "reply", beginning(nodes[best.reply].text)));
  card.append(el("h3", "", "Its prompt"), ...budgetBar(report));
  if (!best) card.append(el("p", "quiet", whyNone()));
  card.append(button("open", "See what else was in its prompt", () => visit(question)));
  return card;
}

/** The rows of the newest messages that a prompt holds besides its question. */
function newestOf(report, question) {
  const sent = report.lines.filter((entry) => entry[IN] && entry[NODE] !== null && entry[NODE] !== question);
  return [...new Set(sent.map((entry) => entry[NODE]))].sort((a, b) => a - b).slice(-NEWEST);
}

/** A message of a prompt in its own words, with who said it when. */
function quotation(row, question, report) {
  const node = nodes[row];
  const past = nodes.slice(row, question).filter((each) => each.role !== "merge").length;
  const source = button("link", "", () => visit(row));
  source.append(isolated("span", "", node.name ?? node.role), `${node.at ? ` · ${dayName(node.at, true)}` : ""} · ${plural(past, "message")} earlier`);
  const entry = report.lines.find((each) => each[NODE] === row && each[IN]);
  return el("li", "", quote("blockquote", "", node.text ?? "", nodes[question].text ?? ""), el("p", "source", relevance(entry), source));
}

/** Why no question is the one answered best. */
function whyNone() {
  if (!reports.size) return "No prompt was built for this page.";
  const recalled = [...reports.values()].some((report) => report.lines?.some((entry) => entry[IN] && kindName(entry[KIND]) === "recalled"));
  return recalled ? "No prompt on this page recalled a message that matches its question well." : "No prompt on this page needed an earlier message.";
}

/** The chart of what was said when, for the eye alone: the list of sittings below it says it in words. */
function chart() {
  const { days, bars } = data.overview.activity;
  const most = Math.max(1, ...bars.map(([, asked, others]) => asked + others));
  const columns = bars.map(([day, asked, others, row]) => {
    const part = (kind, count) => {
      const element = el("span", kind);
      element.style.height = `${(100 * count) / most}%`;
      return element;
    };
    const column = el("span", "column", part("others", others), part("asked", asked));
    column.title = `${days > 1 ? `${days} days from ` : ""}${dayName(day, true)}: ${plural(asked + others, "message")}, ${plural(asked, "question")}`;
    if (row !== null) column.addEventListener("click", () => visit(row));
    return column;
  });
  const ends = bars.length ? [...new Set([bars[0][0], bars.at(-1)[0]])] : [];
  const axis = el("p", "axis quiet", ...ends.map((day) => el("span", "", dayName(day, true))));
  const caption = el("p", "caption", el("span", "", el("i", "dot asking"), "questions"), el("span", "", el("i", "dot other"), "other messages"), el("span", "most", `up to ${number(most)} ${days === 1 ? "a day" : days === 7 ? "a week" : `in ${days} days`}`));
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
  part.overview.append(branchCard(), activity(), promptCard());
}
