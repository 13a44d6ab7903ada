// Requests; every failure becomes a Problem, whose message is a sentence for people.

export const NO_RESPONSE = "The server is not responding. Is “diptych serve” still running?";

export class Problem extends Error {
  /** @param {string} message @param {number} [status] of the response, or 0 if there is none */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

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

/** @param {string} url @param {RequestInit} [options] @returns {Promise<any>} */
export async function requestJson(url, options) {
  const response = await request(url, options);
  const body = await response.json().catch(() => null);
  if (body) return body;
  throw new Problem(unreadable(response.status), response.status);
}

// A request that changes something, with its body as JSON; null if the response has no body.
/** @param {string} method @param {string} url @param {unknown} [body] @returns {Promise<any>} */
export async function send(method, url, body) {
  const response = await request(url, jsonBody(method, body));
  return response.json().catch(() => null);
}

/** @param {string} url @param {RequestInit} [options] */
export async function requestBlob(url, options) {
  return (await request(url, options)).blob();
}

/** @param {string} method @param {unknown} [body] @returns {RequestInit} */
function jsonBody(method, body) {
  if (body === undefined) return { method };
  return { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}

// Why an image cannot be shown, which an <img> element does not say.
/** @param {string} url */
export async function whyNotShown(url) {
  try {
    await request(url);
    return "This picture cannot be displayed.";
  } catch (problem) {
    return messageOf(problem);
  }
}

/** @param {unknown} problem */
export function messageOf(problem) {
  return problem instanceof Error ? problem.message : String(problem);
}

/** @param {string} url @param {RequestInit} [options] */
async function request(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(NO_RESPONSE);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Problem(toSentence(body) ?? unreadable(response.status), response.status);
}

/** @param {number} status */
function unreadable(status) {
  return `The response of the server could not be read (status ${status}).`;
}

// The error of a response with a capital letter, unless it begins with the name of a file.
/** @param {{ error?: string } | null} body */
export function toSentence(body) {
  const error = body?.error;
  return error && !/^[^:]*[./][^:]*:/.test(error) ? error[0].toUpperCase() + error.slice(1) : error;
}
