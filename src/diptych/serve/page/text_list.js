// A list of texts that were found, each a button; the arrow keys move between them.

import { imageUrl } from "./api.js";
import { hidden, make, picture } from "./element.js";
import { fits, fitWord, nameOf } from "./names.js";

/** @typedef {import("./api.js").Item} Item */

export class TextList {
  element = make("div", { className: "texts" });
  /** @type {Item[]} */
  items = [];
  /** @type {Map<number, HTMLButtonElement>} */
  #buttons = new Map();
  #index;
  #onOpen;
  #clear = make("ol", { role: "list", "aria-label": "Captions" });
  #lesser = make("ol", { role: "list", "aria-label": "Less likely captions" });
  #heading = make("h3", { textContent: "Less likely", hidden: true });
  #end = make("div", { className: "end" });
  #watch;

  /** @param {string} index @param {(id: number) => void} onOpen @param {() => void} onNearEnd */
  constructor(index, onOpen, onNearEnd) {
    this.#index = index;
    this.#onOpen = onOpen;
    this.element.append(this.#clear, this.#heading, this.#lesser, this.#end);
    const isNear = (/** @type {IntersectionObserverEntry[]} */ seen) => seen.at(-1)?.isIntersecting && onNearEnd();
    this.#watch = new IntersectionObserver(isNear, { rootMargin: "1000px" });
  }

  close() {
    this.#watch.disconnect();
  }

  refresh() {}

  remove() {}

  firstVisible() {
    return null;
  }

  /** @param {number} id */
  has(id) {
    return this.#buttons.has(id);
  }

  /** @param {Item[]} items */
  append(items) {
    for (const item of items) {
      if (this.has(item.id)) continue;
      const button = this.#button(item);
      this.#buttons.set(item.id, button);
      (fits(item) ? this.#clear : this.#lesser).append(make("li", {}, button));
    }
    this.items = [...this.items, ...items].sort((one, other) => Number(fits(other)) - Number(fits(one)));
    this.#heading.hidden = !this.#lesser.children.length;
    this.#watch.unobserve(this.#end); // observing again reports whether the end is still near
    this.#watch.observe(this.#end);
  }

  /** @param {number | undefined} id */
  focus(id) {
    if (id !== undefined) this.#buttons.get(id)?.focus();
  }

  focusFirst() {
    this.focus(this.items[0]?.id);
  }

  /** @param {number} id */
  reveal(id) {
    this.#buttons.get(id)?.scrollIntoView({ block: "center" });
  }

  /** @param {number} id @param {string} key */
  neighbour(id, key) {
    const position = this.items.findIndex((item) => item.id === id);
    if (key === "Home") return this.items[0]?.id;
    if (key === "End") return this.items.at(-1)?.id;
    if (key === "ArrowUp" || key === "ArrowLeft") return this.items[position - 1]?.id;
    return key === "ArrowDown" || key === "ArrowRight" ? this.items[position + 1]?.id : undefined;
  }

  /** @param {Item} item */
  #button(item) {
    const shown = item.image === null ? null : picture(imageUrl(item.image, this.#index, "thumbnail"));
    const near = item.near?.length ?? 0;
    const fit = fitWord(item.fit);
    const button = make(
      "button",
      { type: "button", className: "hit", onclick: () => this.#onOpen(item.id) },
      shown && make("span", { className: "thumb" }, shown),
      make("span", { className: "caption", dir: "auto", textContent: nameOf(item) }),
      near ? make("span", { className: "badge near", textContent: `+${near} similar` }) : null,
      fit && hidden(", "),
      fit && make("span", { className: "fit", textContent: fit }),
    );
    button.dataset.id = String(item.id);
    return button;
  }
}
