// A hit in a dialog: its large image and details, the importance of words, places of phrases, and its neighbours.

import * as api from "./api.js";
import { formatScore, hidden, make, picture, quiet } from "./element.js";
import { nameOf } from "./hits.js";
import * as places from "./places.js";
import { wordImportance } from "./word_importance.js";

/**
 * @typedef {import("./query.js").Query} Query
 *
 * @typedef {object} Shown
 * @property {api.Hit[]} hits
 * @property {number} position of the hit that is shown
 * @property {HTMLElement[]} buttons of the hits on the page, which get the focus back
 * @property {api.Index} index
 * @property {Query} query
 */

export class Viewer {
  #dialog;
  #onSimilar;
  #latest = new api.LatestRequest();
  /** @type {Shown | null} */
  #shown = null;

  /** @param {HTMLDialogElement} dialog @param {(id: number, index: string) => void} onSimilar */
  constructor(dialog, onSimilar) {
    this.#dialog = dialog;
    this.#onSimilar = onSimilar;
    dialog.addEventListener("keydown", (event) => this.#onKey(event));
    dialog.addEventListener("click", (event) => event.target === dialog && this.close());
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.close();
    });
    // Browsers may close a dialog without "cancel". The event comes later: the dialog may be open again.
    dialog.addEventListener("close", () => dialog.open || this.#clear());
  }

  get isOpen() {
    return this.#dialog.open;
  }

  /** @type {import("./pane.js").OnOpen} */
  open(hits, position, buttons, index, query) {
    this.#show({ hits, position, buttons, index, query });
    this.#dialog.showModal();
  }

  // The focus moves at once, not when the browser reports "close": until then a key could move it elsewhere.
  close() {
    if (!this.#dialog.open) return;
    this.#dialog.close();
    this.#clear();
  }

  #clear() {
    const shown = this.#shown;
    this.#shown = null;
    this.#latest.stop();
    this.#dialog.replaceChildren();
    shown?.buttons[shown.position]?.focus(); // of the hit that was shown last, not of the one that was clicked
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#step(step);
  }

  /** @param {number} step */
  #step(step) {
    if (!this.#shown) return;
    const position = this.#shown.position + step;
    if (position < 0 || position >= this.#shown.hits.length) return;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.control : undefined;
    this.#show({ ...this.#shown, position });
    const control = this.#dialog.querySelector(`[data-control="${focused ?? "close"}"]`);
    if (control instanceof HTMLElement) control.focus();
  }

  /** @param {Shown} shown */
  #show(shown) {
    this.#shown = shown;
    const signal = this.#latest.start();
    const { hits, position, index, query } = shown;
    const hit = hits[position];
    const stage = hit.image === null ? null : new Stage(hit, hit.image, index.name);
    const about = make(
      "div",
      { className: "facts" },
      make("h2", { id: "name", dir: "auto", textContent: hit.key }),
      hit.stands_out ? null : quiet("This result does not stand out from the rest."),
      stage && this.#actions(index, query, stage, signal),
      stage && index.explains && query.text.trim() ? importance(stage.image, index, query, signal) : null,
      ...details(hit),
      stage && hit.near.length ? this.#nearDuplicates(hit, index, stage) : null,
    );
    this.#dialog.replaceChildren(
      make(
        "div",
        { className: "viewer" },
        this.#bar(position, hits.length),
        stage?.element ?? "",
        about,
        make("p", { className: "hidden", role: "status" }, `${position + 1} of ${hits.length}: ${nameOf(hit)}`),
      ),
    );
    this.#dialog.scrollTop = 0;
  }

  /** @param {number} position @param {number} total */
  #bar(position, total) {
    /** @param {string} name @param {string} label @param {string} sign @param {() => void} onclick */
    const control = (name, label, sign, onclick, isDisabled = false) => {
      const shown = make("span", { "aria-hidden": "true", textContent: sign });
      const button = make(
        "button",
        { type: "button", className: "sign", title: label, onclick },
        shown,
        hidden(label),
      );
      button.dataset.control = name;
      if (isDisabled) button.setAttribute("aria-disabled", "true");
      return button;
    };
    const close = control("close", "Close", "✕", () => this.close());
    close.autofocus = true;
    return make(
      "div",
      { className: "steps" },
      control("previous", "Previous", "←", () => this.#step(-1), position === 0),
      make("span", { className: "quiet", textContent: `${position + 1} of ${total}` }),
      control("next", "Next", "→", () => this.#step(1), position === total - 1),
      close,
    );
  }

  /** @param {api.Index} index @param {Query} query @param {Stage} stage @param {AbortSignal} signal */
  #actions(index, query, stage, signal) {
    const similar = make("button", { type: "button", textContent: "More like this" });
    similar.dataset.control = "similar";
    similar.addEventListener("click", () => {
      if (this.#shown) this.#shown.buttons = []; // they are removed with the old answer
      this.close();
      this.#onSimilar(stage.image, index.name);
    });
    const row = make("div", { className: "actions" }, similar);
    if (index.localizes && query.text.trim()) row.append(...placesButton(index, query, stage, signal));
    return row;
  }

  /** @param {api.Hit} hit @param {api.Index} index @param {Stage} stage */
  #nearDuplicates(hit, index, stage) {
    /** @param {number} id @param {number} number */
    const item = (id, number) => {
      const shown = picture(api.imageUrl(id, index.name, "thumbnail"));
      const name = number ? `Show near-duplicate ${number}` : "Show the best match";
      const button = make("button", { type: "button", className: "tile" }, shown, hidden(name));
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
      make("ul", { className: "near-duplicates", role: "list" }, ...[stage.image, ...hit.near].map(item)),
    );
  }
}

