// Pictures in justified rows below headings, as many as there are; the keyboard moves by rows and columns.

import { make } from "./element.js";
import { watchLongPresses } from "./press.js";
import { inNextRow, middleOf, nearestInRow } from "./rows.js";
import { markSelected } from "./tile.js";
import { TileGroup } from "./tile_group.js";

/**
 * @typedef {import("./api.js").Item} Item
 * @typedef {import("./selection.js").Selection} Selection
 *
 * @typedef {object} GridOptions
 * @property {string} index
 * @property {Selection} selection
 * @property {string[]} titles of the groups that come first, whether or not they get pictures
 * @property {(item: Item) => string} titleOf the heading above a picture, or ""
 * @property {(id: number) => void} onOpen
 * @property {() => void} onNearEnd the end of the pictures is about to be seen
 */

const MARGIN = 1; // heights of the window above and below it in which pictures have elements
const GAP = 6;
const HEADER = 84; // pixels below the top of the window that the header covers

export class Grid {
  element = make("div", { className: "grid" });
  #options;
  /** @type {Map<string, TileGroup>} */
  #groups = new Map();
  /** @type {Map<number, TileGroup>} the group of each picture */
  #known = new Map();
  /** @type {number | null} the picture that the Tab key goes to */
  #active = null;
  /** @type {number | null} where a range begins that is selected with the shift key */
  #anchor = null;
  #width = 0;
  #frame = 0;
  #resizes = new ResizeObserver(() => this.#onResize());
  #onScroll = () => this.#schedule();
  #onSelected = () => this.#showSelected();

