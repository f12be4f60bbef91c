// What a click, a key or a search does in a session.

const waiting = new Set();

/** Do something once before the next picture, however often it is asked for. */
function soon(act) {
  if (!waiting.size) {
    requestAnimationFrame(() => {
      const acts = [...waiting];
      waiting.clear();
      for (const each of acts) each();
    });
  }
  waiting.add(act);
}

/** Select a row, and of the branches that it is on highlight the one that is highlighted already, or the first. */
function select(row) {
  const containing = branchesWith(row);
  if (!containing.includes(state.branch) && containing.length) state.branch = containing[0];
  Object.assign(state, { row, containing, seen: verdicts(row) });
  state.on = containing.length ? pathTo(data.branches[state.branch].row) : pathTo(row);
  soon(showAll);
}

/** Draw everything that depends on which row is selected. */
function showAll() {
  for (const chip of part.branches.querySelectorAll("[data-branch]")) {
    chip.setAttribute("aria-pressed", state.containing.length > 0 && Number(chip.dataset.branch) === state.branch);
  }
  tint();
  explainStripes();
  renderAnew();
  if (state.row >= 0) show(state.row, state.containing);
}

/** Select a row and bring it into sight, also one that is filtered out. */
function go(row, middle = true) {
  if (places[row] < 0) {
    part.search.value = state.text = "";
    state.only = false;
    part.only.setAttribute("aria-pressed", "false");
    sift();
  }
  select(row);
  scrollToRow(row, middle);
}

/** Highlight a branch and go to its end, or stay where that is on it. */
function follow(branch) {
  const end = data.branches[branch].row;
  if (end === null) return;
  const stays = state.branch !== branch && state.containing.includes(branch);
  state.branch = branch;
  go(stays ? state.row : end);
}

/** Go to the question before or after, on the highlighted path. */
function step(by) {
  for (let row = state.row + by; row >= 0 && row < nodes.length; row += by) {
    if (nodes[row].role === "user" && state.on[row]) return enter(row);
  }
}

/** Go to a row and read it. */
function enter(row) {
  go(row);
  read();
}

function read() {
  if (state.row < 0) return;
  document.body.classList.add("reading");
  part.message.focus();
}

function leave() {
  document.body.classList.remove("reading");
  part.list.focus({ preventScroll: true });
}

/** Leave the overview for the messages, with the selected one in sight. */
function showMessages() {
  document.body.classList.remove("overview");
  window.scrollTo(0, 0);
  nameView();
  if (state.row >= 0) go(state.row);
}

/** Go from the overview to a row, and highlight a branch if one is given. */
function visit(row, branch = state.branch) {
  state.branch = branch;
  state.row = row;
  showMessages();
  if (narrow.matches) read();
  else part.list.focus({ preventScroll: true });
}

function showOverview() {
  document.body.classList.remove("reading");
  document.body.classList.add("overview");
  nameView();
}

/** Mark the button of what is shown. */
function nameView() {
  const on = document.body.classList.contains("overview");
  for (const [name, current] of [["to-overview", on], ["to-messages", !on]]) {
    if (current) part[name].setAttribute("aria-current", "page");
    else part[name].removeAttribute("aria-current");
  }
}

part["to-overview"].addEventListener("click", showOverview);
part["to-messages"].addEventListener("click", showMessages);

function move(to) {
  const last = state.shown.length - 1;
  if (last < 0) return;
  go(state.shown[Math.max(0, Math.min(last, to))], false);
}

function look() {
  sift();
  fit();
  if (state.row >= 0 && places[state.row] >= 0) scrollToRow(state.row, true);
  else part.scroller.scrollTop = 0;
  renderAnew();
}

part.list.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = state.row < 0 ? -1 : places[state.row];
  const page = Math.max(1, Math.floor(part.scroller.clientHeight / rowHeight) - 1);
  const moves = {
    ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: state.shown.length - 1,
  };
  if (event.key in moves) move(moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") read();
  else if (event.key === "Escape") showOverview();
  else return;
  event.preventDefault();
});

part.list.addEventListener("click", (event) => {
  const row = event.target.closest("[data-row]");
  if (!row) return;
  go(Number(row.dataset.row), false);
  if (narrow.matches) read();
});

