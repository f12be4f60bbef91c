// The branches as lines from left to right: where each begins, what it brings into another, and where it ends.

const LANE = 46; // pixels between two lines, as in page.css
const SIDE = 12; // pixels beside the first and the last stop
const BEND = 26; // pixels that a curve from one line to another takes

/** The x of each stop: stops with much between them are further apart, but not in proportion. */
function stopsAt(stops, width) {
  const gaps = stops.map((row, place) => (place ? 1 + Math.log2(row - stops[place - 1]) / 2 : 0));
  const whole = gaps.reduce((sum, gap) => sum + gap, 0) || 1;
  let sum = 0;
  return new Map(stops.map((row, place) => [row, SIDE + ((sum += gaps[place]) / whole) * (width - 2 * SIDE)]));
}

/** A line along y to just before `to`, and from there in a curve to another line. */
function joinPath(from, y, to, end) {
  const bend = Math.min(BEND, to - from);
  return `M${from} ${y}H${to - bend}C${to - bend / 3} ${y} ${to - (2 * bend) / 3} ${end} ${to} ${end}`;
}

/** A curve from a line to the beginning of another, and along that to its end. */
function forkPath(from, y, to, end) {
  const bend = Math.min(BEND, to - from);
  return `M${from} ${y}C${from + (2 * bend) / 3} ${y} ${from + bend / 3} ${end} ${from + bend} ${end}H${to}`;
}

function drawLines(width) {
  const { stops, lines, joins } = data.overview.lines;
  const height = lines.length * LANE;
  const lanes = new Map(lines.map((each, lane) => [each.branch, lane * LANE + LANE / 2]));
  const x = stopsAt(stops, width);
  const y = (row) => lanes.get(nodes[row].owner) ?? LANE / 2;
  const drawn = [];
  for (const [source, target, how] of joins) {
    const kind = `edge ${how} ${colour(nodes[source].owner)}`;
    drawn.push(svg("path", { d: joinPath(x.get(source), y(source), x.get(target), y(target)), class: kind }));
  }
  for (const each of [...lines].reverse()) {
    const lane = lanes.get(each.branch);
    const end = each.own ? x.get(each.end) : Math.min(width - SIDE / 2, x.get(each.end) + BEND);
    const path = each.from === null ? `M${x.get(each.start)} ${lane}H${end}` : forkPath(x.get(each.from), y(each.from), end, lane);
    drawn.push(svg("path", { d: path, class: `edge ${colour(each.branch)}` }));
  }
  for (const row of stops) drawn.push(stopMark(row, x.get(row), y(row)));
  for (const each of lines) {
    const end = each.own ? x.get(each.end) : Math.min(width - SIDE / 2, x.get(each.end) + BEND);
    drawn.push(svg("circle", { cx: end, cy: lanes.get(each.branch), r: 6, class: `full ${colour(each.branch)}` }));
  }
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": true });
  picture.append(...drawn);
  return picture;
}

/** A stop; a pointer on it reads what was said there. */
function stopMark(row, cx, cy) {
  const mark = svg("circle", { cx, cy, r: nodes[row].role === "merge" ? 5 : 4, class: `ring ${colour(nodes[row].owner)}` });
  const name = svg("title", {});
  name.textContent = line(nodes[row], 120);
  mark.append(name);
  mark.dataset.row = row;
  return mark;
}

/** The card of the tree: a name for each line, and beside the names the lines. */
function branchCard() {
  const { lines, joins, more } = data.overview.lines;
  const dotted = joins.some(([, , how]) => how === "summary") ? el("p", "quiet", "dotted: as a summary") : null;
  const card = el("section", "card", el("div", "card-head", el("h2", "", "The tree"), dotted));
  const names = lines.map((each) => {
    const chip = button(`chip branch ${colour(each.branch)}`, data.branches[each.branch].name, () => visit(each.end, each.branch));
    chip.dir = "auto";
    return el("li", "", chip, el("span", "quiet", each.own ? plural(each.own, "message") : "none of its own"));
  });
  const list = el("ul", "names", ...names);
  const picture = el("div", "lines");
  card.append(el("div", "map", list, picture));
  if (more) card.append(el("p", "quiet", `and ${plural(more, "more branch", "more branches")}, on which nothing newer was said`));
  picture.addEventListener("click", (event) => {
    const row = event.target.dataset.row;
    if (row !== undefined) visit(Number(row));
  });
  new ResizeObserver(() => {
    if (picture.clientWidth) picture.replaceChildren(drawLines(picture.clientWidth));
  }).observe(picture);
  return card;
}
