// A query, and its URL, so that queries can be shared and revisited.
// An uploaded picture has no URL; it is remembered while the page is open.

import { FILTER_NAMES } from "./api.js";

/**
 * @typedef {import("./api.js").Filters} Filters
 * @typedef {import("./api.js").Kind} Kind
 * @typedef {import("./api.js").Mode} Mode
 *
 * @typedef {object} Query
 * @property {string} text
 * @property {Mode} mode how the text is searched for
 * @property {{ id: number, index: string } | null} like an entry to search with
 * @property {File | null} picture a picture to search with
 * @property {number[]} more pictures that the hits should resemble
 * @property {number[]} less pictures that the hits should not resemble
 * @property {Kind} to
 * @property {string} index
 * @property {string} beside another index to compare with, or ""
 * @property {Filters} filters
 */

/** @type {Filters} */
export const NO_FILTERS = Object.freeze({
  folder: "",
  album: "",
  since: "",
  until: "",
  split: "",
  columns: Object.freeze({}),
});

// A query without text, pictures and examples; its filters and indexes stay.
export const NOTHING = Object.freeze({ text: "", like: null, picture: null, more: [], less: [] });

const MODES = /** @type {const} */ (["auto", "meaning", "words", "both"]);

/** @param {string} search the part of a URL from the question mark on @returns {Query} */
export function fromUrl(search) {
  const parameters = new URLSearchParams(search);
  /** @type {Filters} */
  const filters = { ...NO_FILTERS, columns: {} };
  for (const name of FILTER_NAMES) filters[name] = parameters.get(name) ?? "";
  for (const where of parameters.getAll("where")) {
    const [column, ...value] = where.split("=");
    if (column && value.length) filters.columns[column] = value.join("=");
  }
  const like = parameters.get("like") ?? "";
  const index = parameters.get("index") ?? "";
  return {
    text: parameters.get("q") ?? "",
    mode: MODES.find((mode) => mode === parameters.get("mode")) ?? "auto",
    like: /^\d+$/.test(like) ? { id: Number(like), index: parameters.get("of") ?? index } : null,
    picture: null,
    more: toIds(parameters.get("more")),
    less: toIds(parameters.get("less")),
    to: parameters.get("to") === "text" ? "text" : "image",
    index,
    beside: parameters.get("beside") ?? "",
    filters,
  };
}

/** @param {Query} query */
export function toUrl({ text, mode, like, more, less, to, index, beside, filters }) {
  const parameters = new URLSearchParams();
  if (text.trim()) parameters.set("q", text);
  if (mode !== "auto") parameters.set("mode", mode);
  if (like) {
    parameters.set("like", String(like.id));
    parameters.set("of", like.index);
  }
  if (more.length) parameters.set("more", more.join(" "));
  if (less.length) parameters.set("less", less.join(" "));
  if (to === "text") parameters.set("to", to);
  if (index) parameters.set("index", index);
  if (beside) parameters.set("beside", beside);
  for (const name of FILTER_NAMES) if (filters[name]) parameters.set(name, filters[name]);
  for (const [column, value] of Object.entries(filters.columns)) parameters.append("where", `${column}=${value}`);
  return String(parameters) ? `?${parameters}` : "./";
}

// Whether a text is in quotes as a whole, which asks for exactly these words.
/** @param {string} text */
export function isQuoted(text) {
  return /^["“„][^"“”„]+["“”]$/.test(text.trim());
}

/** @param {string} text */
export function withoutQuotes(text) {
  return text.replaceAll(/["“”„]/g, "").trim();
}

// Whether nothing is searched for, so that the pictures are shown by date.
/** @param {Query} query */
export function isEmpty({ text, like, picture, more, less }) {
  return !text.trim() && !like && !picture && !more.length && !less.length;
}

/** @param {Filters} filters */
export function isUnfiltered({ columns, ...plain }) {
  return ![...Object.values(plain), ...Object.values(columns)].some(Boolean);
}

/** @param {Query} one @param {Query} other */
export function isSame(one, other) {
  return toUrl(one) === toUrl(other) && one.picture === other.picture;
}

/** @param {string | null} text */
function toIds(text) {
  return (text ?? "").split(" ").filter((id) => /^\d+$/.test(id)).map(Number);
}
