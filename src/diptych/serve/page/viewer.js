// The large image in a dialog: what is known of it, its words and places, and the way to its neighbours.

import * as api from "./api.js";
import { hidden, make, picture, quiet, score } from "./element.js";
import { nameOf } from "./hits.js";
import { Latest } from "./latest.js";
import * as places from "./places.js";
import { sentence } from "./words.js";

export class Viewer {
  #dialog;
  #like;
  #latest = new Latest();
  #shown = null; // { hits, place, buttons, index, question }

  constructor(dialog, like) {
    this.#dialog = dialog;
    this.#like = like;
    dialog.addEventListener("keydown", (event) => this.#key(event));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => {
      this.#latest.stop();
      dialog.replaceChildren();
      this.#shown.buttons[this.#shown.place]?.focus(); // of the image looked at last, not of the first
    });
  }

  open(hits, place, buttons, index, question) {
    this.#shown = { hits, place, buttons, index, question };
    this.#show();
    this.#dialog.showModal();
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#step(step);
  }

  #step(step) {
    const place = this.#shown.place + step;
    if (place < 0 || place >= this.#shown.hits.length) return;
    const held = document.activeElement?.dataset.control;
    this.#shown.place = place;
    this.#show();
    this.#dialog.querySelector(`[data-control="${held ?? "close"}"]`)?.focus();
  }

  #show() {
    const signal = this.#latest.start();
    const { hits, place, index, question } = this.#shown;
    const hit = hits[place];
    const stage = hit.image === null ? null : new Stage(hit, index.name);
    const about = make(
      "div",
      { className: "facts" },
      make("h2", { id: "name", dir: "auto", textContent: hit.key }),
      hit.stands_out ? null : quiet("It does not stand out from the rest."),
      stage && this.#actions(hit, index, question, stage, signal),
      stage && index.explains && question.text.trim() ? wordsOf(hit, index, question, signal) : null,
      ...facts(hit),
      stage && hit.near.length ? this.#alike(hit, index, stage) : null,
    );
    this.#dialog.replaceChildren(
      make(
        "div",
        { className: "viewer" },
        this.#bar(place, hits.length),
        stage?.element ?? "",
        about,
        make("p", { className: "hidden", role: "status" }, `${place + 1} of ${hits.length}: ${nameOf(hit)}`),
      ),
    );
    this.#dialog.scrollTop = 0;
  }

  #bar(place, number) {
    const control = (name, label, sign, act, ends = false) => {
      const shown = make("span", { "aria-hidden": "true", textContent: sign });
      const looks = { type: "button", className: "sign", title: label };
      const button = make("button", { ...looks, onclick: act }, shown, hidden(label));
      button.dataset.control = name;
      if (ends) button.setAttribute("aria-disabled", "true");
      return button;
    };
    const close = control("close", "Close", "✕", () => this.#dialog.close());
    close.autofocus = true;
    return make(
      "div",
      { className: "steps" },
      control("previous", "Previous", "←", () => this.#step(-1), place === 0),
      make("span", { className: "quiet", textContent: `${place + 1} of ${number}` }),
      control("next", "Next", "→", () => this.#step(1), place === number - 1),
      close,
    );
  }

  #actions(hit, index, question, stage, signal) {
    const like = make("button", { type: "button", textContent: "More like this" });
    like.dataset.control = "like";
    like.addEventListener("click", () => {
      this.#shown.buttons = []; // they go away with the old answer
      this.#dialog.close();
      this.#like(hit.image, index.name);
    });
    const row = make("div", { className: "actions" }, like);
    if (index.localizes && question.text.trim()) row.append(placesButton(hit, index, question, stage, signal));
    return row;
  }

  #alike(hit, index, stage) {
    const show = (id, which) => {
      const shown = picture(api.image(id, index.name, "thumbnail"));
      const name = which ? `Show image ${which} that is alike` : "Show the image that was found";
      const button = make("button", { type: "button", className: "tile" }, shown, hidden(name));
      button.addEventListener("click", () => {
        this.#dialog.querySelector("[data-control=where][aria-pressed=true]")?.click(); // boxes of the other one
        stage.show(id);
      });
      return make("li", {}, button);
    };
    return make(
      "div",
      {},
      make("h3", { textContent: "Alike" }),
      make("ul", { className: "alikes", role: "list" }, ...[hit.image, ...hit.near].map(show)),
    );
  }
}

