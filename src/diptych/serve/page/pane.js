// The answer of one index to a query, or why there is none.

import * as api from "./api.js";
import { count, make } from "./element.js";
import { examples } from "./examples.js";
import { hitList, scaleOf } from "./hits.js";
import { isEmpty } from "./query.js";

const FIRST_HITS = 24; // "Show more" doubles them
const MAX_HITS = 192;
const CAPTIONS = 6; // shown for a picture

/**
 * @typedef {import("./query.js").Query} Query
 * @typedef {{ title: string | null, answer: api.Answer }} Part
 * @typedef {(hits: api.Hit[], position: number, buttons: HTMLElement[], index: api.Index, query: Query) => void} OnOpen
 *
 * @typedef {object} Callbacks
 * @property {OnOpen} onOpen a hit was clicked
 * @property {(text: string) => void} onExample an example was clicked
 * @property {() => void} onReload the user asks for the indexes to be loaded again
 * @property {() => void} onChange the summary has changed
 */

export class Pane {
  element = make("section", { className: "pane" });
  #latest = new api.LatestRequest();
  #callbacks;

  // What is shown, in a sentence; null while waiting for the answer.
  /** @type {string | null} */
  summary = null;

  /** @param {Callbacks} callbacks */
  constructor(callbacks) {
    this.#callbacks = callbacks;
  }

  close() {
    this.#latest.stop();
    this.element.remove();
  }

  /** @param {api.Index} index @param {Query} query @param {boolean} isNamed whether to show the name of the index */
  async show(index, query, isNamed, k = FIRST_HITS) {
    const signal = this.#latest.start();
    this.element.setAttribute("aria-label", index.name);
    const heading = isNamed ? make("h2", { textContent: index.name, dir: "auto" }) : null;
    /** @param {string} summary @param {...HTMLElement} children */
    const fill = (summary, ...children) => this.#fill(summary, heading ? [heading, ...children] : children);
    if (index.images + index.texts === 0) return fill("", this.#emptyIndex(index));
    if (isEmpty(query)) return fill("", this.#hint(index, signal));
    this.summary = null;
    this.element.setAttribute("aria-busy", "true");
    try {
      const parts = await search(index, query, k, signal);
      if (signal.aborted) return;
      const onMore = () => this.#showMore(index, query, isNamed, k);
      const summary = summarise(parts[parts.length - 1].answer, query, isNamed ? index.name : null);
      fill(summary, ...parts.flatMap((part) => this.#part(part, index, query, onMore)));
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof api.Problem)) throw problem;
      fill("", problemBox(problem.message, () => this.show(index, query, isNamed, k)));
    }
  }

  /** @param {string} summary @param {HTMLElement[]} children */
  #fill(summary, children) {
    this.summary = summary;
    this.element.removeAttribute("aria-busy");
    const hadFocus = this.element.contains(document.activeElement);
    this.element.replaceChildren(...children);
    if (hadFocus) this.element.closest("main")?.focus({ preventScroll: true }); // the focused element is gone
    this.#callbacks.onChange();
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

  /** @param {api.Index} index @param {AbortSignal} signal */
  #hint(index, signal) {
    const contents = [index.images && count(index.images, "image"), index.texts && count(index.texts, "caption")];
    const how = "Describe what a picture shows, or drop a picture here to find similar ones.";
    const hint = make(
      "div",
      { className: "hint" },
      make("p", { className: "lead", textContent: `${contents.filter(Boolean).join(" and ")} to search.` }),
      make("p", { textContent: how }),
    );
    examples(index, signal, this.#callbacks.onExample).then((list) => list && hint.append(list));
    return hint;
  }

  /** @param {Part} part @param {api.Index} index @param {Query} query @param {() => void} onMore */
  #part({ title, answer }, index, query, onMore) {
    const scale = scaleOf(answer.hits);
    const [clear, faint] = [true, false].map((clear) => answer.hits.filter((hit) => hit.stands_out === clear));
    const ordered = [...clear, ...faint];
    /** @type {HTMLElement[]} */
    const buttons = [];
    /** @param {api.Hit[]} hits @param {number} first the position of the first of them */
    const list = (hits, first) => {
      if (!hits.length) return null;
      const onOpen = (/** @type {number} */ position) =>
        this.#callbacks.onOpen(ordered, first + position, buttons, index, query);
      const element = hitList(hits, index.name, scale, onOpen);
      buttons.push(.../** @type {NodeListOf<HTMLElement>} */ (element.querySelectorAll("button.hit")));
      return element;
    };
    const notClear = "The results below do not stand out from the rest.";
    const line = faint.length ? (!answer.found && answer.message) || notClear : null;
    const note = answer.message && line !== answer.message ? answer.message : null;
    const hasMore = answer.hits.length >= FIRST_HITS && answer.hits.length < Math.min(MAX_HITS, answer.searched);
    const children = [
      title ? make("h3", { textContent: title }) : null,
      note ? make("p", { className: "note", textContent: note }) : null,
      list(clear, 0),
      line ? make("p", { className: "line", textContent: line }) : null,
      list(faint, clear.length),
      hasMore ? make("button", { type: "button", className: "more", textContent: "Show more", onclick: onMore }) : null,
    ];
    return children.filter((child) => child !== null);
  }

  /** @param {api.Index} index @param {Query} query @param {boolean} isNamed @param {number} k */
  async #showMore(index, query, isNamed, k) {
    const before = this.element.querySelectorAll("button.hit").length;
    await this.show(index, query, isNamed, Math.min(MAX_HITS, 2 * k));
    const buttons = /** @type {NodeListOf<HTMLElement>} */ (this.element.querySelectorAll("button.hit"));
    buttons[before]?.focus();
  }
}

