// The page as a whole: it draws the session that it holds, or asks its server who looks, and for what is to be seen.

const shell = Object.fromEntries(["bar", "notice", "stage", "parts"].map((id) => [id, document.getElementById(id)]));
const own = JSON.parse(document.getElementById("data").textContent);
const tabs = ["Sessions", "Requests"].map((name) => Object.assign(el("a", "", name), { href: address(name.toLowerCase()) }));
const ICON = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M4 2v12M4 6c6 0 8 1 8 5' fill='none' stroke='%233b82f6' stroke-width='2'/%3E%3Ccircle cx='4' cy='3' r='2.4' fill='%233b82f6'/%3E%3Ccircle cx='12' cy='12' r='2.4' fill='%233b82f6'/%3E%3C/svg%3E";
const looker = Object.assign(el("p"), { id: "who" }); // who looks, and how to become somebody else
let who = null; // what the server says about who asks; null: not known yet
let view = null; // what is shown

/** Say something about the whole page in a line at its top. */
function note(text, ...more) {
  if (shell.notice.textContent !== text || more.length) shell.notice.replaceChildren(text, ...more);
}

/** Begin another view; what the one before still waits for does not show any more. */
function begin(name) {
  view?.end.abort();
  const end = new AbortController();
  const mine = { name, end, heard: () => {}, current: () => view === mine, fill: (...children) => mine.current() && shell.stage.replaceChildren(...children) };
  view = mine;
  document.body.className = `view-${name}`;
  tabs.forEach((tab, at) => {
    if (at === Number(name === "requests")) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  });
  shell.stage.className = "";
  document.title = `${name === "requests" ? "Requests" : "Sessions"} – infinite-memory`;
  return mine;
}

/** What happens when requests are new or changed. */
function heard() {
  view?.heard();
}

/** Show the view that the address names. */
async function route() {
  if (!who) return;
  dialog.close();
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const mine = begin(name === "requests" || name === "session" ? name : "sessions");
  window.scrollTo(0, 0);
  try {
    if (mine.name === "requests") await showRequests(mine, rest[0] === undefined ? undefined : Number(rest[0]));
    else if (mine.name === "session") await showSession(mine, rest[0] ?? "", rest[1]);
    else await showSessions(mine);
    if (mine.current() && mine.name !== "session") shell.stage.focus({ preventScroll: true });
  } catch (error) {
    if (error.status === 401) signOut(error.message);
    else if (error instanceof Refusal) mine.fill(el("section", "page", el("div", "empty-page", complaint(error))));
    else throw error;
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Draw a session. */
function draw(data, live) {
  shell.stage.replaceChildren(document.importNode(shell.parts.content, true));
  shell.stage.className = "conversation";
  conversation(data, live);
}

/** Show a session of the server; `at` is the id of the message to begin with. */
async function showSession(mine, session, at, build) {
  if (!shell.stage.classList.contains("conversation")) mine.fill(el("p", "loading quiet", "Reading the session…"));
  const seen = live.stamp;
  const data = await ask("session", build === undefined ? { session } : { session, ask: build });
  if (!mine.current()) return;
  const again = (id, built) => {
    const next = begin("session");
    history.replaceState(null, "", address("session", session, ...(id ? [id] : [])));
    showSession(next, session, id, built).catch((error) => error instanceof Refusal && next.fill(complaint(error)));
  };
  const gone = (reason) => {
    if (reason) note(`Erased, but not yet from the files: ${reason}`);
  };
  const actions = (node) =>
    el("p", "actions", button("open erasing", "Erase this message", () => askForget(session, [node.id], (reason) => { again(); gone(reason); })));
  const head = () => button("open erasing", "Erase this session", () =>
    askForget(session, null, (reason) => { location.hash = address("sessions"); gone(reason); }));
  draw(data, { at: at ?? null, actions, head, build: (id) => again(id, id), signal: mine.end.signal });
  mine.heard = () => {
    const fresh = live.requests.filter((one) => one.session === session && one.stamp > seen);
    if (fresh.length) note("", el("span", "", "Something new was said here. "), button("open", "Show it", () => { note(""); again(fresh[0].id ?? undefined); }));
  };
}

/** Fill the bar at the top. */
function fillBar() {
  const children = [];
  if (who.may_name) children.push(button("open", `User: ${who.user ?? "none"}`, () => askUser()));
  else children.push(isolated("b", "", who.user));
  if (sessionStorage.getItem(TOKEN)) children.push(button("open", "Sign out", () => signOut()));
  looker.replaceChildren(...children);
  const nav = el("nav", "", ...tabs);
  nav.setAttribute("aria-label", "Inspector");
  shell.bar.replaceChildren(nav, looker);
}

/** A page with one field and what to do with its value. */
function askOne({ title, text, label, type, problem, optional, act, back }) {
  const field = el("input", "wide");
  Object.assign(field, { id: "one-field", type, required: !optional, autocomplete: "off", spellcheck: false });
  const name = el("label", "", label);
  name.htmlFor = field.id;
  const alert = isolated("p", "warn", problem ?? "");
  alert.setAttribute("role", "alert");
  const form = el("form", "stack card gate", el("h1", "", title), el("p", "quiet", text), name, field, alert, el("p", "buttons", el("button", "primary", "Continue"), back ?? null));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act(field.value.trim());
  });
  begin("gate").fill(form);
  field.focus();
}

function askToken(problem) {
  shell.bar.hidden = true;
  const text = "This server needs a token. It is kept in this tab until you close it or sign out, and sent to this server alone.";
  askOne({ title: "infinite-memory", text, label: "Token", type: "password", problem, act: (token) => { keep(TOKEN, token); start(true); } });
}

function askUser(problem) {
  const must = who.must_name;
  const text = must ? "This token is for a program with many users. Whose sessions do you want to see?" : "Whose sessions do you want to see? Leave it empty for those of requests that name no user.";
  const back = must ? button("open", "Sign out", () => signOut()) : button("open", "Cancel", route);
  askOne({ title: "User", text, label: "User", type: "text", problem, optional: !must, back, act: (user) => { keep(USER, user); start(); } });
}

function signOut(problem) {
  who = null;
  clearTimeout(live.timer);
  keep(TOKEN, "");
  keep(USER, "");
  Object.assign(live, { stamp: 0, requests: [], words: null });
  dialog.close();
  note("");
  askToken(problem);
}

/** Ask the server who looks, and show the page or what is missing. */
async function start(tried = false) {
  if (own.token && !sessionStorage.getItem(TOKEN)) return askToken();
  try {
    who = await ask("me");
  } catch (error) {
    if (error.status === 401) return signOut(tried ? "This token is unknown." : undefined);
    keep(USER, "");
    return begin("gate").fill(el("div", "gate card stack", complaint(error), button("primary", "Try again", () => start())));
  }
  Object.assign(live, { stamp: 0, requests: [], words: null });
  shell.bar.hidden = who.must_name;
  if (who.must_name) return askUser();
  fillBar();
  await listen();
  await route();
}

if (own.nodes) {
  begin("session");
  draw(own, {});
} else {
  document.head.append(Object.assign(el("link"), { rel: "icon", href: ICON }));
  window.addEventListener("hashchange", route);
  start();
}
