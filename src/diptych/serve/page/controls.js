// The form: what is typed and chosen, read as a part of a question, and set from one.

import { make } from "./element.js";

const PAUSE = 150; // milliseconds without a key until the question is asked

export class Controls {
  #form;
  #fields;
  #timer = 0;
  #indexes = [];

  constructor(form, { typed, chosen }) {
    this.#form = form;
    this.#fields = form.elements;
    const now = (again) => {
      clearTimeout(this.#timer);
      chosen(again);
    };
    this.#fields.text.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(typed, PAUSE);
    });
    form.addEventListener("change", (event) => event.target.id !== "picture" && now(false));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      now(true);
    });
    form.querySelector("#clear").addEventListener("click", () => {
      for (const field of form.querySelectorAll(".filters input, .filters select")) field.value = "";
      now(false);
    });
  }

  focus() {
    this.#fields.text.focus();
    this.#fields.text.select();
  }

  offer(indexes) {
    this.#indexes = indexes;
    const names = indexes.map(({ name }) => name);
    this.#fields.index.replaceChildren(...names.map((name) => new Option(name)));
    for (const field of this.#form.querySelectorAll(".indexes")) field.hidden = indexes.length < 2;
  }

  read() {
    const fields = this.#fields;
    const columns = {};
    for (const field of this.#form.querySelectorAll("#columns input")) {
      if (field.value.trim()) columns[field.dataset.column] = field.value.trim();
    }
    return {
      text: fields.text.value,
      to: fields.to.value,
      index: fields.index.value,
      beside: fields.beside.value === fields.index.value ? "" : fields.beside.value,
      filters: {
        folder: fields.folder.value.trim(),
        since: fields.since.value,
        until: fields.until.value,
        split: fields.split.value,
        columns,
      },
    };
  }

  // A question that was typed is in the box already: writing it there again would move the cursor.
  show(question) {
    clearTimeout(this.#timer);
    const fields = this.#fields;
    if (fields.text.value !== question.text) fields.text.value = question.text;
    fields.to.value = question.to;
    fields.index.value = question.index;
    const others = this.#indexes.filter(({ name }) => name !== question.index);
    fields.beside.replaceChildren(new Option("none", ""), ...others.map(({ name }) => new Option(name)));
    fields.beside.value = question.beside ?? "";
    this.#form.querySelector("#direction").hidden = Boolean(question.like || question.picture);
    this.#showFilters(question);
  }

  #showFilters({ index, beside, filters }) {
    const shown = this.#indexes.filter(({ name }) => name === index || name === beside);
    const all = (list) => [...new Set(shown.flatMap((one) => one[list]))];
    const fields = this.#fields;
    this.#form.querySelector("#folders").replaceChildren(...all("folders").map((folder) => new Option(folder)));
    const splits = all("splits");
    fields.split.replaceChildren(new Option("any", ""), ...splits.map((split) => new Option(split)));
    fields.split.closest("label").hidden = splits.length === 0;
    for (const name of ["folder", "since", "until", "split"]) fields[name].value = filters[name];
    this.#form.querySelector("#columns").replaceChildren(
      ...[...new Set([...all("columns"), ...Object.keys(filters.columns)])].map((column) => {
        const field = make("input", { value: filters.columns[column] ?? "", autocomplete: "off" });
        field.dataset.column = column;
        return make("label", { className: "field" }, make("span", { textContent: column }), " ", field);
      }),
    );
    const { columns, ...plain } = filters;
    const set = [...Object.values(plain), ...Object.values(columns)].filter(Boolean).length;
    this.#form.querySelector("#filtered").textContent = set ? ` · ${set}` : "";
  }
}
