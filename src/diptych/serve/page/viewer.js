// A picture in a dialog: large, with what is known about it, what can be done with it, and its neighbours.

import * as api from "./api.js";
import { hidden, make, picture } from "./element.js";
import { allFacts, itemFacts } from "./facts.js";
import { LatestRequest, messageOf } from "./http.js";
import { icon } from "./icons.js";
import { fileNameOf, nameOf } from "./names.js";
import { placesButton } from "./places.js";
import { Stage } from "./stage.js";
import { viewerActions } from "./viewer_actions.js";
import { importance } from "./word_importance.js";

/**
 * @typedef {import("./query.js").Query} Query
 * @typedef {import("./part.js").Part} Part
 *
 * @typedef {object} Shown
 * @property {Part} part
 * @property {api.Item} item that is shown
 * @property {number} position of the item, which may have left the list since
 * @property {api.Index} index
 * @property {Query} query
 *
 * @typedef {object} ViewerCallbacks
 * @property {(id: number, index: string) => void} onSimilar
 * @property {(id: number, index: string, isMore: boolean) => void} onFeedback
 * @property {(where: { folder: string, album: string }) => void} onGo
 * @property {(id: number) => void} onShow another picture is shown
 * @property {(id: number) => void} onClose
 */

const AHEAD = 3; // items before the last one from which on more are loaded

export class Viewer {
  #dialog;
  #content = make("div", { className: "content" }); // what is replaced with the picture; notices stay
  #actions;
  #albums;
  #callbacks;
  #latest = new LatestRequest();
  /** @type {Shown | null} */
  #shown = null;
  /** @type {Stage | null} */
  #stage = null;

