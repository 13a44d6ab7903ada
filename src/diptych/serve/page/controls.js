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
    setOptions(fields.beside, "none", others.map(({ name }) => name));
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
    setOptions(fields.split, "any", splits);
    fields.split.closest("label").hidden = splits.length === 0;
    for (const name of ["folder", "since", "until", "split"]) setValue(fields[name], filters[name]);
    this.#showColumns([...new Set([...all("columns"), ...Object.keys(filters.columns)])], filters.columns);
    const { columns, ...plain } = filters;
    const set = [...Object.values(plain), ...Object.values(columns)].filter(Boolean).length;
    this.#form.querySelector("#filtered").textContent = set ? ` · ${set}` : "";
  }

  // The fields stay as long as they are the same: a new one would not have the focus of the old.
  #showColumns(columns, values) {
    const place = this.#form.querySelector("#columns");
    const there = [...place.querySelectorAll("input")].map((field) => field.dataset.column);
    if (!same(there, columns)) place.replaceChildren(...columns.map(columnField));
    for (const field of place.querySelectorAll("input")) setValue(field, values[field.dataset.column] ?? "");
  }
}

function columnField(column) {
  const field = make("input", { autocomplete: "off" });
  field.dataset.column = column;
  return make("label", { className: "field" }, make("span", { textContent: column }), " ", field);
}

function setOptions(list, nothing, names) {
  const there = [...list.options].slice(1).map((option) => option.value);
  if (list.options.length && same(there, names)) return;
  list.replaceChildren(new Option(nothing, ""), ...names.map((name) => new Option(name)));
}

// A space at the end, which a question does not have, is not taken from someone who is still typing.
function setValue(field, value) {
  if (field.value.trim() !== value) field.value = value;
}

function same(some, others) {
  return some.length === others.length && some.every((one, place) => one === others[place]);
}
