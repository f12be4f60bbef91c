// The newest requests and the prompts that were sent for them, as they happen.

const EVERY = 2000; // milliseconds between two questions for what is new
const SHORT = 60; // characters of the name of a session

const live = { stamp: 0, words: null, requests: [], timer: 0, problem: false };

/** Ask what is new, again and again while the page is looked at, and tell the view. */
async function listen() {
  clearTimeout(live.timer);
  const asking = who;
  if (!document.hidden && who) {
    try {
      const news = await ask("requests", { after: live.stamp });
      if (who !== asking) return;
      if (live.problem) note("");
      live.problem = false;
      if (news.requests) {
        const changed = news.stamp !== live.stamp || news.requests.length !== live.requests.length;
        Object.assign(live, { stamp: news.stamp, words: news, requests: news.requests });
        if (changed) heard();
      }
    } catch (error) {
      if (who !== asking) return;
      if (error.status === 401) return signOut(error.message);
      live.problem = true;
      note(error.message);
    }
  }
  clearTimeout(live.timer);
  live.timer = setTimeout(listen, EVERY);
}

document.addEventListener("visibilitychange", () => who && listen());

const shortened = (name) => (name.length > SHORT ? `${name.slice(0, SHORT - 1)}…` : name);

/** How a request ended, as far as the memory knows. */
function ending({ seconds }) {
  if (seconds === null) return el("span", "waiting", "no answer stored");
  return el("span", "", `answered in ${seconds < 1 ? `${Math.ceil(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`}`);
}

/** A request in the list. */
function requestEntry(request, chosen) {
  const { bar } = reporting(live.words, () => null);
  const entry = el("a", "entry", isolated("span", "head", request.question || "(no text)"), el("time", "quiet", when(request.at, true)));
  entry.href = address("requests", request.number);
  if (request.number === chosen) entry.setAttribute("aria-current", "true");
  const facts = [el("span", "", `${number(request.total_tokens)} of ${number(request.budget)} tokens`)];
  if (request.recalled) facts.push(el("span", "", `${number(request.recalled)} recalled`));
  facts.push(ending(request));
  if (request.model) facts.push(isolated("span", "", request.model));
  facts.push(isolated("span", "id", request.session === null ? "a new session" : shortened(request.session)));
  entry.append(bar(request), el("span", "quiet about", ...facts));
  return el("li", "", entry);
}

/** The report of one request, with links to its session. */
function requestPanel(request) {
  const link = (index) => {
    const { id, role, text } = request.messages[index];
    const element = el(request.session === null ? "span" : "a", "link", el("b", "", role ?? ""), " ", isolated("span", "", text || "(empty)"));
    if (request.session !== null) element.href = address("session", request.session, id);
    return element;
  };
  const { budget } = reporting(request, link);
  const head = el("header", "", isolated("h2", "", request.question || "(no text)"));
  const open = el("a", "open", "Open the session here");
  open.href = request.session === null ? "" : address("session", request.session, ...(request.id === null ? [] : [request.id]));
  const about = request.session === null
    ? el("p", "quiet", "It began a new session, of which nothing is stored until the model answers.")
    : el("p", "quiet", "session ", isolated("span", "id", request.session));
  const back = el("a", "open backward", "All requests");
  back.href = address("requests");
  return [back, head, about, request.session === null ? null : open, budget(request)];
}

/** The view of the newest requests; `chosen` is the number of the one that is read, else it is always the newest. */
async function showRequests(view, chosen) {
  const list = el("ul", "entries");
  const panel = el("article", "panel");
  panel.setAttribute("aria-label", "The prompt of a request");
  panel.tabIndex = -1;
  const count = el("p", "quiet");
  count.setAttribute("role", "status");
  const page = el("section", `page split${chosen === undefined ? "" : " chosen"}`);
  page.append(el("div", "side", el("div", "page-head", el("h1", "", "Requests")), count, list), panel);
  let stamp = 0; // of the request in the panel
  const read = async () => {
    const shown = chosen ?? live.requests[0]?.number;
    const focused = list.contains(document.activeElement) ? document.activeElement.hash : null;
    list.replaceChildren(...live.requests.map((one) => requestEntry(one, shown)));
    if (focused) [...list.querySelectorAll("a")].find((entry) => entry.hash === focused)?.focus();
    const some = `${plural(live.requests.length, "request")}, newest first. Times are UTC.`;
    count.textContent = live.requests.length ? some : "No request yet. They appear here as they happen.";
    const now = live.requests.find((one) => one.number === shown)?.stamp;
    if (shown === undefined || now === stamp) return;
    stamp = now;
    try {
      const request = await ask("request", { number: shown });
      if (view.current() && stamp === now) panel.replaceChildren(...requestPanel(request).filter(Boolean));
    } catch (error) {
      panel.replaceChildren(complaint(error));
    }
  };
  view.fill(page);
  view.heard = read;
  await read();
}