  /**
   * @param {HTMLDialogElement} dialog @param {import("./actions.js").Actions} actions
   * @param {import("./albums.js").Albums} albums @param {ViewerCallbacks} callbacks
   */
  constructor(dialog, actions, albums, callbacks) {
    this.#dialog = dialog;
    dialog.append(this.#content);
    this.#actions = actions;
    this.#albums = albums;
    this.#callbacks = callbacks;
    dialog.addEventListener("keydown", (event) => this.#onKey(event));
    dialog.addEventListener("click", (event) => event.target === dialog && this.close());
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.close();
    });
    // Browsers may close a dialog without "cancel". The event comes later: the dialog may be open again.
    dialog.addEventListener("close", () => dialog.open || this.#clear());
    albums.addEventListener("change", () => this.#loadFacts());
  }

  get isOpen() {
    return this.#dialog.open;
  }

  /** @param {Part} part @param {number} id @param {api.Index} index @param {Query} query */
  open(part, id, index, query) {
    this.#show({ part, index, query, ...itemAt(part, id) });
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  // The focus moves at once, not when the browser reports "close": until then a key could move it elsewhere.
  close() {
    if (!this.#dialog.open) return;
    this.#dialog.close();
    this.#clear();
  }

  #clear() {
    const shown = this.#shown;
    if (!shown) return;
    this.#shown = null;
    this.#stage = null;
    this.#latest.stop();
    this.#content.replaceChildren();
    shown.part.list.focus(shown.item.id); // the item that was shown last, not the one that was clicked
    this.#callbacks.onClose(shown.item.id);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.#shown) return;
    if (event.target instanceof HTMLVideoElement) return;
    const { id } = this.#shown.item;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => this.#step(-1),
      ArrowRight: () => this.#step(1),
      f: () => this.#actions.toggleFavourite(id),
      z: () => this.#stage?.zoom(),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** @param {1 | -1} step */
  #step(step) {
    if (!this.#shown) return;
    const { part, item, position } = this.#shown;
    const { items } = part.list;
    const follows = items[position] !== item; // the item has left the list, and the next one took its place
    const next = items[position + (follows && step > 0 ? 0 : step)];
    if (!next) return;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.control : undefined;
    this.#show({ ...this.#shown, ...itemAt(part, next.id) });
    this.#callbacks.onShow(next.id);
    this.#focus(focused ?? "close");
  }

  /** @param {string} control */
  #focus(control) {
    const found = this.#dialog.querySelector(`[data-control="${control}"]`) ?? this.#dialog.querySelector("button");
    if (found instanceof HTMLElement) found.focus();
  }

  /** @param {Shown} shown */
  #show(shown) {
    this.#shown = shown;
    const signal = this.#latest.start();
    const { part, item, position, index, query } = shown;
    const { items } = part.list;
    if (position >= items.length - AHEAD) part.more().then((isMore) => isMore && this.#updateBar());
    const stage = item.image === null ? null : new Stage(item, item.image, index.name);
    this.#stage = stage;
    const isExplained = stage && index.explains && query.text.trim() && query.mode !== "words";
    this.#content.replaceChildren(
      make(
        "div",
        { className: "viewer" },
        this.#bar(position, part),
        stage?.element ?? "",
        make(
          "div",
          { className: "facts" },
          make("h2", { id: "name", dir: "auto", textContent: fileNameOf(item) }),
          make("div", { className: "known" }, ...itemFacts(item)),
          stage && this.#actionRow(shown, stage, signal),
          isExplained ? importance(stage.image, index, query, signal) : null,
          stage && item.near?.length ? this.#nearDuplicates(item.near, index, stage) : null,
        ),
        make("p", { className: "hidden", role: "status" }, `${place(position, part)}: ${nameOf(item)}`),
      ),
    );
    this.#dialog.scrollTop = 0;
    this.#loadFacts();
  }

  // The details of the picture, which take the place of what came with it.
  async #loadFacts() {
    const shown = this.#shown;
    const image = this.#stage?.image;
    if (!shown || image === undefined) return;
    const { item } = shown;
    try {
      const details = await api.details(image, shown.index.name);
      if (this.#shown !== shown) return;
      this.#albums.learn(image, details.favourite);
      const onFolder = (/** @type {string} */ folder) => this.#leave(() => this.#callbacks.onGo({ folder, album: "" }));
      const onAlbum = (/** @type {number} */ id) =>
        this.#leave(() => this.#callbacks.onGo({ folder: "", album: String(id) }));
      this.#dialog.querySelector(".known")?.replaceChildren(...allFacts(item, details, { onFolder, onAlbum }));
      this.#dialog.dispatchEvent(new CustomEvent("details", { detail: details }));
    } catch (problem) {
      const note = make("p", { className: "quiet", textContent: messageOf(problem) });
      if (this.#shown === shown) this.#dialog.querySelector(".known")?.append(note);
    }
  }

  // Close, and go somewhere else.
  /** @param {() => void} go */
  #leave(go) {
    this.close();
    go();
  }

  #updateBar() {
    if (!this.#shown) return;
    const { part, position } = this.#shown;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.control : undefined;
    this.#dialog.querySelector(".steps")?.replaceWith(this.#bar(position, part));
    if (focused) this.#focus(focused);
  }

  /** @param {number} position @param {Part} part */
  #bar(position, part) {
    /** @param {string} name @param {string} label @param {import("./icons.js").Icon} sign @param {() => void} onclick */
    const control = (name, label, sign, onclick, isDisabled = false) => {
      const button = make("button", { type: "button", className: "sign", title: label, onclick }, icon(sign), hidden(label));
      button.dataset.control = name;
      if (isDisabled) button.setAttribute("aria-disabled", "true");
      return button;
    };
    const close = control("close", "Close", "close", () => this.close());
    close.autofocus = true;
    return make(
      "div",
      { className: "steps" },
      control("previous", "Previous", "previous", () => this.#step(-1), position === 0),
      make("span", { className: "quiet", textContent: place(position, part) }),
      control("next", "Next", "next", () => this.#step(1), position === part.list.items.length - 1),
      control("zoom", "Zoom", "zoom", () => this.#stage?.zoom(), !this.#stage?.isPicture),
      close,
    );
  }

  /** @param {Shown} shown @param {Stage} stage @param {AbortSignal} signal */
  #actionRow({ index, query }, stage, signal) {
    const { image } = stage;
    const feedback = (/** @type {boolean} */ isMore) =>
      this.#leave(() => this.#callbacks.onFeedback(image, index.name, isMore));
    const row = viewerActions(image, index.name, this.#dialog, this.#actions, signal, {
      onSimilar: () => this.#leave(() => this.#callbacks.onSimilar(image, index.name)),
      onMore: () => feedback(true),
      onLess: () => feedback(false),
    });
    if (index.localizes && query.text.trim()) row.append(...placesButton(index, query, stage, signal));
    return row;
  }

  /** @param {number[]} near @param {api.Index} index @param {Stage} stage */
  #nearDuplicates(near, index, stage) {
    /** @param {number} id @param {number} number */
    const item = (id, number) => {
      const shown = picture(api.imageUrl(id, index.name, "thumbnail"));
      const name = number ? `Show near-duplicate ${number}` : "Show the best match";
      const button = make("button", { type: "button", className: "thumb" }, shown, hidden(name));
      button.addEventListener("click", () => {
        const pressed = this.#dialog.querySelector("[data-control=where][aria-pressed=true]");
        if (pressed instanceof HTMLElement) pressed.click(); // removes the boxes, which belong to the other picture
        stage.show(id);
      });
      return make("li", {}, button);
    };
    return make(
      "div",
      {},
      make("h3", { textContent: "Near-duplicates" }),
      make("ul", { className: "near-duplicates", role: "list" }, ...[stage.image, ...near].map(item)),
    );
  }
}

// The place of an item, and how many there are, once that is known.
/** @param {number} position @param {Part} part */
function place(position, part) {
  const number = (position + 1).toLocaleString("en");
  return part.isComplete ? `${number} of ${part.list.items.length.toLocaleString("en")}` : number;
}

// An item of a list, and where it is.
/** @param {Part} part @param {number} id */
function itemAt(part, id) {
  const { items } = part.list;
  const position = items.findIndex((item) => item.id === id);
  return { item: items[position], position };
}
