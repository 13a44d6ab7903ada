// What the page asks the service about its indexes: searches, pictures by day, folders, and details.

import { requestBlob, requestJson } from "./http.js";

/**
 * @typedef {"image" | "text"} Kind
 * @typedef {"auto" | "meaning" | "words" | "both"} Mode
 * @typedef {"strong" | "likely" | "possible" | "weak"} Fit
 *
 * @typedef {object} Index what GET /indexes says about an index
 * @property {string} name
 * @property {number} images
 * @property {number} texts
 * @property {string} source_name
 * @property {boolean} localizes
 * @property {boolean} explains
 * @property {string[]} splits
 * @property {string[]} folders
 * @property {string[]} columns
 *
 * @typedef {object} Entry a picture or a text of an index
 * @property {number} id
 * @property {Kind} kind
 * @property {string} key
 * @property {number | null} image the id of the image to show
 * @property {string | null} text
 * @property {string | null} split
 * @property {string | null} taken
 * @property {number | null} [moment] the second of a video that the picture shows
 * @property {number} width
 * @property {number} height
 * @property {Record<string, string>} columns
 * @property {string[]} captions
 *
 * @typedef {object} Found the additional fields of a hit
 * @property {number} score
 * @property {boolean} stands_out
 * @property {Fit} fit
 * @property {number | null} probability
 * @property {number[]} near the ids of near-duplicates
 *
 * @typedef {Entry & Found} Hit
 * @typedef {Entry & Partial<Found> & { day?: string }} Item a hit, or a picture in the list by day
 *
 * @typedef {object} Answer
 * @property {Kind} to
 * @property {boolean} found
 * @property {string | null} message
 * @property {string | null} suggestion
 * @property {boolean} words_exist whether exact words would find something where meaning has found nothing
 * @property {number} searched
 * @property {number} milliseconds
 * @property {Hit[]} hits
 * @property {string | null} next where to continue
 *
 * @typedef {object} Details what GET /entry says about a picture
 * @property {string} key
 * @property {string} folder
 * @property {number} width
 * @property {number} height
 * @property {number | null} bytes
 * @property {string | null} day
 * @property {"taken" | "file" | null} day_source
 * @property {string | null} camera
 * @property {number | null} latitude
 * @property {number | null} longitude
 * @property {number | null} moment seconds in a video
 * @property {string | null} words in the picture
 * @property {string[]} captions
 * @property {boolean} favourite
 * @property {{ id: number, name: string }[]} albums
 * @property {boolean} has_file whether its file is there
 * @property {string | null} path where the file is, if the browser is on the same computer
 *
 * @typedef {{ path: string, images: number, has_folders: boolean }} Folder
 * @typedef {{ word: string, importance: number | null }} Word importance is null if the model does not know the word
 * @typedef {{ box: number[], score: number }} Place left, top, right, bottom, each from 0 to 1
 * @typedef {{ phrase: string, places: Place[] }} Phrase
 *
 * @typedef {object} Filters
 * @property {string} folder
 * @property {string} album the id of an album
 * @property {string} since
 * @property {string} until
 * @property {string} split
 * @property {Record<string, string>} columns
 *
 * @typedef {object} Options
 * @property {string} index
 * @property {Kind} to
 * @property {number} k
 * @property {string | null} cursor
 * @property {Filters} filters
 */

export const MAX_UPLOAD = 20 * 1024 * 1024;
export const FILTER_NAMES = /** @type {const} */ (["folder", "album", "since", "until", "split"]);

/** @returns {Promise<Index[]>} */
export async function indexes() {
  return (await requestJson("indexes")).indexes;
}

/**
 * @param {{ text: string, mode: Mode, more: number[], less: number[] }} query
 * @param {Options} options @param {AbortSignal} signal @returns {Promise<Answer>}
 */
export function search({ text, mode, more, less }, options, signal) {
  const parameters = toParameters(options);
  if (text.trim()) parameters.set("text", text);
  if (mode !== "auto") parameters.set("mode", mode);
  for (const id of more) parameters.append("more", String(id));
  for (const id of less) parameters.append("less", String(id));
  return requestJson(`search?${parameters}`, { signal });
}

/** @param {number} id @param {string} text @param {Options} options @param {AbortSignal} signal @returns {Promise<Answer>} */
export function similar(id, text, options, signal) {
  const parameters = toParameters(options);
  parameters.set("id", String(id));
  if (text.trim()) parameters.set("text", text);
  return requestJson(`similar?${parameters}`, { signal });
}

/** @param {Blob} picture @param {string} text @param {Options} options @param {AbortSignal} signal @returns {Promise<Answer>} */
export function similarTo(picture, text, options, signal) {
  const parameters = toParameters(options);
  if (text.trim()) parameters.set("text", text);
  const headers = { "Content-Type": picture.type || "application/octet-stream" };
  return requestJson(`similar?${parameters}`, { method: "POST", body: picture, headers, signal });
}

/** @param {Omit<Options, "to">} options @param {AbortSignal} signal @returns {Promise<{ images: Item[], next: string | null }>} */
export function home(options, signal) {
  return requestJson(`home?${toParameters(options)}`, { signal });
}

/** @param {string} index @param {string} parent @returns {Promise<Folder[]>} */
export async function folders(index, parent) {
  return (await requestJson(`folders?${new URLSearchParams({ index, parent })}`)).folders;
}

/** @param {string} index @param {AbortSignal} signal @returns {Promise<string[]>} */
export async function examples(index, signal) {
  return (await requestJson(`examples?${new URLSearchParams({ index })}`, { signal })).examples;
}

/** @param {number} id @param {string} index @param {AbortSignal} [signal] @returns {Promise<Details>} */
export function details(id, index, signal) {
  return requestJson(`entry/${id}?${new URLSearchParams({ index })}`, { signal });
}

/**
 * @param {number} id @param {string} text @param {string} index @param {AbortSignal} signal
 * @returns {Promise<{ words: Word[] }>}
 */
export function explain(id, text, index, signal) {
  return requestJson(`explain?${new URLSearchParams({ id: String(id), text, index })}`, { signal });
}

/**
 * @param {number} id @param {string} text @param {string} index @param {AbortSignal} signal
 * @returns {Promise<{ phrases: Phrase[] }>}
 */
export function localize(id, text, index, signal) {
  return requestJson(`localize?${new URLSearchParams({ id: String(id), text, index })}`, { signal });
}

/** @param {number} id @param {string} index @param {"thumbnail" | "large"} size */
export function imageUrl(id, index, size) {
  return `image/${id}?${new URLSearchParams({ index, size })}`;
}

// The file of an entry, to download, or to open in the browser.
/** @param {number} id @param {string} index */
export function originalUrl(id, index, isInline = false) {
  return `original/${id}?${new URLSearchParams(isInline ? { index, inline: "1" } : { index })}`;
}

// The bytes of an image of one index, to search another index with.
/** @param {number} id @param {string} index @param {AbortSignal} signal */
export function imageBytes(id, index, signal) {
  return requestBlob(imageUrl(id, index, "large"), { signal });
}

/** @param {Omit<Options, "to"> & { to?: Kind }} options */
function toParameters({ index, to, k, cursor, filters }) {
  const parameters = new URLSearchParams({ index, k: String(k) });
  if (to) parameters.set("to", to);
  if (cursor) parameters.set("cursor", cursor);
  for (const name of FILTER_NAMES) if (filters[name]) parameters.set(name, filters[name]);
  for (const [column, value] of Object.entries(filters.columns)) parameters.append("where", `${column}=${value}`);
  return parameters;
}
