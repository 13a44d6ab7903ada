// A query, and its URL, so that queries can be shared and revisited.
// An uploaded picture has no URL; it is remembered while the page is open.

import { FILTER_NAMES } from "./api.js";

/**
 * @typedef {import("./api.js").Filters} Filters
 * @typedef {import("./api.js").Kind} Kind
 *
 * @typedef {object} Query
 * @property {string} text
 * @property {{ id: number, index: string } | null} like an entry to search with
 * @property {File | null} picture a picture to search with
 * @property {Kind} to
 * @property {string} index
 * @property {string} beside another index to compare with, or ""
 * @property {Filters} filters
 */

/** @type {Filters} */
export const NO_FILTERS = Object.freeze({ folder: "", since: "", until: "", split: "", columns: Object.freeze({}) });

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
    like: /^\d+$/.test(like) ? { id: Number(like), index: parameters.get("of") ?? index } : null,
    picture: null,
    to: parameters.get("to") === "text" ? "text" : "image",
    index,
    beside: parameters.get("beside") ?? "",
    filters,
  };
}

/** @param {Query} query */
export function toUrl({ text, like, to, index, beside, filters }) {
  const parameters = new URLSearchParams();
  if (text.trim()) parameters.set("q", text);
  if (like) {
    parameters.set("like", String(like.id));
    parameters.set("of", like.index);
  }
  if (to === "text") parameters.set("to", to);
  if (index) parameters.set("index", index);
  if (beside) parameters.set("beside", beside);
  for (const name of FILTER_NAMES) if (filters[name]) parameters.set(name, filters[name]);
  for (const [column, value] of Object.entries(filters.columns)) parameters.append("where", `${column}=${value}`);
  return String(parameters) ? `?${parameters}` : "./";
}

/** @param {Query} query */
export function isEmpty({ text, like, picture }) {
  return !text.trim() && !like && !picture;
}
