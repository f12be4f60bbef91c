// The tree: rows and lines, of which only those in sight are in the page, and the map beside them.

const [ROW, TALL_ROW] = [38, 56]; // pixels, on wide and on narrow screens, as in page.css
const EDGE = 6; // pixels above the first row and below the last, as in page.css
const SPARE = 8; // rows kept above and below what is in sight
const BUCKET = 64; // rows that share a list of the lines that cross them

const part = Object.fromEntries(
  ["scroller", "ground", "graph", "list", "none", "map", "message", "search", "only", "branches", "found", "stripes", "counts", "session", "overview", "to-overview", "to-messages"]
    .map((id) => [id, document.getElementById(id)]),
);
const state = { row: -1, branch: 0, text: "", only: false, shown: [], containing: [], on: new Uint8Array(0), seen: new Map() };
const places = new Int32Array(nodes.length); // of a row among those shown; -1: filtered out
const narrow = matchMedia("(max-width: 860px)");
let rowHeight = ROW;
let made = new Map(); // place -> the element of the row there
let tints = []; // what the map shows at each of its pixels
let map = { width: 0, height: 0, colours: {} }; // its size, and its colours by name

const buckets = [];
data.edges.forEach(([parent, child], edge) => {
  for (let at = Math.floor(parent / BUCKET); at <= Math.floor(child / BUCKET); at++) (buckets[at] ??= []).push(edge);
});

/** When a row was said; the day only where it is another one than in the row above. */
function moment(place) {
  const node = nodes[state.shown[place]];
  if (!node.at) return "";
  let above = place - 1;
  while (above >= 0 && !nodes[state.shown[above]].at) above--;
  const same = above >= 0 && nodes[state.shown[above]].at.slice(0, 10) === node.at.slice(0, 10);
  return same ? clock(node.at) : `${dayName(node.at)} ${clock(node.at)}`;
}

/** Give the list the height of all rows that are shown. */
function stretch() {
  rowHeight = narrow.matches ? TALL_ROW : ROW;
  part.ground.style.height = `${state.shown.length * rowHeight}px`;
}

/** Which rows the search and the switch leave. */
function sift() {
  const wanted = state.text.trim().toLowerCase();
  state.shown = [];
  places.fill(-1);
  for (let row = 0; row < nodes.length; row++) {
    if (state.only && nodes[row].role !== "user") continue;
    if (wanted && !haystack(row).includes(wanted)) continue;
    places[row] = state.shown.length;
    state.shown.push(row);
  }
  stretch();
  part.none.hidden = state.shown.length > 0;
  const all = plural(nodes.filter((node) => node.role !== "merge").length, "message");
  part.found.textContent = state.shown.length === nodes.length ? all : `${number(state.shown.length)} of ${all}`;
}

const isWhole = () => state.shown.length === nodes.length;
const laneWidth = () => Math.max(4, Math.min(18, (narrow.matches ? 84 : 190) / Math.max(data.lanes, 1)));
const graphWidth = () => (isWhole() ? Math.min(data.lanes * laneWidth(), narrow.matches ? 84 : 190) : 18) + 14;
const laneX = (lane) => (isWhole() ? Math.min(14 + lane * laneWidth(), graphWidth() - 8) : 14);

function labels(node, row) {
  const chip = (kind, text) => {
    const element = el("span", `chip ${kind}`, text);
    element.dir = "auto";
    return element;
  };
  return [
    ...(node.branches ?? []).map((name) => chip(`branch ${colour(data.branches.findIndex((b) => b.name === name))}`, name)),
    ...(node.tags ?? []).map((name) => chip("tag", name)),
    ...(stashed.get(row) ?? []).map((name) => chip("stash", name)),
  ];
}

/** The text of a row, from before the first match on. */
function excerpt(node) {
  const text = el("span", "text");
  text.dir = "auto";
  const wanted = state.text.trim().toLowerCase();
  const whole = line(node, wanted ? 100_000 : 240);
  const at = wanted ? whole.toLowerCase().indexOf(wanted) : -1;
  if (at < 0) {
    text.append(whole.slice(0, 240));
    return text;
  }
  const from = Math.max(0, at - 30);
  text.append((from ? "…" : "") + whole.slice(from, at), el("mark", "", whole.slice(at, at + wanted.length)));
  text.append(whole.slice(at + wanted.length, at + 240));
  return text;
}

