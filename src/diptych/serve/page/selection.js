// The pictures of one index that are selected; tells listeners ("change") when they change.

/** @typedef {import("./api.js").Item} Item */

export class Selection extends EventTarget {
  index = "";
  /** @type {Map<number, Item>} */
  #items = new Map();

  get size() {
    return this.#items.size;
  }

  get ids() {
    return [...this.#items.keys()];
  }

  /** @param {string} index @param {number} id */
  has(index, id) {
    return index === this.index && this.#items.has(id);
  }

  // Select pictures or take them out of the selection; a selection of another index ends.
  /** @param {string} index @param {Item[]} items @param {boolean} isSelected */
  set(index, items, isSelected) {
    if (index !== this.index) this.#items.clear();
    this.index = index;
    for (const item of items) {
      if (isSelected) this.#items.set(item.id, item);
      else this.#items.delete(item.id);
    }
    this.dispatchEvent(new Event("change"));
  }

  clear() {
    this.set(this.index, [...this.#items.values()], false);
  }
}
