// Pictures below one heading, in justified rows; only those near the visible part of the window have elements.

import { make } from "./element.js";
import { firstBelow, heightOf, justify } from "./rows.js";
import { makeTile, placeTile } from "./tile.js";

/**
 * @typedef {import("./api.js").Item} Item
 * @typedef {{ width: number, height: number, gap: number }} Room
 */

export class TileGroup {
  /** @type {Item[]} */
  items = [];
  /** @type {import("./rows.js").Box[]} */
  boxes = [];
  list;
  element;
  #index;
  #isSelected;
  /** @type {Map<number, HTMLElement>} */
  #tiles = new Map();

  /** @param {string} title @param {string} index @param {(id: number) => boolean} isSelected */
  constructor(title, index, isSelected) {
    this.#index = index;
    this.#isSelected = isSelected;
    this.list = make("ol", { className: "tiles", role: "list", "aria-label": title || "Pictures" });
    this.element = make("section", { className: "group" }, title ? make("h3", { textContent: title }) : null, this.list);
  }

  // Where every picture is, for the current pictures and width.
  /** @param {Room} room */
  layOut(room) {
    this.boxes = justify(this.items, room);
    this.list.style.setProperty("height", `${heightOf(this.boxes)}px`);
    for (const tile of this.#tiles.values()) {
      placeTile(tile, this.boxes[Number(tile.dataset.position)]);
      tile.setAttribute("aria-setsize", String(this.items.length));
    }
  }

  /** @param {Set<number>} ids */
  remove(ids) {
    this.items = this.items.filter(({ id }) => !ids.has(id));
    this.#tiles.clear(); // their positions have changed
    this.list.replaceChildren();
  }

  // Give elements to the pictures between two heights of the window, and to one that must stay.
  /** @param {number} above @param {number} below @param {number | null} kept */
  show(above, below, kept) {
    const { top } = this.list.getBoundingClientRect();
    const first = firstBelow(this.boxes, above - top);
    /** @type {Item[]} */
    const shown = [];
    for (let position = first; position < this.items.length && this.boxes[position].top < below - top; position += 1) {
      shown.push(this.items[position]);
    }
    const ids = new Set(shown.map(({ id }) => id));
    for (const [id, tile] of this.#tiles) {
      if (ids.has(id) || id === kept) continue;
      tile.remove();
      this.#tiles.delete(id);
    }
    shown.forEach((item, number) => this.#insert(item, first + number));
  }

  /** @param {number} id */
  tile(id) {
    return this.#tiles.get(id);
  }

  /** @param {Item} item @param {number} position */
  #insert(item, position) {
    if (this.#tiles.has(item.id)) return;
    const tile = makeTile(item, this.#index, this.#isSelected(item.id));
    tile.setAttribute("aria-setsize", String(this.items.length));
    tile.setAttribute("aria-posinset", String(position + 1));
    tile.dataset.position = String(position);
    placeTile(tile, this.boxes[position]);
    const next = [...this.list.children].find((other) => Number(/** @type {HTMLElement} */ (other).dataset.position) > position);
    this.list.insertBefore(tile, next ?? null); // screen readers read elements in their order
    this.#tiles.set(item.id, tile);
  }
}
