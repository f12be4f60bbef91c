// What the page opens on: the branches, what was said when, and a prompt.

const SITTINGS = 5; // sittings shown before all are asked for
const NEWEST = 4; // messages quoted of the newest prompt
const FOUND = 3; // messages quoted that were found for a question

/** The newest question whose prompt recalled a strong match, or else a fair one, with what it found; else the newest prompt. */
function openingPrompt() {
  const newestFirst = [...reports].filter(([, report]) => report.lines).reverse();
  for (const band of ["strong", "fair"]) {
    const matches = (entry) => entry[IN] && entry[NODE] !== null && kindName(entry[KIND]) === "recalled" && data.bands[entry[BAND]] === band;
    for (const [question, report] of newestFirst) {
      const found = report.lines.filter(matches).map((entry) => entry[NODE]);
      if (found.length) return { question, found: found.slice(0, FOUND) };
    }
  }
  return { question: newestFirst[0]?.[0], found: [] };
}

/** The card of a prompt: the newest that recall helped, or else, where it has found nothing yet, the newest. */
function promptCard() {
  const { question, found } = openingPrompt();
  const card = el("section", "card opening", el("h2", "", found.length ? "What recall found last" : "Newest prompt"));
  if (question === undefined) {
    card.append(el("p", "quiet", whyNone()));
    return card;
  }
  const report = reports.get(question);
  const quotes = (found.length ? found : newestOf(report, question)).map((row) => quotation(row, question, report));
  card.append(isolated("p", "asked", beginning(nodes[question].text)));
  if (quotes.length) card.append(el("h3", "", found.length ? "Found for it" : "Sent with it"), el("ul", "quotes", ...quotes));
  const reply = nodes.slice(question + 1).find((node) => node.role === "assistant" && node.turn === nodes[question].turn && node.text?.trim());
  if (reply) card.append(el("h3", "", "The reply"), isolated("p", "reply", beginning(reply.text)));
  card.append(el("h3", "", "Its prompt"), ...budgetBar(report));
  if (!found.length) card.append(el("p", "quiet", whyNone()));
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

/** Why no prompt shows what was found. */
function whyNone() {
  if (!reports.size) return "No prompt was built for this page.";
  const recalled = [...reports.values()].some((report) => report.lines?.some((entry) => entry[IN] && kindName(entry[KIND]) === "recalled"));
  return recalled ? "No prompt on this page recalled a message that matches its question well." : "No prompt on this page needed an earlier message.";
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
function sittingsCard() {
  const sittings = [...data.overview.sittings].reverse();
  const list = el("ul", "sittings", ...sittings.slice(0, SITTINGS).map(sittingItem));
  const card = el("section", "card when", el("h2", "", "What was said when"), list);
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
  part.overview.append(branchCard(), sittingsCard(), promptCard());
}
