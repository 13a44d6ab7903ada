// One index's side of the page: its answer to a question, or why there is none.

import * as api from "./api.js";
import { count, make } from "./element.js";
import { examples } from "./examples.js";
import { hitList, scaleOf } from "./hits.js";
import { Latest } from "./latest.js";
import { asksNothing } from "./question.js";

const STEP = 24; // hits at first, and so many more at each wish
const MOST = 192;
const CAPTIONS = 6; // that fit an image

export class Pane {
  element = make("section", { className: "pane" });
  #latest = new Latest();
  #open;
  #suggest;
  #lookAgain;
  #changed;

  // What is shown, in a sentence; nothing while the answer is on its way.
  told = null;

  constructor({ open, suggest, lookAgain, changed }) {
    this.#open = open;
    this.#suggest = suggest;
    this.#lookAgain = lookAgain;
    this.#changed = changed;
  }

  close() {
    this.#latest.stop();
    this.element.remove();
  }

  async show(index, question, named, k = STEP) {
    const signal = this.#latest.start();
    this.element.setAttribute("aria-label", index.name);
    const heading = named ? make("h2", { textContent: index.name, dir: "auto" }) : null;
    const fill = (told, ...children) => {
      this.told = told;
      this.element.removeAttribute("aria-busy");
      const focused = this.element.contains(document.activeElement);
      this.element.replaceChildren(...[heading, ...children].filter(Boolean));
      if (focused) this.element.closest("main")?.focus({ preventScroll: true }); // what had it is gone
      this.#changed();
    };
    if (index.images + index.texts === 0) return fill("", this.#empty(index));
    if (asksNothing(question)) return fill("", this.#hint(index, signal));
    this.told = null;
    this.element.setAttribute("aria-busy", "true");
    try {
      const answers = await ask(index, question, k, signal);
      if (signal.aborted) return;
      const more = () => this.#more(index, question, named, k);
      const told = sentence(answers.at(-1).answer, question, named && index.name);
      fill(told, ...answers.flatMap((part) => this.#part(part, index, question, more)));
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof api.Problem)) throw problem;
      fill("", problemBox(problem.message, () => this.show(index, question, named, k)));
    }
  }

  #empty(index) {
    const folder = index.source_name || "its folder";
    return make(
      "div",
      { className: "hint" },
      make("p", { className: "lead", textContent: "This index is empty." }),
      make("p", { textContent: `Put pictures into ${folder} and run “diptych index” again.` }),
      make("button", { type: "button", textContent: "Look again", onclick: this.#lookAgain }),
    );
  }

  #hint(index, signal) {
    const holds = [index.images && count(index.images, "image"), index.texts && count(index.texts, "caption")];
    const how = "Say what a picture shows, or drop a picture here to find what is like it.";
    const hint = make(
      "div",
      { className: "hint" },
      make("p", { className: "lead", textContent: `${holds.filter(Boolean).join(" and ")} to search.` }),
      make("p", { textContent: how }),
    );
    examples(index, signal, this.#suggest).then((shown) => shown && hint.append(shown));
    return hint;
  }

  #part({ title, answer }, index, question, more) {
    const scale = scaleOf(answer.hits);
    const [clear, faint] = [true, false].map((clear) => answer.hits.filter((hit) => hit.stands_out === clear));
    const ordered = [...clear, ...faint];
    const buttons = [];
    const list = (hits, first) => {
      if (!hits.length) return null;
      const open = (place) => this.#open(ordered, first + place, buttons, index, question);
      const made = hitList(hits, index.name, scale, open);
      buttons.push(...made.querySelectorAll("button.hit"));
      return made;
    };
    const own = "What follows does not stand out from the rest.";
    const line = faint.length ? ((!answer.found && answer.message) || own) : null;
    const note = answer.message && line !== answer.message ? answer.message : null;
    const wants = answer.hits.length >= STEP && answer.hits.length < Math.min(MOST, answer.searched);
    return [
      title && make("h3", { textContent: title }),
      note && make("p", { className: "note", textContent: note }),
      list(clear, 0),
      line && make("p", { className: "line", textContent: line }),
      list(faint, clear.length),
      wants && make("button", { type: "button", className: "more", textContent: "Show more", onclick: more }),
    ].filter(Boolean);
  }

  async #more(index, question, named, k) {
    const there = this.element.querySelectorAll("button.hit").length;
    await this.show(index, question, named, Math.min(MOST, 2 * k));
    this.element.querySelectorAll("button.hit")[there]?.focus();
  }
}

export function problemBox(told, again) {
  return make(
    "div",
    { className: "problem", role: "alert" },
    make("p", { textContent: told }),
    again && make("button", { type: "button", textContent: "Try again", onclick: again }),
  );
}

// A text is answered with what was chosen; a picture with both its captions and what looks like it.
async function ask(index, question, k, signal) {
  const { text, like, filters } = question;
  const wish = (to, most) => ({ index: index.name, to, k: most, filters });
  if (text.trim()) return [{ title: null, answer: await api.search(text, wish(question.to, k), signal) }];
  const elsewhere = like && like.index !== index.name; // an id means nothing to another index: its bytes do
  const picture = elsewhere ? await api.bytes(like.id, like.index, signal) : question.picture;
  const similar = (to, most) =>
    picture ? api.similarTo(picture, wish(to, most), signal) : api.similar(like.id, wish(to, most), signal);
  const parts = [];
  if (index.texts) parts.push(["Captions", similar("text", CAPTIONS)]);
  if (index.images) parts.push(["Similar images", similar("image", k)]);
  const answers = await Promise.all(parts.map(([, answer]) => answer));
  return parts.map(([title], which) => ({ title, answer: answers[which] }));
}

function sentence({ hits, to, searched, milliseconds }, { text }, name) {
  const asked = text.trim() ? `for “${text.trim()}”` : "like the picture";
  const where = name ? `in ${name}` : asked;
  if (!hits.length) return `Nothing ${where}.`;
  const clear = hits.filter((hit) => hit.stands_out).length;
  const kind = to === "text" ? "caption" : "image";
  const found = clear ? `${count(clear, kind)} ${where}` : `The nearest ${count(hits.length, kind)} ${where}`;
  const faint = clear && clear < hits.length ? `, and ${hits.length - clear} that do not stand out` : "";
  return `${found}${faint}, of ${searched.toLocaleString("en")}, in ${Math.max(1, Math.round(milliseconds))} ms.`;
}