part.map.addEventListener("pointerdown", (event) => {
  const jump = (y) => (part.scroller.scrollTop = y / mapShare() - part.scroller.clientHeight / 2);
  part.map.setPointerCapture(event.pointerId);
  part.map.onpointermove = (move) => jump(move.offsetY);
  part.map.onpointerup = () => (part.map.onpointermove = null);
  jump(event.offsetY);
});

part.search.addEventListener("input", () => {
  showMessages();
  state.text = part.search.value;
  soon(look);
});

part.search.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    part.search.value = state.text = "";
    soon(look);
    part.list.focus();
  } else if (event.key === "Enter" || event.key === "ArrowDown") {
    if (state.row < 0 || places[state.row] < 0) move(0);
    part.list.focus();
  } else return;
  event.preventDefault();
});

part.only.addEventListener("click", () => {
  state.only = !state.only;
  part.only.setAttribute("aria-pressed", state.only);
  soon(look);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    leave();
    part.search.focus();
    part.search.select();
  } else if (event.key === "Escape" && part.message.contains(event.target)) leave();
  else return;
  event.preventDefault();
}, { signal: live.signal });

const CHIPS = 40; // branches that have a button; more are in a list

function fillBranches() {
  const chip = (branch, n) => {
    const element = button(`chip branch ${colour(n)}`, branch.name, () => follow(n));
    element.dir = "auto";
    element.dataset.branch = n;
    element.disabled = branch.row === null;
    return element;
  };
  part.branches.append(...data.branches.slice(0, CHIPS).map(chip));
  if (data.branches.length <= CHIPS) return;
  const list = el("select", "", el("option", "", `all ${number(data.branches.length)} branches`));
  list.setAttribute("aria-label", "Go to a branch");
  data.branches.forEach((branch, n) => {
    const option = el("option", "", branch.name);
    option.value = n;
    list.append(option);
  });
  list.addEventListener("change", () => list.selectedIndex && follow(Number(list.value)));
  part.branches.append(list);
}

/** The row that is asked for by its id: by the page's address after a #, unless `live` says. */
function named() {
  try {
    return rowOf.get(live.at === undefined ? decodeURIComponent(location.hash.slice(1)) : live.at);
  } catch {
    return undefined;
  }
}

/** Say what the page is about. */
function head() {
  const title = data.overview.title ?? data.session;
  const whose = data.user === null ? data.session : `${data.user} / ${data.session}`;
  part.session.textContent = title;
  document.title = `${title} – infinite-memory`;
  const said = nodes.filter((node) => node.role !== "merge").length;
  const asked = nodes.filter((node) => node.role === "user").length;
  const facts = [plural(said, "message"), plural(data.branches.length, "branch", "branches"), plural(asked, "question"), days()];
  const session = el("span", "", "session ", isolated("b", "", whose));
  session.title = whose;
  part.counts.replaceChildren(session, ...facts.filter(Boolean).map((fact) => el("span", "", fact)));
  if (live.head) part.counts.append(live.head());
}

/** From when to when it was talked. */
function days() {
  const { sittings } = data.overview;
  if (!sittings.length) return "";
  const [first, last] = [sittings[0].start, sittings.at(-1).end];
  const from = dayName(first, first.slice(0, 4) !== last.slice(0, 4));
  return `${first.slice(0, 10) === last.slice(0, 10) ? "" : `${from} – `}${dayName(last, true)} (UTC)`;
}

function start() {
  head();
  fillBranches();
  sift();
  showOverviewCards();
  const onFirst = pathTo(data.branches[0]?.row);
  const newest = nodes.findLastIndex((_, row) => onFirst[row] && reports.has(row));
  if (named() === undefined) showOverview();
  else nameView();
  if (nodes.length) go(named() ?? (newest < 0 ? nodes.length - 1 : newest));
  else {
    part.none.textContent = "Nothing has been said yet.";
    part.message.append(el("p", "quiet", "Nothing has been said yet."));
  }
}

part.scroller.addEventListener("scroll", () => soon(render), { passive: true });
new ResizeObserver(() => soon(fit)).observe(part.scroller);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => soon(fit), { signal: live.signal });
start();
