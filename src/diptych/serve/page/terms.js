// What a search starts from in addition to its text (pictures, a folder, an album), each with a button that removes it.

import { imageUrl } from "./api.js";
import { hidden, make, picture } from "./element.js";
import { icon } from "./icons.js";
import { lastPart } from "./names.js";

/** @typedef {import("./query.js").Query} Query */

export class Terms {
  #element;
  #onChange;
  #albumName;
  /** @type {string | null} the address of the uploaded picture */
  #address = null;

  /**
   * @param {HTMLElement} element @param {(change: Partial<Query>) => void} onChange
   * @param {(id: number) => string} albumName
   */
  constructor(element, onChange, albumName) {
    this.#element = element;
    this.#onChange = onChange;
    this.#albumName = albumName;
  }

  /** @param {Query} query */
  show(query) {
    if (this.#address) URL.revokeObjectURL(this.#address);
    this.#address = query.picture && URL.createObjectURL(query.picture);
    const { like, more, less, filters, index } = query;
    const items = [
      this.#address && this.#picture(this.#address, query.picture?.name ?? "", { picture: null }),
      like && this.#picture(imageUrl(like.id, like.index, "thumbnail"), "More like this", { like: null }),
      ...more.map((id) => this.#example("More like", id, index, { more: more.filter((other) => other !== id) })),
      ...less.map((id) => this.#example("Less like", id, index, { less: less.filter((other) => other !== id) })),
      filters.folder && this.#chip(`In ${lastPart(filters.folder)}`, { filters: { ...filters, folder: "" } }),
      filters.album && this.#chip(`In ${this.#albumName(Number(filters.album))}`, { filters: { ...filters, album: "" } }),
    ].filter((item) => item instanceof HTMLElement);
    this.#element.hidden = !items.length;
    this.#element.replaceChildren(...items);
  }

  /** @param {string} url @param {string} name @param {Partial<Query>} without */
  #picture(url, name, without) {
    const image = make("img", { alt: "The picture to search with", src: url });
    image.addEventListener("error", () => image.remove()); // some formats can only be read by the server
    return this.#chip(name, without, image, "start");
  }

  /** @param {string} sign @param {number} id @param {string} index @param {Partial<Query>} without */
  #example(sign, id, index, without) {
    const isMore = sign === "More like";
    return this.#chip(sign, without, picture(imageUrl(id, index, "thumbnail"), "a picture"), isMore ? "more" : "less");
  }

  /** @param {string} name @param {Partial<Query>} without @param {HTMLElement} [image] */
  #chip(name, without, image, kind = "") {
    const remove = make(
      "button",
      { type: "button", className: "sign", title: "Remove", onclick: () => this.#onChange(without) },
      icon("close"),
      hidden(`Remove: ${name}`),
    );
    return make("li", { className: `term ${kind}` }, image ?? null, make("span", { dir: "auto", textContent: name }), remove);
  }
}