function makeRow(place) {
  const row = state.shown[place];
  const node = nodes[row];
  const verdict = state.seen.get(row);
  const element = el("div", `row ${node.role}`);
  element.id = `row-${row}`;
  element.dataset.row = row;
  element.setAttribute("role", "option");
  element.setAttribute("aria-posinset", place + 1);
  element.setAttribute("aria-setsize", state.shown.length);
  element.setAttribute("aria-selected", row === state.row);
  element.classList.toggle("off", !state.on[row]);
  if (verdict) element.classList.add(verdict[IN] ? "sent" : "left-out", `k-${kindName(verdict[KIND])}`);
  element.style.top = `${place * rowHeight}px`;
  element.style.paddingInlineStart = `${graphWidth()}px`;
  const who = el("span", "who", node.name ?? node.role);
  who.dir = "auto";
  const report = reports.get(row);
  element.append(who, excerpt(node), el("span", "labels", ...labels(node, row)));
  element.append(report?.totals ? bar(report) : el("span", "bar blank"));
  element.append(el("time", "", moment(place)));
  return element;
}

function edgePath([parent, child, lane], top) {
  const y = (row) => (row - top) * rowHeight + rowHeight / 2;
  const [from, by, to] = [nodes[parent].lane, lane, nodes[child].lane].map(laneX);
  const bend = (x1, y1, x2, y2) => (x1 === x2 ? `V${y2}` : `C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`);
  const start = `M${from} ${y(parent)}`;
  if (child === parent + 1) return start + bend(from, y(parent), to, y(child));
  const down = `${bend(from, y(parent), by, y(parent + 1))}V${y(child - 1)}`;
  return start + down + bend(by, y(child - 1), to, y(child));
}

function mark(row, place, first) {
  const node = nodes[row];
  const at = { cx: laneX(node.lane), cy: (place - first) * rowHeight + rowHeight / 2 };
  const kind = `${colour(node.owner)}${state.on[row] ? "" : " off"}`;
  const marks = row === state.row ? [svg("circle", { ...at, r: 10, class: `halo ${kind}` })] : [];
  const square = (size, turn) =>
    svg("rect", {
      x: at.cx - size / 2, y: at.cy - size / 2, width: size, height: size, rx: 1.5, class: `full ${kind}`,
      ...(turn ? { transform: `rotate(45 ${at.cx} ${at.cy})` } : {}),
    });
  if (node.role === "user") marks.push(svg("circle", { ...at, r: 5, class: `full ${kind}` }));
  else if (node.role === "merge") marks.push(svg("circle", { ...at, r: 6, class: `ring ${kind}` }), svg("circle", { ...at, r: 2.5, class: `full ${kind}` }));
  else if (node.role === "assistant") marks.push(svg("circle", { ...at, r: 4, class: `ring ${kind}` }));
  else marks.push(square(node.role === "tool" ? 7 : 8, node.role === "tool"));
  return marks;
}

function drawGraph(first, last) {
  const drawn = [];
  if (isWhole()) {
    const crossing = new Set();
    for (let at = Math.floor(first / BUCKET); at <= Math.floor(last / BUCKET); at++) {
      for (const edge of buckets[at] ?? []) crossing.add(edge);
    }
    for (const number of crossing) {
      const edge = data.edges[number];
      if (edge[1] < first || edge[0] > last) continue;
      const off = state.on[edge[0]] && state.on[edge[1]] ? "" : " off";
      drawn.push(svg("path", { d: edgePath(edge, first), class: `edge ${colour(edge[3])}${off}` }));
    }
    drawn.sort((a, b) => b.classList.contains("off") - a.classList.contains("off"));
  }
  for (let place = first; place <= last; place++) drawn.push(...mark(state.shown[place], place, first));
  part.graph.style.top = `${first * rowHeight}px`;
  part.graph.setAttribute("width", graphWidth());
  part.graph.setAttribute("height", Math.max(0, last - first + 1) * rowHeight);
  part.graph.replaceChildren(...drawn);
}

