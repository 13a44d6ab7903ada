// A long list of rows of equal height, of which only those in view have elements.

import { make } from "./element.js";

const ROW = 44; // pixels
const MARGIN = 5; // rows above and below the view

/** @template Item */
export class WindowedList {
  #rows = make("ul", { role: "list" });
  element = make("div", { className: "windowed" }, this.#rows);
  #makeRow;
  /** @type {Item[]} */
  #items = [];

  /** @param {(item: Item) => HTMLElement} makeRow */
  constructor(makeRow) {
    this.#makeRow = makeRow;
    this.element.addEventListener("scroll", () => this.#render(), { passive: true });
  }

  /** @param {Item[]} items */
  show(items) {
    this.#items = items;
    this.#rows.style.setProperty("height", `${ROW * items.length}px`);
    this.#rows.replaceChildren();
    this.#render();
  }

  #render() {
    const height = this.element.clientHeight || 400; // it may not be shown yet
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MARGIN);
    const end = Math.min(this.#items.length, Math.ceil((this.element.scrollTop + height) / ROW) + MARGIN);
    const rows = /** @type {HTMLElement[]} */ ([...this.#rows.children]);
    const present = new Set(rows.map((row) => Number(row.dataset.position)));
    for (const row of rows) {
      const position = Number(row.dataset.position);
      if (position < first || position >= end) row.remove();
    }
    for (let position = first; position < end; position += 1) {
      if (!present.has(position)) this.#insert(position);
    }
  }

  /** @param {number} position */
  #insert(position) {
    const row = make("li", {}, this.#makeRow(this.#items[position]));
    row.dataset.position = String(position);
    row.setAttribute("aria-setsize", String(this.#items.length));
    row.setAttribute("aria-posinset", String(position + 1));
    row.style.setProperty("top", `${ROW * position}px`);
    const later = [...this.#rows.children].find((other) => Number(/** @type {HTMLElement} */ (other).dataset.position) > position);
    this.#rows.insertBefore(row, later ?? null);
  }
}
