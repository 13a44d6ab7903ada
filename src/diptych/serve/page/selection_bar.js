// The bar with what can be done with the selected pictures.

import { FAVOURITES } from "./albums.js";
import { count, make } from "./element.js";
import { iconButton, named } from "./icons.js";

/**
 * @typedef {object} SelectionActions
 * @property {() => void} onMore
 * @property {() => void} onLess
 */

export class SelectionBar {
  #element;
  #selection;
  #number = make("p", { role: "status" });
  #remove;
  #album = "";

  /**
   * @param {HTMLElement} element @param {import("./selection.js").Selection} selection
   * @param {import("./actions.js").Actions} actions @param {SelectionActions} callbacks
   */
  constructor(element, selection, actions, { onMore, onLess }) {
    this.#element = element;
    this.#selection = selection;
    this.#remove = iconButton("delete", "Remove from album", () =>
      actions.removeFromAlbum(Number(this.#album), selection.ids),
    );
    const exported = (/** @type {"zip" | "list"} */ form) => actions.export(selection.index, selection.ids, form);
    element.append(
      iconButton("close", "End the selection", () => selection.clear(), false),
      this.#number,
      named("more", iconButton("more", "More like these", onMore)),
      named("less", iconButton("less", "Less like these", onLess)),
      named("favourite", iconButton("heart", "Favourite", () => actions.favourite(selection.ids, true))),
      named("album", iconButton("album", "Add to album", () => actions.addToAlbum(selection.ids))),
      this.#remove,
      named("zip", iconButton("download", "Download zip", () => exported("zip"))),
      named("list", iconButton("copy", "List of files", () => exported("list"))),
    );
    selection.addEventListener("change", () => this.#show());
    this.show("");
  }

  // Show the bar for the pictures of an album, or of all if it is "".
  /** @param {string} album */
  show(album) {
    this.#album = album;
    this.#remove.hidden = !album;
    const label = this.#remove.querySelector("span");
    if (label) label.textContent = album === String(FAVOURITES) ? "Remove from favourites" : "Remove from album";
    this.#show();
  }

  #show() {
    const { size } = this.#selection;
    this.#element.hidden = !size;
    document.body.classList.toggle("selecting", size > 0);
    this.#number.textContent = size ? `${count(size, "picture")} selected` : "";
  }
}
