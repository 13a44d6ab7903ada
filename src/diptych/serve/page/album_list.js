// A list of albums with a box to filter it; it stays quick with thousands of them.

import { make } from "./element.js";
import { WindowedList } from "./windowed_list.js";

/** @typedef {import("./albums.js").Album} Album */

const FILTERED = 8; // albums from which on there is a box to filter them

export class AlbumList {
  #filter = make("input", { type: "search", placeholder: "Filter albums", "aria-label": "Filter albums", autocomplete: "off" });
  #count = make("p", { className: "hidden", role: "status" });
  #list;
  element;
  /** @type {Album[]} */
  #albums = [];

  /** @param {(album: Album) => HTMLElement} makeRow */
  constructor(makeRow) {
    this.#list = new WindowedList(makeRow);
    this.element = make("div", { className: "album-list" }, this.#filter, this.#count, this.#list.element);
    this.#filter.addEventListener("input", () => this.#show());
    this.#filter.addEventListener("change", (event) => event.stopPropagation()); // no option of the search
  }

  // What is typed into the filter, which may be the name of a new album.
  get typed() {
    return this.#filter.value.trim();
  }

  /** @param {Album[]} albums */
  show(albums, isAlwaysFiltered = false) {
    this.#albums = albums;
    this.#filter.hidden = albums.length < FILTERED && !isAlwaysFiltered;
    this.#show();
  }

  /** @param {() => void} onType */
  onType(onType) {
    this.#filter.addEventListener("input", onType);
  }

  #show() {
    const wanted = this.typed.toLowerCase();
    const shown = this.#albums.filter(({ name }) => name.toLowerCase().includes(wanted));
    this.#list.show(shown);
    if (wanted) this.#count.textContent = `${shown.length.toLocaleString("en")} of ${this.#albums.length.toLocaleString("en")} albums`;
  }
}
