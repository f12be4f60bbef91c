// The list of the user's conversations, and the search in all of them.

/** A conversation in the list. */
function sessionEntry({ session_id, title, messages, branches, last }) {
  const facts = [plural(messages, "message"), branches > 1 ? plural(branches, "branch", "branches") : null];
  const entry = el("a", "entry", isolated("span", "head", title ?? session_id), el("time", "quiet", when(last)));
  entry.href = address("session", session_id);
  entry.append(el("span", "quiet about", ...facts.filter(Boolean).map((fact) => el("span", "", fact)), isolated("span", "id", session_id)));
  return el("li", "", entry);
}

/** A message that was found. */
function hitEntry({ session, id, role, name, at, text, band }, query, titles) {
  const entry = el("a", "entry", quote("span", "text", text, query), el("time", "quiet", at ? when(at) : ""));
  entry.href = address("session", session, id);
  entry.append(el("span", "quiet about", isolated("span", "", name ?? role), isolated("span", "", titles.get(session) ?? session)));
  if (band) entry.lastChild.prepend(el("span", `band ${band}`, el("i"), el("i"), el("i"), band));
  return el("li", "", entry);
}

/** The view of all conversations. */
async function showSessions(view) {
  const { sessions, more } = await ask("sessions");
  if (!view.current()) return;
  const titles = new Map(sessions.map((one) => [one.session_id, one.title ?? one.session_id]));
  const search = el("input", "wide");
  Object.assign(search, { type: "search", id: "find", placeholder: "Search everything that was said", autocomplete: "off", spellcheck: false });
  search.setAttribute("aria-label", "Search all sessions");
  const form = el("form", "find", search, el("button", "primary", "Search"));
  const head = el("h1", "", "Sessions");
  const summary = el("p", "quiet", sessions.length ? `${plural(sessions.length, "session")}${more ? ", the newest ones" : ""}. All times are UTC.` : "");
  summary.setAttribute("role", "status");
  const list = el("ul", "entries", ...sessions.map(sessionEntry));
  const nothing = sessions.length ? null : emptiness();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = search.value.trim();
    if (!query) {
      list.replaceChildren(...sessions.map(sessionEntry));
      summary.textContent = plural(sessions.length, "session");
      return;
    }
    summary.textContent = "Searching…";
    try {
      const { found } = await ask("search", { query });
      const words = query.toLowerCase().split(/\s+/);
      const titled = sessions.filter(({ title }) => words.every((word) => (title ?? "").toLowerCase().includes(word)));
      list.replaceChildren(...titled.map(sessionEntry), ...found.map((hit) => hitEntry(hit, query, titles)));
      const counts = [titled.length && plural(titled.length, "session"), found.length && plural(found.length, "message")];
      const said = counts.filter(Boolean).join(" and ");
      summary.textContent = said ? `${said} found, the best first` : "Nothing that was said matches.";
    } catch (error) {
      summary.textContent = error.message;
    }
  });
  search.addEventListener("input", () => search.value === "" && form.requestSubmit()); // the cross that empties it
  view.fill(el("section", "page", el("div", "page-head", head, form), summary, nothing, list));
}

/** What stands where nothing is stored. */
function emptiness() {
  const base = new URL("v1", location.href.split("#")[0]).href;
  const text = el("p", "", "Nothing is stored yet. Point an OpenAI client at ", el("code", "", base), " and say something.");
  const note = who.may_name ? el("p", "quiet", "A request that names a user belongs to that user: name the same one at the top right.") : null;
  return el("div", "empty-page", text, note);
}