/** @param {string} message @param {() => void} [onRetry] */
export function problemBox(message, onRetry) {
  return make(
    "div",
    { className: "problem", role: "alert" },
    make("p", { textContent: message }),
    onRetry && make("button", { type: "button", textContent: "Try again", onclick: onRetry }),
  );
}

// A text is answered with the chosen kind; a picture with both captions and similar images.
/** @param {api.Index} index @param {Query} query @param {number} k @param {AbortSignal} signal @returns {Promise<Part[]>} */
async function search(index, query, k, signal) {
  const { text, like, filters } = query;
  /** @param {api.Kind} to @param {number} most */
  const options = (to, most) => ({ index: index.name, to, k: most, filters });
  if (text.trim()) return [{ title: null, answer: await api.search(text, options(query.to, k), signal) }];
  const isElsewhere = like && like.index !== index.name; // another index does not know the id, so its bytes are sent
  const picture = isElsewhere ? await api.imageBytes(like.id, like.index, signal) : query.picture;
  /** @param {api.Kind} to @param {number} most */
  const similar = (to, most) => {
    if (picture) return api.similarTo(picture, options(to, most), signal);
    if (like) return api.similar(like.id, options(to, most), signal);
    throw new Error("the query is empty");
  };
  /** @type {[string, Promise<api.Answer>][]} */
  const parts = [];
  if (index.texts) parts.push(["Captions", similar("text", CAPTIONS)]);
  if (index.images) parts.push(["Similar images", similar("image", k)]);
  const answers = await Promise.all(parts.map(([, answer]) => answer));
  return parts.map(([title], number) => ({ title, answer: answers[number] }));
}

/** @param {api.Answer} answer @param {Query} query @param {string | null} name of the index, if two are shown */
function summarise({ hits, to, searched, milliseconds }, { text }, name) {
  const what = text.trim() ? `for “${text.trim()}”` : "similar to the picture";
  const where = name ? `in ${name}` : what;
  if (!hits.length) return `No results ${where}.`;
  const clear = hits.filter((hit) => hit.stands_out).length;
  const kind = to === "text" ? "caption" : "image";
  const found = clear ? `${count(clear, kind)} ${where}` : `The nearest ${count(hits.length, kind)} ${where}`;
  const faint = clear && clear < hits.length ? `, and ${hits.length - clear} that do not stand out` : "";
  return `${found}${faint}, of ${searched.toLocaleString("en")}, in ${Math.max(1, Math.round(milliseconds))} ms.`;
}