/** Say what the stripes beside the rows mean. */
function explainStripes() {
  const kinds = new Set([...state.seen.values()].filter((entry) => entry[IN]).map((entry) => kindName(entry[KIND])));
  const shown = data.kinds.filter((kind) => kinds.has(kind)).map((kind) => el("span", "", el("i", `dot k-${kind}`), kind));
  part.stripes.replaceChildren(...(shown.length ? ["In its prompt:", ...shown] : []));
}

/** Put the rows in sight into the page, and take the others out. */
function render() {
  const { scrollTop, clientHeight } = part.scroller;
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - SPARE);
  const last = Math.min(state.shown.length - 1, Math.ceil((scrollTop + clientHeight) / rowHeight) + SPARE);
  const wanted = [];
  for (let place = first; place <= last; place++) wanted.push(place);
  const active = state.row < 0 ? -1 : places[state.row];
  if (active >= 0 && active < first) wanted.unshift(active);
  if (active > last) wanted.push(active);
  const kept = made;
  made = new Map(wanted.map((place) => [place, kept.get(place) ?? makeRow(place)]));
  part.list.replaceChildren(...made.values());
  if (active >= 0) part.list.setAttribute("aria-activedescendant", `row-${state.row}`);
  else part.list.removeAttribute("aria-activedescendant");
  drawGraph(first, last);
  drawMap();
}

/** The same, where what is in the rows has changed. */
function renderAnew() {
  made = new Map();
  render();
}

/** Note what the map shows at each pixel: parts of the prompt over matches over the highlighted path. */
function tint() {
  const height = Math.max(1, Math.floor(map.height));
  const rank = { question: 7, recalled: 6, grounding: 5, summary: 4, system: 4, window: 3, tools: 3, path: 1, off: 0 };
  const names = new Array(height).fill("off");
  const share = mapShare() * rowHeight;
  state.shown.forEach((row, place) => {
    const verdict = state.seen.get(row);
    const name = verdict?.[IN] ? kindName(verdict[KIND]) : state.on[row] ? "path" : "off";
    const from = Math.floor(place * share);
    for (let y = from; y < Math.max(from + 1, Math.floor((place + 1) * share)) && y < height; y++) {
      if (rank[name] >= rank[names[y]]) names[y] = name;
    }
  });
  tints = names;
}

/** Take over a new size or other colours. */
function fit() {
  stretch();
  const style = getComputedStyle(document.documentElement);
  const names = [...data.kinds, "line", "sight"];
  map = {
    width: part.map.clientWidth,
    height: part.map.clientHeight,
    colours: Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)])),
  };
  tint();
  renderAnew();
}

const mapShare = () => Math.min(map.height / Math.max(1, state.shown.length), 4) / rowHeight;

function drawMap() {
  const { width, height, colours } = map;
  const scale = window.devicePixelRatio || 1;
  part.map.width = Math.round(width * scale);
  part.map.height = Math.round(height * scale);
  const brush = part.map.getContext("2d");
  brush.scale(scale, scale);
  brush.fillStyle = colours.sight ?? "transparent";
  brush.fillRect(0, part.scroller.scrollTop * mapShare(), width, Math.max(8, part.scroller.clientHeight * mapShare()));
  tints.forEach((name, y) => {
    if (name === "off") return;
    const slim = name === "path" || name === "window";
    brush.fillStyle = colours[name === "path" ? "line" : name];
    const inset = name === "path" ? width / 2 - 1 : slim ? 4 : 2;
    brush.fillRect(inset, y, width - 2 * inset, slim ? 1 : 2);
  });
}

function scrollToRow(row, middle = false) {
  const top = places[row] * rowHeight;
  const bottom = top + rowHeight + 2 * EDGE;
  const { scrollTop, clientHeight } = part.scroller;
  if (top >= scrollTop && bottom <= scrollTop + clientHeight) return;
  if (middle) part.scroller.scrollTop = (top + bottom - clientHeight) / 2;
  else part.scroller.scrollTop = top < scrollTop ? top : bottom - clientHeight;
}
