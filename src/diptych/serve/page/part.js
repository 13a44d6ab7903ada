// A list on the page with the feed that fills it, page by page, as the user scrolls.

import { FURTHER, Feed, MOST } from "./feed.js";
import { make, problemBox } from "./element.js";
import { messageOf } from "./http.js";
import { fits } from "./names.js";

/**
 * @typedef {import("./api.js").Item} Item
 * @typedef {import("./grid.js").Grid} Grid
 * @typedef {import("./text_list.js").TextList} TextList
 * @typedef {{ items: Item[], next: string | null, answer?: import("./api.js").Answer }} Page
 */

const FURTHEST = 10_000; // items to load to return to a place, or to select all; the service takes no more at once

export class Part {
  element = make("div", { className: "part" });
  #foot = make("div", { className: "foot" });
  #feed;
  #onChange;
  /** @type {Promise<boolean> | null} */
  #loading = null;
  list;

  /**
   * @param {Grid | TextList} list
   * @param {Feed<Page>} feed
   * @param {() => void} onChange more items have been loaded
   */
  constructor(list, feed, onChange) {
    this.list = list;
    this.#feed = feed;
    this.#onChange = onChange;
    this.element.append(list.element, this.#foot);
  }

  get isComplete() {
    return this.#feed.isComplete;
  }

  // Load the next page, unless one is on its way already; false if there is none.
  /** @returns {Promise<boolean>} */
  more(k = FURTHER) {
    this.#loading ??= this.#load(k).finally(() => (this.#loading = null));
    return this.#loading;
  }

  // A problem is shown below the list and can be retried.
  /** @param {number} k */
  async #load(k) {
    try {
      const page = await this.#feed.next(k);
      if (!page) return false;
      this.#foot.replaceChildren();
      this.list.append(page.items);
      this.#onChange();
      return true;
    } catch (problem) {
      if (problem instanceof DOMException && problem.name === "AbortError") return false;
      const retry = make("button", { type: "button", textContent: "Try again", onclick: () => this.more(k) });
      this.#foot.replaceChildren(problemBox(messageOf(problem), retry));
      return false;
    }
  }

  // Load until an item is there; false if it is not among the items that can be reached.
  /** @param {number} id */
  async find(id) {
    await this.#loadUntil(() => this.list.has(id));
    return this.list.has(id);
  }

  // Everything that fits, or everything that has been loaded if nothing does.
  async all() {
    await this.#loadUntil(() => !this.list.items.every(fits)); // the less likely ones come last
    const fitting = this.list.items.filter(fits);
    return (fitting.length ? fitting : this.list.items).slice(0, FURTHEST);
  }

  /** @param {() => boolean} isDone */
  async #loadUntil(isDone) {
    while (!isDone() && !this.isComplete && this.list.items.length < FURTHEST) {
      if (!(await this.more(MOST))) return;
    }
  }
}
