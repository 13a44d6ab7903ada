// A list that arrives page by page: each page says where the next one begins.

/** @typedef {import("./api.js").Item} Item */

export const FIRST = 60; // items of the first page, more than a screen shows
export const FURTHER = 120;
export const MOST = 500; // items per request; the service allows no more

/**
 * @template {{ items: Item[], next: string | null }} Page
 */
export class Feed {
  #request;
  #signal;
  /** @type {string | null} */
  #cursor = null;
  isComplete = false;

  /**
   * @param {(cursor: string | null, k: number, signal: AbortSignal) => Promise<Page>} request
   * @param {AbortSignal} signal
   */
  constructor(request, signal) {
    this.#request = request;
    this.#signal = signal;
  }

  // The next page, or null if there is none.
  /** @param {number} k @returns {Promise<Page | null>} */
  async next(k) {
    if (this.isComplete) return null;
    const page = await this.#request(this.#cursor, k, this.#signal);
    if (this.#signal.aborted) return null;
    this.#cursor = page.next;
    this.isComplete = !page.next;
    return page;
  }
}
