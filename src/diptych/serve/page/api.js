// Requests to the service; every failure becomes a Problem, whose message is a sentence for people.

/**
 * @typedef {"image" | "text"} Kind
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
 * @typedef {object} Hit
 * @property {number} id
 * @property {Kind} kind
 * @property {string} key
 * @property {number | null} image the id of the image to show
 * @property {string | null} text
 * @property {string | null} split
 * @property {string | null} taken
 * @property {number} width
 * @property {number} height
 * @property {Record<string, string>} columns
 * @property {number} score
 * @property {boolean} stands_out
 * @property {number[]} near the ids of near-duplicates
 * @property {string[]} captions
 *
 * @typedef {object} Answer
 * @property {Kind} to
 * @property {boolean} found
 * @property {string | null} message
 * @property {number} searched
 * @property {number} milliseconds
 * @property {Hit[]} hits
 *
 * @typedef {{ word: string, importance: number | null }} Word importance is null if the model does not know the word
 * @typedef {{ box: number[], score: number }} Place left, top, right, bottom, each from 0 to 1
 * @typedef {{ phrase: string, places: Place[] }} Phrase
 *
 * @typedef {object} Filters
 * @property {string} folder
 * @property {string} since
 * @property {string} until
 * @property {string} split
 * @property {Record<string, string>} columns
 *
 * @typedef {{ index: string, to: Kind, k: number, filters: Filters }} Options
 */

export const MAX_UPLOAD = 20 * 1024 * 1024;
export const FILTER_NAMES = /** @type {const} */ (["folder", "since", "until", "split"]);

const NO_RESPONSE = "The server is not responding. Is “diptych serve” still running?";

export class Problem extends Error {}

// Aborts the previous request when the next one starts, so that only the latest can be answered.
export class LatestRequest {
  #controller = new AbortController();

  start() {
    this.#controller.abort();
    this.#controller = new AbortController();
    return this.#controller.signal;
  }

  stop() {
    this.#controller.abort();
  }
}

/** @returns {Promise<Index[]>} */
export async function indexes() {
  return (await requestJson("indexes")).indexes;
}

/** @param {string} text @param {Options} options @param {AbortSignal} signal @returns {Promise<Answer>} */
export function search(text, options, signal) {
  const parameters = toParameters(options);
  parameters.set("text", text);
  return requestJson(`search?${parameters}`, { signal });
}

/** @param {number} id @param {Options} options @param {AbortSignal} signal @returns {Promise<Answer>} */
export function similar(id, options, signal) {
  const parameters = toParameters(options);
  parameters.set("id", String(id));
  return requestJson(`similar?${parameters}`, { signal });
}

/** @param {Blob} picture @param {Options} options @param {AbortSignal} signal @returns {Promise<Answer>} */
export function similarTo(picture, options, signal) {
  const headers = { "Content-Type": picture.type || "application/octet-stream" };
  return requestJson(`similar?${toParameters(options)}`, { method: "POST", body: picture, headers, signal });
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

// The bytes of an image of one index, to search another index with.
/** @param {number} id @param {string} index @param {AbortSignal} signal */
export async function imageBytes(id, index, signal) {
  const response = await fetch(imageUrl(id, index, "large"), { signal });
  if (!response.ok) throw new Problem(await errorOf(response));
  return response.blob();
}

// Why an image cannot be shown, which an <img> element does not say.
/** @param {string} url */
export async function whyNotShown(url) {
  try {
    const response = await fetch(url);
    return response.ok ? "This picture cannot be displayed." : await errorOf(response);
  } catch {
    return NO_RESPONSE;
  }
}

/** @param {string} url @param {RequestInit} [options] @returns {Promise<any>} */
async function requestJson(url, options) {
  let response;
  let body = null;
  try {
    response = await fetch(url, options);
    body = await response.json();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    if (!response) throw new Problem(NO_RESPONSE);
  }
  if (response.ok && body) return body;
  throw new Problem(toSentence(body) ?? `The response of the server could not be read (status ${response.status}).`);
}

/** @param {Options} options */
function toParameters({ index, to, k, filters }) {
  const parameters = new URLSearchParams({ index, to, k: String(k) });
  for (const name of FILTER_NAMES) if (filters[name]) parameters.set(name, filters[name]);
  for (const [column, value] of Object.entries(filters.columns)) parameters.append("where", `${column}=${value}`);
  return parameters;
}

/** @param {Response} response */
async function errorOf(response) {
  const body = await response.json().catch(() => null);
  return toSentence(body) ?? "This picture is not available.";
}

// The error of a response with a capital letter, unless it begins with the name of a file.
/** @param {{ error?: string } | null} body */
function toSentence(body) {
  const error = body?.error;
  return error && !/^[^:]*[./][^:]*:/.test(error) ? error[0].toUpperCase() + error.slice(1) : error;
}