  /** @param {GridOptions} options */
  constructor(options) {
    this.#options = options;
    for (const title of options.titles) this.#group(title);
    this.element.addEventListener("click", (event) => this.#onClick(event));
    this.element.addEventListener("focusin", (event) => this.#activate(idOf(event.target)));
    watchLongPresses(this.element, (target) => this.#toggle(idOf(target)));
    addEventListener("scroll", this.#onScroll, { passive: true });
    options.selection.addEventListener("change", this.#onSelected);
    this.#resizes.observe(this.element);
  }

  close() {
    this.#resizes.disconnect();
    removeEventListener("scroll", this.#onScroll);
    this.#options.selection.removeEventListener("change", this.#onSelected);
    cancelAnimationFrame(this.#frame);
  }

  get items() {
    return [...this.#groups.values()].flatMap((group) => group.items);
  }

  /** @param {number} id */
  has(id) {
    return this.#known.has(id);
  }

  /** @param {Item[]} items */
  append(items) {
    for (const item of items) {
      if (this.#known.has(item.id)) continue; // the index has changed between two requests
      const group = this.#group(this.#options.titleOf(item));
      group.items.push(item);
      this.#known.set(item.id, group);
    }
    this.#layOut();
  }

  /** @param {number[]} ids */
  remove(ids) {
    for (const id of ids) this.#known.delete(id);
    for (const group of this.#groups.values()) group.remove(new Set(ids));
    if (this.#active !== null && !this.#known.has(this.#active)) this.#active = null;
    this.#layOut();
  }

  // Move the focus to a picture, and scroll as far as needed.
  /** @param {number | undefined} id */
  focus(id) {
    if (id === undefined || !this.#known.has(id)) return;
    this.#scrollTo(id, false);
    this.render();
    this.#button(id)?.focus({ preventScroll: true });
  }

  focusFirst() {
    this.focus(this.items[0]?.id);
  }

  // Scroll to a picture that was seen before.
  /** @param {number} id */
  reveal(id) {
    if (this.#known.has(id)) this.#scrollTo(id, true);
    this.render();
  }

  // The first picture that is visible below the header, to return to later.
  firstVisible() {
    for (const group of this.#groups.values()) {
      const { top, bottom } = group.list.getBoundingClientRect();
      if (bottom <= HEADER) continue;
      const position = group.boxes.findIndex((box) => top + box.top + box.height / 2 > HEADER);
      if (position >= 0) return group.items[position].id;
    }
    return null;
  }

  // The picture that an arrow key leads to from another one; undefined if there is none.
  /** @param {number} id @param {string} key */
  neighbour(id, key) {
    const items = this.items;
    const position = items.findIndex((item) => item.id === id);
    if (key === "Home") return items[0]?.id;
    if (key === "End") return items.at(-1)?.id;
    if (key === "ArrowLeft") return items[position - 1]?.id;
    if (key === "ArrowRight") return items[position + 1]?.id;
    return key === "ArrowUp" || key === "ArrowDown" ? this.#inNextRow(id, key === "ArrowDown" ? 1 : -1) : undefined;
  }

  /** @param {number} id @param {boolean} isRange whether to select everything from the picture selected last */
  toggle(id, isRange = false) {
    const { selection, index } = this.#options;
    const items = this.items;
    const end = items.findIndex((item) => item.id === id);
    const start = isRange && this.#anchor !== null ? items.findIndex((item) => item.id === this.#anchor) : -1;
    this.#anchor = id;
    if (start < 0) return selection.set(index, [items[end]], !selection.has(index, id));
    selection.set(index, items.slice(Math.min(start, end), Math.max(start, end) + 1), true);
  }

  // Lay out anew, for instance once the grid has become part of the page.
  refresh() {
    this.#layOut();
  }

  render() {
    const { innerHeight } = window;
    const bottom = this.element.getBoundingClientRect().bottom;
    const focused = idOf(document.activeElement); // stays in the document, and so keeps the focus
    for (const group of this.#groups.values()) {
      group.show(-MARGIN * innerHeight, (1 + MARGIN) * innerHeight, focused);
    }
    if (this.#active === null || !this.#button(this.#active)) this.#active = this.firstVisible();
    if (this.#active !== null) this.#button(this.#active)?.setAttribute("tabindex", "0");
    if (bottom < (2 + MARGIN) * innerHeight) this.#options.onNearEnd();
  }

  /** @param {number | null} id */
  #toggle(id) {
    if (id !== null) this.toggle(id);
  }

  /** @param {string} title */
  #group(title) {
    const known = this.#groups.get(title);
    if (known) return known;
    const { index, selection } = this.#options;
    const group = new TileGroup(title, index, (id) => selection.has(index, id));
    this.#groups.set(title, group);
    this.element.append(group.element);
    return group;
  }

  /** @param {number} id @param {1 | -1} step */
  #inNextRow(id, step) {
    const group = this.#known.get(id);
    if (!group) return undefined;
    const position = group.items.findIndex((item) => item.id === id);
    const found = inNextRow(group.boxes, position, step);
    if (found !== undefined) return group.items[inRow(group, found, group.boxes[position])]?.id;
    const groups = [...this.#groups.values()].filter(({ items }) => items.length);
    const next = groups[groups.indexOf(group) + step];
    if (!next) return undefined;
    return next.items[inRow(next, step > 0 ? 0 : next.items.length - 1, group.boxes[position])].id;
  }

  /** @param {number} id @param {boolean} isToTop */
  #scrollTo(id, isToTop) {
    const group = this.#known.get(id);
    if (!group) return;
    const box = group.boxes[group.items.findIndex((item) => item.id === id)];
    const top = group.list.getBoundingClientRect().top + box.top;
    if (isToTop || top < HEADER) scrollBy(0, top - HEADER - 40); // the heading above stays visible
    else if (top + box.height > innerHeight - GAP) scrollBy(0, top + box.height - innerHeight + 2 * GAP);
  }

  /** @param {number} id */
  #button(id) {
    return this.#known.get(id)?.tile(id)?.querySelector("button");
  }

  /** @param {number | null} id */
  #activate(id) {
    if (id === null || id === this.#active) return;
    if (this.#active !== null) this.#button(this.#active)?.setAttribute("tabindex", "-1");
    this.#active = id;
    this.#button(id)?.setAttribute("tabindex", "0");
  }

  #schedule() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.render());
  }

  #onResize() {
    if (this.element.clientWidth === this.#width) return;
    const seen = this.#width && scrollY > 0 ? this.firstVisible() : null;
    this.#layOut();
    if (seen !== null) this.reveal(seen);
  }

  #layOut() {
    this.#width = this.element.clientWidth;
    if (!this.#width) return;
    const height = this.#width < 520 ? 118 : this.#width < 900 ? 165 : 205;
    for (const group of this.#groups.values()) {
      group.layOut({ width: this.#width, height, gap: GAP });
      group.element.hidden = !group.items.length;
    }
    this.render();
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const id = idOf(event.target);
    if (id === null || !(event.target instanceof Element)) return;
    const { selection } = this.#options;
    const isChecking = event.target.closest(".check") || event.ctrlKey || event.metaKey || event.shiftKey;
    const isSelecting = selection.size > 0 && selection.index === this.#options.index && event.detail > 0;
    if (isChecking || isSelecting) this.toggle(id, event.shiftKey); // Enter, which is no click, still opens
    else this.#options.onOpen(id);
  }

  #showSelected() {
    const { selection, index } = this.#options;
    for (const tile of this.element.querySelectorAll(".tile")) {
      if (tile instanceof HTMLElement) markSelected(tile, selection.has(index, Number(tile.dataset.id)));
    }
  }
}

/** @param {TileGroup} group @param {number} position @param {import("./rows.js").Box} from */
function inRow(group, position, from) {
  return nearestInRow(group.boxes, position, middleOf(from));
}

// The id of the picture that an element belongs to.
/** @param {EventTarget | null} target */
export function idOf(target) {
  const tile = target instanceof Element ? target.closest(".tile") : null;
  return tile instanceof HTMLElement && tile.dataset.id ? Number(tile.dataset.id) : null;
}
