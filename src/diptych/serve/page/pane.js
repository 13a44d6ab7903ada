// What one index shows: its pictures by date or the answer to a query, or why there is none.

import * as api from "./api.js";
import { make, problemBox } from "./element.js";
import { homeView } from "./home.js";
import { LatestRequest, Problem } from "./http.js";
import { resultsView } from "./results.js";
import { isEmpty } from "./query.js";

/**
 * @typedef {import("./query.js").Query} Query
 * @typedef {import("./part.js").Part} Part
 *
 * @typedef {object} View
 * @property {HTMLElement[]} nodes
 * @property {Part[]} parts
 * @property {() => string} summary what is shown, in a sentence
 *
 * @typedef {object} Callbacks
 * @property {(part: Part, id: number, index: api.Index, query: Query) => void} onOpen a hit was clicked
 * @property {(part: Partial<Query>) => void} onTry an example, a suggestion or advice was clicked
 * @property {() => void} onReload the user asks for the indexes to be loaded again
 * @property {() => void} onPicture the user wants to choose another picture
 * @property {() => void} onChange the summary has changed
 * @property {import("./selection.js").Selection} selection
 */

const REFUSED = [404, 409, 413, 415, 422]; // what no retry can make usable

export class Pane {
  element = make("section", { className: "pane" });
  #latest = new LatestRequest();
  #callbacks;
  /** @type {View | null} */
  #view = null;
  /** @type {api.Index | null} */
  index = null;

  /** @param {Callbacks} callbacks */
  constructor(callbacks) {
    this.#callbacks = callbacks;
  }

  close() {
    this.#latest.stop();
    this.#leave();
    this.element.remove();
  }

  // What is shown, in a sentence; null while waiting for the answer.
  get summary() {
    return this.element.hasAttribute("aria-busy") ? null : (this.#view?.summary() ?? "");
  }

  get parts() {
    return this.#view?.parts ?? [];
  }

  /**
   * @param {api.Index} index @param {Query} query @param {boolean} isNamed whether to show the name of the index
   * @param {number | null} place a picture to scroll to
   */
  async show(index, query, isNamed, place = null) {
    const signal = this.#latest.start();
    this.index = index;
    this.element.setAttribute("aria-label", index.name);
    this.element.setAttribute("aria-busy", "true");
    const heading = isNamed ? [make("h2", { textContent: index.name, dir: "auto" })] : [];
    if (index.images + index.texts === 0) return this.#fill(heading, notice(this.#emptyIndex(index)));
    try {
      const view = await (isEmpty(query) ? homeView : resultsView)(index, query, signal, this.#callbacks);
      if (signal.aborted) return closeAll(view);
      this.#fill(heading, view);
      if (place !== null) await this.#return(view, place);
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof Problem)) throw problem;
      this.#fill(heading, notice(this.#problem(problem, index, query, isNamed)));
    }
  }

  // Scroll to a picture, loading as many as it takes.
  /** @param {View} view @param {number} place */
  async #return(view, place) {
    const part = view.parts.at(-1);
    if (part && (await part.find(place)) && this.#view === view) part.list.reveal(place);
  }

  /** @param {HTMLElement[]} heading @param {View} view */
  #fill(heading, view) {
    const hadFocus = this.element.contains(document.activeElement);
    this.#leave();
    this.#view = view;
    this.element.removeAttribute("aria-busy");
    this.element.replaceChildren(...heading, ...view.nodes);
    for (const { list } of view.parts) list.refresh();
    if (hadFocus) this.element.closest("main")?.focus({ preventScroll: true }); // the focused element is gone
    this.#callbacks.onChange();
  }

  #leave() {
    if (this.#view) closeAll(this.#view);
    this.#view = null;
  }

  /** @param {Problem} problem @param {api.Index} index @param {Query} query @param {boolean} isNamed */
  #problem(problem, index, query, isNamed) {
    const button = (/** @type {string} */ textContent, /** @type {() => void} */ onclick) =>
      make("button", { type: "button", textContent, onclick });
    if (!REFUSED.includes(problem.status)) {
      return problemBox(problem.message, button("Try again", () => this.show(index, query, isNamed)));
    }
    return problemBox(problem.message, ...(query.picture ? [button("Choose another picture", this.#callbacks.onPicture)] : []));
  }

  /** @param {api.Index} index */
  #emptyIndex(index) {
    const folder = index.source_name || "its folder";
    return make(
      "div",
      { className: "hint" },
      make("p", { className: "lead", textContent: "This index is empty." }),
      make("p", { textContent: `Add pictures to ${folder} and run “diptych index” again.` }),
      make("button", { type: "button", textContent: "Check again", onclick: this.#callbacks.onReload }),
    );
  }
}

/** @param {HTMLElement} node @returns {View} */
function notice(node) {
  return { nodes: [node], parts: [], summary: () => "" };
}

/** @param {View} view */
function closeAll(view) {
  for (const { list } of view.parts) list.close();
}