// The image in a frame of its shape: first the thumbnail, then the large image, with boxes over it.
class Stage {
  #index;
  #frame = make("div", { className: "frame" });
  #note = make("p", { className: "quiet" });
  boxes = make("div", { className: "boxes", "aria-hidden": "true" });
  element = make("figure", { className: "stage" }, this.#frame, this.#note);

  /** @param {api.Hit} hit @param {number} image @param {string} index */
  constructor(hit, image, index) {
    this.#index = index;
    this.image = image; // of the hit
    this.shown = image; // which may be a near-duplicate
    this.alt = hit.captions?.[0] ?? hit.text ?? hit.key;
    this.#setShape(hit.width || 1, hit.height || 1);
    this.show(image);
  }

  /** @param {number} id */
  show(id) {
    this.shown = id;
    const large = api.imageUrl(id, this.#index, "large");
    const thumbnail = api.imageUrl(id, this.#index, "thumbnail");
    const image = make("img", { alt: this.alt, decoding: "async" });
    image.addEventListener("load", () => this.#setShape(image.naturalWidth, image.naturalHeight));
    image.addEventListener(
      "error",
      async () => {
        image.src = thumbnail;
        this.#note.textContent = await api.whyNotShown(large);
      },
      { once: true },
    );
    this.#note.textContent = "";
    this.#frame.style.setProperty("background-image", `url("${thumbnail}")`);
    image.src = large;
    this.boxes.replaceChildren();
    this.#frame.replaceChildren(image, this.boxes);
  }

  /** @param {number} width @param {number} height */
  #setShape(width, height) {
    this.#frame.style.setProperty("--ratio", (width / height).toFixed(4));
  }
}

/** @param {api.Hit} hit */
function details(hit) {
  const size = hit.width && hit.height ? `${hit.width} × ${hit.height}` : null;
  const known = { Score: formatScore(hit.score), Date: hit.taken, Size: size, Split: hit.split, ...hit.columns };
  const captions = hit.kind === "text" ? [hit.text] : (hit.captions ?? []);
  const items = captions.map((text) => make("li", { dir: "auto", textContent: text }));
  const pairs = Object.entries(known)
    .filter(([, value]) => value)
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { dir: "auto" }, value)));
  const list = items.length ? make("ul", { className: "captions", role: "list" }, ...items) : null;
  return [list, make("dl", {}, ...pairs)];
}

/** @param {number} image @param {api.Index} index @param {Query} query @param {AbortSignal} signal */
function importance(image, index, query, signal) {
  const shown = make("div", { className: "explained" }, quiet("Computing the importance of each word …"));
  api.explain(image, query.text, index.name, signal).then(
    ({ words }) => shown.replaceChildren(make("h3", { textContent: "Which words matched" }), ...wordImportance(words)),
    (problem) => signal.aborted || shown.replaceChildren(quiet(problem.message)),
  );
  return shown;
}

/** @param {api.Index} index @param {Query} query @param {Stage} stage @param {AbortSignal} signal */
function placesButton(index, query, stage, signal) {
  const button = make("button", { type: "button", textContent: "Show where" });
  button.dataset.control = "where";
  button.setAttribute("aria-pressed", "false");
  const list = make("div", { className: "found-places", role: "status" });
  button.addEventListener("click", async () => {
    const isOn = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(isOn));
    stage.boxes.replaceChildren();
    list.replaceChildren();
    if (!isOn) return;
    try {
      const { phrases } = await api.localize(stage.image, query.text, index.name, signal);
      if (button.getAttribute("aria-pressed") === "false") return;
      if (stage.shown !== stage.image) stage.show(stage.image);
      stage.boxes.replaceChildren(...places.boxes(phrases));
      list.replaceChildren(phrases.length ? places.list(phrases) : "No phrase of the query was found in it.");
    } catch (problem) {
      if (!signal.aborted) list.replaceChildren(quiet(problem instanceof Error ? problem.message : String(problem)));
    }
  });
  return [button, list];
}
