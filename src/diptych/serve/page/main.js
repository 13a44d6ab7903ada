// The page: one query at a time, answered by one index, or by two side by side.

import * as api from "./api.js";
import { Controls } from "./controls.js";
import { byId, make, picture } from "./element.js";
import { moveByKey } from "./hits.js";
import { Pane, problemBox } from "./pane.js";
import { fromUrl, isEmpty, toUrl } from "./query.js";
import { watchForPictures } from "./upload.js";
import { Viewer } from "./viewer.js";

/** @typedef {import("./query.js").Query} Query */

const PICTURE_LOST = "This picture is no longer available, because the page was reloaded. Choose it again.";
const results = byId("results", HTMLElement);
const statusLine = byId("status", HTMLElement);
/** @type {Map<string, File>} */
const pictures = new Map(); // uploaded ones, by the key that the history stores for them
/** @type {api.Index[]} */
let indexes = [];
/** @type {Pane[]} */
let panes = [];
/** @type {Query} */
let query = fromUrl("");
let isSettled = true; // whether the next key starts a new entry of the history
/** @type {string | null} */
let duplicated = null; // the entry of the history that is followed by a copy of itself, so that Back closes the viewer

const controls = new Controls(byId("controls", HTMLFormElement), {
  onTyped: () => {
    go(typedQuery(), isSettled);
    isSettled = false;
  },
  onChosen: (isRepeated) => {
    const next = typedQuery();
    isSettled = true;
    const isSame = toUrl(next) === toUrl(query) && next.picture === query.picture;
    if (!isSame || isRepeated) go(next, !isSame);
  },
});
const viewer = new Viewer(byId("viewer", HTMLDialogElement), (id, index) => {
  go({ ...query, text: "", picture: null, like: { id, index } }, true);
  isSettled = true;
  results.focus();
});

// The query in the form; without a text, the picture of the current query stays.
function typedQuery() {
  const values = controls.read();
  const { like, picture } = query;
  return values.text.trim() ? { ...values, like: null, picture: null } : { ...values, like, picture };
}

/** @param {Query} next @param {boolean} isNew whether it becomes a new entry of the history */
function go(next, isNew) {
  const key = [...pictures].find(([, file]) => file === next.picture)?.[0];
  const state = key ? { picture: key } : null;
  if (isNew && duplicated === null) history.pushState(state, "", toUrl(next));
  else history.replaceState(state, "", toUrl(next));
  duplicated = null;
  show(next);
}

// Show the query of the current entry of the history; its picture is known until the page is reloaded.
/** @param {Partial<Query>} typed */
function recall(typed = {}) {
  const key = history.state?.picture;
  show({ ...fromUrl(location.search), picture: pictures.get(key) ?? null, ...typed });
  if (key && !pictures.has(key)) showProblem(PICTURE_LOST);
}

function historyEntry() {
  return `${location.href} ${history.state?.picture ?? ""}`;
}

/** @type {import("./pane.js").OnOpen} */
function open(...what) {
  viewer.open(...what);
  if (duplicated === null) history.pushState(history.state, "");
  duplicated = historyEntry();
}

/** @param {Query} next */
function show(next) {
  if (!indexes.length) return;
  const index = indexes.find(({ name }) => name === next.index) ?? indexes[0];
  const beside = indexes.find((other) => other.name === next.beside && other !== index);
  query = { ...next, index: index.name, beside: beside?.name ?? "" };
  if (query.like && !indexes.some(({ name }) => name === query.like?.index)) {
    query.like = { ...query.like, index: index.name };
  }
  controls.show(query);
  document.title = query.text.trim() ? `${query.text.trim()} · Diptych` : "Diptych";
  byId("problem", HTMLElement).replaceChildren();
  showQueryPicture();
  const shown = beside ? [index, beside] : [index];
  while (panes.length > shown.length) panes.pop()?.close();
  while (panes.length < shown.length) {
    const pane = new Pane({ onOpen: open, onExample: searchExample, onReload: start, onChange: showStatus });
    panes.push(pane);
    byId("panes", HTMLElement).append(pane.element);
  }
  byId("panes", HTMLElement).classList.toggle("two", shown.length > 1);
  if (!isEmpty(query) && !statusLine.textContent) statusLine.textContent = "Searching …";
  panes.forEach((pane, position) => pane.show(shown[position], query, shown.length > 1));
}

function showStatus() {
  const summaries = panes.map((pane) => pane.summary);
  if (!summaries.includes(null)) statusLine.textContent = summaries.filter(Boolean).join(" ");
}

/** @param {string} text */
function searchExample(text) {
  go({ ...query, text, like: null, picture: null }, true);
  isSettled = true;
  controls.focus();
}

function showQueryPicture() {
  const { like, picture: file } = query;
  const section = byId("query-picture", HTMLElement);
  const old = section.querySelector("img")?.src;
  if (old?.startsWith("blob:")) URL.revokeObjectURL(old);
  section.replaceChildren();
  section.hidden = !like && !file;
  const url = file ? URL.createObjectURL(file) : like && api.imageUrl(like.id, like.index, "thumbnail");
  if (!url) return;
  const remove = () => {
    go({ ...query, like: null, picture: null }, true);
    controls.focus();
  };
  const image = picture(url, "The picture to search with");
  const tile = make("span", { className: "tile" }, image);
  image.addEventListener("error", () => tile.remove()); // some formats can only be read by the server
  section.append(
    tile,
    make("p", { dir: "auto", textContent: file ? file.name : "More like this" }),
    make("button", { type: "button", textContent: "Remove", onclick: remove }),
  );
}

/** @param {string} message @param {() => void} [onRetry] */
function showProblem(message, onRetry) {
  byId("problem", HTMLElement).replaceChildren(problemBox(message, onRetry));
}

watchForPictures(
  byId("picture", HTMLInputElement),
  (file) => {
    viewer.close();
    // randomUUID exists only in secure contexts, and another device may use plain HTTP.
    pictures.set(String(crypto.getRandomValues(new BigUint64Array(1))[0]), file);
    go({ ...query, ...controls.read(), text: "", like: null, picture: file }, true);
    isSettled = true;
  },
  showProblem,
);

addEventListener("popstate", () => {
  const isFromCopy = historyEntry() === duplicated;
  const wasOpen = viewer.isOpen;
  duplicated = null;
  viewer.close();
  if (isFromCopy && wasOpen) return;
  if (isFromCopy) return history.back(); // the viewer has been closed by other means
  isSettled = true;
  recall();
});

document.addEventListener("keydown", (event) => {
  if (!(event.target instanceof Element)) return;
  const isTyping = event.target.closest("input:not([type=radio]), select, textarea, dialog");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    controls.focus();
  } else if (event.key === "ArrowDown" && event.target.id === "text") {
    event.preventDefault();
    const first = results.querySelector("button.hit, button.example");
    if (first instanceof HTMLElement) first.focus();
  }
});
results.addEventListener("keydown", (event) => moveByKey(event, results));

async function start() {
  byId("problem", HTMLElement).replaceChildren();
  try {
    indexes = await api.indexes();
  } catch (problem) {
    return showProblem(problem instanceof Error ? problem.message : String(problem), start);
  }
  if (!indexes.length) return showProblem("The server has no index; start it with “diptych serve INDEX”.", start);
  controls.offer(indexes);
  const typed = controls.read().text; // while the page was loading
  recall(typed.trim() ? { text: typed, picture: null } : {});
}

await start();
if (matchMedia("(hover: hover)").matches && !results.contains(document.activeElement)) byId("text", HTMLElement).focus();
