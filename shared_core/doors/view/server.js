// What the page asks the server for, and the token that it asks with. The token is kept until the tab is closed.

const TOKEN = "infinite-memory token";
const USER = "infinite-memory user";

/** What the server refused, in its words. */
class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** Keep a value until the tab is closed; an empty one is forgotten. */
function keep(name, value) {
  if (value) sessionStorage.setItem(name, value);
  else sessionStorage.removeItem(name);
}

/** A name as a header can hold it: its UTF-8, byte by byte. */
const asBytes = (name) => String.fromCharCode(...new TextEncoder().encode(name));

function headersOf(body) {
  const [token, user] = [TOKEN, USER].map((name) => sessionStorage.getItem(name));
  const headers = { "X-Inspector": "1" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (user) headers["X-User-Id"] = asBytes(user);
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return headers;
}

/** Ask for data, or with a body for a change; throw a Refusal if there is none. */
async function ask(path, fields = {}, body) {
  const query = new URLSearchParams(fields).toString();
  const how = { method: body === undefined ? "GET" : "POST", headers: headersOf(body), body: body && JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`inspector/api/${path}${query ? `?${query}` : ""}`, { ...how, credentials: "omit", redirect: "error" });
  } catch {
    throw new Refusal(0, "unreachable", "The server cannot be reached.");
  }
  const said = await response.json().catch(() => ({}));
  if (response.ok) return said;
  const message = said.error?.message ?? `The server answered with ${response.status}.`;
  throw new Refusal(response.status, said.error?.code, message.charAt(0).toUpperCase() + message.slice(1));
}

const change = (path, body) => ask(path, {}, body);

/** A line for an error, or nothing. */
const complaint = (error) => isolated("p", "warn", error.message);

/** The address of a view: its name and what it is about. */
const address = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** When something was, in UTC; the year only if it is another one. */
function when(at, seconds = false) {
  const now = new Date().toISOString();
  const day = at.slice(0, 10) === now.slice(0, 10) ? "today" : dayName(at, at.slice(0, 4) !== now.slice(0, 4));
  return `${day} ${at.slice(11, seconds ? 19 : 16)}`;
}
