// The report on a prompt: how much of the budget it takes, and the decision on each message.

const [NODE, KIND, IN, WHY, TOKENS, LEFT, SCORE, WORDS, COSINE, BAND, SAYS] = Array(11).keys();

/**
 * The parts of a report in the words that the data of a page has for kinds, bands and reasons.
 * `link` makes the element that leads to the message that a line is about.
 */
function reporting({ kinds, bands, reasons }, link) {
  const kindName = (kind) => kinds[kind];

  /** A bar of what a prompt is made of; widths are shares of what may be sent. */
  function bar(report) {
    const whole = Math.max(report.budget, report.total_tokens, 1);
    const parts = report.totals.map((tokens, kind) => {
      if (!tokens) return null;
      const piece = el("span", `k-${kindName(kind)}`);
      piece.style.width = `${(100 * tokens) / whole}%`;
      piece.dataset.tokens = tokens;
      return piece;
    });
    return el("span", "bar", ...parts);
  }

  /** How relevant a match is, as three bars and a word; the numbers behind it are in its title. */
  function relevance(entry) {
    if (entry[BAND] === null || entry[BAND] === undefined) return null;
    const name = bands[entry[BAND]];
    const element = el("span", `band ${name}`, el("i"), el("i"), el("i"), name);
    element.title = numbers(entry);
    return element;
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
    const sum = el("p", "sum", el("strong", "", number(report.total_tokens)), ` of ${number(report.budget)} tokens`, el("span", "quiet", ` · ${share} % · ${number(report.reserve)} more reserved`));
    return [sum, bar(report), legend];
  }

  /** What the bands mean, and a switch for the numbers behind them. */
  function bandsExplained() {
    const meanings = {
      strong: "the words and the meaning of the message match the question, or one of them matches very well",
      fair: "the words or the meaning match",
      weak: "neither matches; the message takes room that is left, or stands close to one that matches",
    };
    const list = el("dl", "meanings", ...bands.flatMap((name) => [el("dt", "", name), el("dd", "", meanings[name])]));
    const shows = el("button", "step", "Show the numbers");
    shows.type = "button";
    shows.setAttribute("aria-pressed", document.body.classList.contains("numbers"));
    shows.addEventListener("click", () => shows.setAttribute("aria-pressed", document.body.classList.toggle("numbers")));
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
  function built({ lines, embedder, sent }) {
    const first = sent
      ? `Sent on ${dayName(sent.at, true)} at ${sent.at.slice(11, 19)} UTC${sent.model ? ` to ${sent.model}` : ""}.`
      : "Prompts are not stored: this one was built for this page, without tool schemas.";
    if (embedder) return `${first} What is recalled was found by words and by the vectors of ${embedder}.`;
    return lines.some((entry) => kindName(entry[KIND]) === "recalled") ? `${first} What is recalled was found by words alone.` : first;
  }

  /** Decisions in groups: parts of the prompt first, then what was left out, by reason. */
  function groups(report) {
    const heads = {
      recalled: "Recalled", summary: "Summary", window: "Newest turns", question: "The question", grounding: "Retrieved",
      system: "Always sent", tools: "Tools",
    };
    const found = [];
    for (const name of [...Object.keys(heads), ...kinds.filter((kind) => !(kind in heads))]) {
      const lines = report.lines.filter((entry) => entry[IN] && kindName(entry[KIND]) === name);
      if (!lines.length) continue;
      const tokens = lines.reduce((sum, entry) => sum + entry[TOKENS], 0);
      const head = [el("i", `dot k-${name}`), heads[name] ?? name, el("span", "quiet", [number(lines.length), plural(tokens, "token"), ...inBands(lines)].join(" · "))];
      found.push(folded(head, () => decisions(lines), name === "recalled"));
    }
    const out = report.lines.filter((entry) => !entry[IN]);
    for (const why of new Set(out.map((entry) => entry[WHY]))) {
      const lines = out.filter((entry) => entry[WHY] === why);
      found.push(folded([el("i", "dot out"), "Not sent: ", reasons[why], el("span", "quiet", number(lines.length))], () => decisions(lines)));
    }
    return found;
  }

  /** How many lines are in each band, if any is. */
  function inBands(lines) {
    const counts = bands.map((name, band) => [lines.filter((entry) => entry[BAND] === band).length, name]).filter(([count]) => count);
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
    const says = row === null ? isolated("span", "stray", entry[SAYS] || reasons[entry[WHY]]) : link(row);
    const why = odd && (row !== null || entry[SAYS]) ? el("span", "why", reasons[entry[WHY]]) : null;
    const raw = numbers(entry) ? el("span", "why raw", numbers(entry)) : null;
    return el("li", "", says, relevance(entry), el("span", "cost", number(entry[TOKENS])), why, raw);
  }

  return { kindName, bar, relevance, budget, budgetBar };
}