// The image in a frame of its own shape: the thumbnail at once, the large one as soon as it is there, boxes over it.
class Stage {
  #index;
  #frame = make("div", { className: "frame" });
  #note = make("p", { className: "quiet" });
  boxes = make("div", { className: "boxes", "aria-hidden": "true" });
  element = make("figure", { className: "stage" }, this.#frame, this.#note);

  constructor(hit, index) {
    this.#index = index;
    this.alt = hit.captions?.[0] ?? hit.text ?? hit.key;
    this.#shape(hit.width || 1, hit.height || 1);
    this.show(hit.image);
  }

  show(id) {
    this.id = id;
    const large = api.image(id, this.#index, "large");
    const thumbnail = api.image(id, this.#index, "thumbnail");
    const image = make("img", { alt: this.alt, decoding: "async" });
    image.addEventListener("load", () => this.#shape(image.naturalWidth, image.naturalHeight));
    image.addEventListener(
      "error",
      async () => {
        image.src = thumbnail;
        this.#note.textContent = await api.whyNot(large);
      },
      { once: true },
    );
    this.#note.textContent = "";
    this.#frame.style.setProperty("background-image", `url("${thumbnail}")`);
    image.src = large;
    this.boxes.replaceChildren();
    this.#frame.replaceChildren(image, this.boxes);
  }

  #shape(width, height) {
    this.#frame.style.setProperty("--ratio", (width / height).toFixed(4));
  }
}

function facts(hit) {
  const size = hit.width && hit.height ? `${hit.width} × ${hit.height}` : null;
  const known = { Score: score(hit.score), Day: hit.taken, Size: size, Split: hit.split, ...hit.columns };
  const captions = hit.kind === "text" ? [hit.text] : (hit.captions ?? []);
  const items = captions.map((text) => make("li", { dir: "auto", textContent: text }));
  const pairs = Object.entries(known)
    .filter(([, value]) => value)
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { dir: "auto" }, value)));
  const list = items.length ? make("ul", { className: "captions", role: "list" }, ...items) : null;
  return [list, make("dl", {}, ...pairs)];
}

function wordsOf(hit, index, question, signal) {
  const shown = make("div", { className: "explained" }, quiet("Weighing the words …"));
  api.explain(hit.image, question.text, index.name, signal).then(
    ({ words }) => shown.replaceChildren(make("h3", { textContent: "Which words found it" }), ...sentence(words)),
    (problem) => signal.aborted || shown.replaceChildren(quiet(problem.message)),
  );
  return shown;
}

function placesButton(hit, index, question, stage, signal) {
  const button = make("button", { type: "button", textContent: "Show where" });
  button.dataset.control = "where";
  button.setAttribute("aria-pressed", "false");
  const told = make("div", { className: "told", role: "status" });
  button.addEventListener("click", async () => {
    const on = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(on));
    stage.boxes.replaceChildren();
    told.replaceChildren();
    if (!on) return;
    try {
      const { phrases } = await api.localize(hit.image, question.text, index.name, signal);
      if (button.getAttribute("aria-pressed") === "false") return;
      if (stage.id !== hit.image) stage.show(hit.image);
      stage.boxes.replaceChildren(...places.boxes(phrases));
      told.replaceChildren(phrases.length ? places.list(phrases) : "No phrase of the query has a place in it.");
    } catch (problem) {
      if (!signal.aborted) told.replaceChildren(quiet(problem.message));
    }
  });
  const both = document.createDocumentFragment();
  both.append(button, told);
  return both;
}
