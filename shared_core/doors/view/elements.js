// What every page is made of: elements, whose text is text and never anything else, and numbers and times in words.

const SVG = "http://www.w3.org/2000/svg";
const ALIKE = 400; // lines of one group that are shown at once
const QUOTE = 280; // characters quoted of a message

const written = new Intl.NumberFormat("en");
const number = (value) => written.format(value);
const plural = (count, word, words = `${word}s`) => `${number(count)} ${count === 1 ? word : words}`;

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** A day such as 2026-05-04 as it is written, with its year if asked for. Times and days are UTC. */
function dayName(day, withYear = false) {
  const [year, month, date] = day.slice(0, 10).split("-");
  return `${Number(date)} ${MONTHS[month - 1]}${withYear ? ` ${Number(year)}` : ""}`;
}

const clock = (at) => at.slice(11, 16);

/** Make an element; strings among its children become text and never anything else. */
function el(tag, kind, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function button(kind, text, act) {
  const element = el("button", kind, text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

function isolated(tag, kind, text) {
  const element = el(tag, kind, text);
  element.dir = "auto";
  return element;
}

function section(title, ...children) {
  return el("section", "card", el("h3", "", title), ...children);
}

/** Something that opens; what is in it is made when it first does. */
function folded(summary, make, open = false) {
  const element = el("details", "", el("summary", "", ...summary));
  const fill = () => element.childElementCount === 1 && element.append(make());
  element.addEventListener("toggle", fill);
  if (open) {
    fill();
    element.open = true;
  }
  return element;
}

function facts(pairs) {
  const list = el("dl", "facts");
  for (const [name, value] of pairs) {
    if (value !== undefined && value !== null) list.append(el("dt", "", name), isolated("dd", "", value));
  }
  return list;
}

/** The beginning of a text. */
const beginning = (text = "") => (text.trim().length > QUOTE ? `${text.trim().slice(0, QUOTE)}…` : text.trim());

/** The words of a text that tell it from others: the long ones, if it has any. */
function wordsOf(text) {
  const words = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const long = words.filter((word) => word.length > 3);
  return new Set(long.length ? long : words);
}

/** The part of a text that shares most words with a question, with these words marked. */
function quote(tag, kind, text, question) {
  const wanted = wordsOf(question);
  const whole = text.slice(0, 100_000).replace(/\s+/g, " ").trim();
  const element = isolated(tag, kind);
  let from = 0;
  let best = 0;
  for (let at = 0; at < whole.length && whole.length > QUOTE; at = whole.indexOf(" ", at + QUOTE / 4) + 1 || whole.length) {
    const shared = [...wordsOf(whole.slice(at, at + QUOTE))].filter((word) => wanted.has(word)).length;
    if (shared > best) [from, best] = [at, shared];
  }
  if (from) element.append("…");
  for (const piece of whole.slice(from, from + QUOTE).split(/([\p{L}\p{N}]+)/u)) {
    element.append(wanted.has(piece.toLowerCase()) ? el("mark", "", piece) : piece);
  }
  if (from + QUOTE < whole.length) element.append("…");
  return element;
}
