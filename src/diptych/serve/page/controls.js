// The form: reads what is typed and chosen as a part of a query, and shows a query.

import { byId, make } from "./element.js";

/**
 * @typedef {import("./api.js").Index} Index
 * @typedef {import("./query.js").Query} Query
 * @typedef {Omit<Query, "like" | "picture" | "more" | "less">} FormValues
 */

const PAUSE = 150; // milliseconds without a key before the query is sent

export class Controls {
  #form;
  #timer = 0;
  /** @type {Index[]} */
  #indexes = [];
  #text = byId("text", HTMLInputElement);
  #direction = byId("direction", HTMLFieldSetElement);
  #by = byId("by", HTMLElement);
  #columns = byId("columns", HTMLElement);
  #index;
  #beside;
  #mode;
  #filters;
  #album = ""; // chosen beside the results

  /**
   * @param {HTMLFormElement} form
   * @param {object} callbacks
   * @param {() => void} callbacks.onTyped the text has changed, and the user pauses
   * @param {(isRepeated: boolean) => void} callbacks.onChosen an option was chosen, or the form was submitted again
   */
  constructor(form, { onTyped, onChosen }) {
    this.#form = form;
    this.#index = this.#field("index", HTMLSelectElement);
    this.#beside = this.#field("beside", HTMLSelectElement);
    this.#mode = this.#field("mode", HTMLSelectElement);
    this.#filters = {
      folder: this.#field("folder", HTMLInputElement),
      since: this.#field("since", HTMLInputElement),
      until: this.#field("until", HTMLInputElement),
      split: this.#field("split", HTMLSelectElement),
    };
    /** @param {boolean} isRepeated */
    const now = (isRepeated) => {
      clearTimeout(this.#timer);
      onChosen(isRepeated);
    };
    this.#text.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = window.setTimeout(onTyped, PAUSE);
    });
    form.addEventListener("change", (event) => event.target !== byId("picture", HTMLInputElement) && now(false));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      now(true);
    });
    byId("clear", HTMLButtonElement).addEventListener("click", () => {
      for (const field of [...Object.values(this.#filters), ...this.#columnFields()]) field.value = "";
      now(false);
    });
  }

  focus() {
    this.#text.focus();
    this.#text.select();
  }

  /** @param {Index[]} indexes */
  offer(indexes) {
    this.#indexes = indexes;
    this.#index.replaceChildren(...indexes.map(({ name }) => new Option(name)));
    for (const field of this.#form.querySelectorAll(".indexes")) field.toggleAttribute("hidden", indexes.length < 2);
  }

  /** @returns {FormValues} */
  read() {
    /** @type {Record<string, string>} */
    const columns = {};
    for (const field of this.#columnFields()) {
      if (field.value.trim()) columns[field.dataset.column ?? ""] = field.value.trim();
    }
    const { folder, since, until, split } = this.#filters;
    return {
      text: this.#text.value,
      mode: /** @type {Query["mode"]} */ (this.#mode.value),
      to: this.#form.querySelector("[name=to][value=text]:checked") ? "text" : "image",
      index: this.#index.value,
      beside: this.#beside.value === this.#index.value ? "" : this.#beside.value,
      filters: {
        folder: folder.value.trim(),
        album: this.#album,
        since: since.value,
        until: until.value,
        split: split.value,
        columns,
      },
    };
  }

  /** @param {Query} query */
  show(query) {
    clearTimeout(this.#timer);
    if (this.#text.value !== query.text) this.#text.value = query.text; // setting it always would move the cursor
    for (const radio of this.#form.querySelectorAll("[name=to]")) {
      if (radio instanceof HTMLInputElement) radio.checked = radio.value === query.to;
    }
    this.#index.value = query.index;
    const others = this.#indexes.filter(({ name }) => name !== query.index);
    setOptions(this.#beside, "none", others.map(({ name }) => name));
    this.#beside.value = query.beside;
    const shown = this.#indexes.filter(({ name }) => name === query.index || name === query.beside);
    const hasTexts = shown.some(({ texts }) => texts > 0);
    this.#direction.hidden = !hasTexts || Boolean(query.like || query.picture);
    this.#mode.value = query.mode;
    this.#by.hidden = Boolean(query.like || query.picture || query.more.length || query.less.length);
    this.#showFilters(query, shown);
  }

  /** @param {Query} query @param {Index[]} shown */
  #showFilters({ filters }, shown) {
    this.#album = filters.album;
    /** @param {"folders" | "splits" | "columns"} list */
    const all = (list) => [...new Set(shown.flatMap((one) => one[list]))];
    byId("folders", HTMLDataListElement).replaceChildren(...all("folders").map((folder) => new Option(folder)));
    const splits = all("splits");
    setOptions(this.#filters.split, "any", splits);
    this.#filters.split.closest("label")?.toggleAttribute("hidden", splits.length === 0);
    const { folder, since, until, split } = this.#filters;
    setValue(folder, filters.folder);
    setValue(since, filters.since);
    setValue(until, filters.until);
    setValue(split, filters.split);
    this.#showColumns([...new Set([...all("columns"), ...Object.keys(filters.columns)])], filters.columns);
    const { columns, album: _, ...plain } = filters;
    const set = [...Object.values(plain), ...Object.values(columns)].filter(Boolean).length;
    byId("filtered", HTMLElement).textContent = set ? ` · ${set}` : "";
  }

  // Fields are replaced only if the columns change: a new field would lose the focus.
  /** @param {string[]} columns @param {Record<string, string>} values */
  #showColumns(columns, values) {
    const current = this.#columnFields().map((field) => field.dataset.column ?? "");
    if (!isEqual(current, columns)) this.#columns.replaceChildren(...columns.map(columnField));
    for (const field of this.#columnFields()) setValue(field, values[field.dataset.column ?? ""] ?? "");
  }

  #columnFields() {
    return /** @type {HTMLInputElement[]} */ ([...this.#columns.querySelectorAll("input")]);
  }

  /**
   * @template {HTMLElement} Type
   * @param {string} name
   * @param {new () => Type} type
   * @returns {Type}
   */
  #field(name, type) {
    const field = this.#form.elements.namedItem(name);
    if (!(field instanceof type)) throw new Error(`the form has no ${name} of the expected type`);
    return field;
  }
}

/** @param {string} column */
function columnField(column) {
  const field = make("input", { autocomplete: "off" });
  field.dataset.column = column;
  return make("label", { className: "field" }, make("span", { textContent: column }), " ", field);
}

/** @param {HTMLSelectElement} select @param {string} none the label of the empty option @param {string[]} names */
function setOptions(select, none, names) {
  const current = [...select.options].slice(1).map((option) => option.value);
  if (select.options.length && isEqual(current, names)) return;
  select.replaceChildren(new Option(none, ""), ...names.map((name) => new Option(name)));
}

// A trailing space, which a query does not have, is left to the user who is still typing.
/** @param {HTMLInputElement | HTMLSelectElement} field @param {string} value */
function setValue(field, value) {
  if (field.value.trim() !== value) field.value = value;
}

/** @param {string[]} some @param {string[]} others */
function isEqual(some, others) {
  return some.length === others.length && some.every((one, position) => one === others[position]);
}
