// The page: one query at a time, answered by one index, or by two side by side.

import { Actions } from "./actions.js";
import * as api from "./api.js";
import { Albums } from "./albums.js";
import { Controls } from "./controls.js";
import { byId, make, problemBox } from "./element.js";
import { messageOf } from "./http.js";
import { icon } from "./icons.js";
import { watchKeys } from "./keys.js";
import { Library } from "./library.js";
import { notify } from "./notices.js";
import { Pane } from "./pane.js";
import { NOTHING, NO_FILTERS, fromUrl, isEmpty, isSame, toUrl } from "./query.js";
import { Selection } from "./selection.js";
import { SelectionBar } from "./selection_bar.js";
import { Terms } from "./terms.js";
import { Trail } from "./trail.js";
import { watchForPictures } from "./upload.js";
import { Viewer } from "./viewer.js";

/** @typedef {import("./query.js").Query} Query */

const PICTURE_LOST = "This picture is no longer available, because the page was reloaded. Choose it again.";
const RESTED = 300; // milliseconds without scrolling before the place is remembered
const results = byId("results", HTMLElement);
const statusLine = byId("status", HTMLElement);
const upload = byId("picture", HTMLInputElement);
const trail = new Trail();
/** @type {Map<string, File>} */
const pictures = new Map(); // uploaded ones, by the key that the history stores for them
/** @type {api.Index[]} */
let indexes = [];
/** @type {Pane[]} */
let panes = [];
/** @type {Query} */
let query = fromUrl("");
let address = ""; // of the query, without the place
let isSettled = true; // whether the next key starts a new entry of the history
let restTimer = 0;

const selection = new Selection();
const albums = new Albums();
const actions = new Actions(albums, (album, ids) => {
  if (String(album) !== query.filters.album) return;
  for (const pane of panes) for (const { list } of pane.parts) list.remove(ids);
  selection.clear();
  showStatus();
});
const bar = new SelectionBar(byId("selection", HTMLElement), selection, actions, {
  onMore: () => refine(selection.ids, selection.index, true),
  onLess: () => refine(selection.ids, selection.index, false),
});
const library = new Library(byId("library", HTMLElement), albums, visit);
const terms = new Terms(byId("terms", HTMLElement), change, (id) => albums.name(id));
const viewer = new Viewer(byId("viewer", HTMLDialogElement), actions, albums, {
  onSimilar: (id, index) => change({ ...NOTHING, like: { id, index } }),
  onFeedback: (id, index, isMore) => refine([id], index, isMore),
  onGo: visit,
  onShow: (id) => trail.open(id),
  onClose: (id) => trail.stay(id),
});
const controls = new Controls(byId("controls", HTMLFormElement), {
  onTyped: () => {
    go({ ...query, ...controls.read() }, isSettled);
    isSettled = false;
  },
  onChosen: (isRepeated) => {
    const next = { ...query, ...controls.read() };
    const isNew = !isSame(next, query);
    if (isNew || isRepeated) go(next, isNew);
    isSettled = true;
  },
});

// Change a part of the query by anything but typing.
/** @param {Partial<Query>} part */
function change(part) {
  go({ ...query, ...part }, true);
  isSettled = true;
  results.focus({ preventScroll: true });
}

// Browse a folder or an album.
/** @param {{ folder: string, album: string }} where */
function visit({ folder, album }) {
  change({ ...NOTHING, filters: { ...NO_FILTERS, folder, album } });
}

// Search for more, or less, of what some pictures show.
/** @param {number[]} ids @param {string} index @param {boolean} isMore */
function refine(ids, index, isMore) {
  const { like } = query;
  const start = like && like.index === index ? [like.id] : []; // a search with a picture becomes one with examples
  const without = (/** @type {number[]} */ others) => others.filter((id) => !ids.includes(id));
  const more = [...new Set([...start, ...without(query.more), ...(isMore ? ids : [])])];
  const less = [...new Set([...without(query.less), ...(isMore ? [] : ids)])];
  if (!more.length && !query.text.trim()) return notify("Search for something first, then say what to see less of.");
  selection.clear();
  change({ index, like: null, picture: null, to: "image", mode: "auto", more, less });
}

/** @param {Query} next @param {boolean} isNew whether it becomes a new entry of the history */
function go(next, isNew) {
  const key = [...pictures].find(([, file]) => file === next.picture)?.[0] ?? null;
  trail.go(toUrl(next), key, isNew);
  show(next, null);
}

// Show the query of the current entry of the history; its picture is known until the page is reloaded.
/** @param {Partial<Query>} [typed] */
function recall(typed = {}) {
  const key = trail.picture;
  show({ ...fromUrl(location.search), picture: (key && pictures.get(key)) || null, ...typed }, trail.spot);
  if (key && !pictures.has(key)) showProblem(PICTURE_LOST, chooseButton());
}

/** @type {import("./pane.js").Callbacks["onOpen"]} */
function open(part, id, index, asked) {
  viewer.open(part, id, index, asked);
  trail.open(id);
}

/** @param {Query} next @param {import("./trail.js").Spot | null} spot */
async function show(next, spot) {
  if (!indexes.length) return;
  const index = indexes.find(({ name }) => name === next.index) ?? indexes[0];
  const beside = indexes.find((other) => other.name === next.beside && other !== index);
  if (index.name !== albums.index) albums.load(index.name).catch(() => {}); // shown with its album, which says why
  const wasEmpty = isEmpty(query);
  query = { ...next, index: index.name, beside: beside?.name ?? "" };
  if (query.like && !indexes.some(({ name }) => name === query.like?.index)) {
    query.like = { ...query.like, index: index.name };
  }
  address = location.search;
  controls.show(query);
  terms.show(query);
  library.show(index.name, query);
  bar.show(query.filters.album);
  document.title = query.text.trim() ? `${query.text.trim()} · Diptych` : "Diptych";
  byId("problem", HTMLElement).replaceChildren();
  const shown = beside ? [index, beside] : [index];
  document.body.classList.toggle("comparing", shown.length > 1);
  byId("panes", HTMLElement).classList.toggle("two", shown.length > 1);
  fitPanes(shown.length);
  if (isEmpty(query) && !wasEmpty) refresh();
  if (!isEmpty(query) && (wasEmpty || !statusLine.textContent)) statusLine.textContent = "Searching …";
  await Promise.all(panes.map((pane, number) => pane.show(shown[number], query, shown.length > 1, number ? null : spot?.id ?? null)));
  if (spot?.kind === "photo") openAgain(spot.id);
  if (!spot) scrollTo(0, 0); // another query begins at its best
}

// Learn what has changed meanwhile, by an update of an index or in another tab: numbers, folders and albums.
async function refresh() {
  const [known] = await Promise.all([api.indexes(), albums.load(albums.index)]).catch(() => [[]]); // a query says why
  for (const about of known) {
    const index = indexes.find(({ name }) => name === about.name);
    if (!index || index.images === about.images) continue;
    Object.assign(index, about);
    if (index.name === query.index) library.reload(index.name, query);
  }
  showStatus();
}

/** @param {number} number */
function fitPanes(number) {
  while (panes.length > number) panes.pop()?.close();
  while (panes.length < number) {
    const pane = new Pane({
      onOpen: open,
      onTry: change,
      onReload: start,
      onPicture: () => upload.click(),
      onChange: showStatus,
      selection,
    });
    panes.push(pane);
    byId("panes", HTMLElement).append(pane.element);
  }
}

// Open the picture that the URL names, if it is there.
/** @param {number} id */
function openAgain(id) {
  const part = panes[0].parts.find(({ list }) => list.has(id));
  if (part && panes[0].index && !viewer.isOpen) viewer.open(part, id, panes[0].index, query);
}

function showStatus() {
  const named = panes.map((pane) => (panes.length > 1 && pane.summary ? `${pane.index?.name}: ${pane.summary}` : pane.summary));
  if (!named.includes(null)) statusLine.textContent = named.filter(Boolean).join(" ");
}

/** @param {string} message @param {...HTMLElement} remedies */
function showProblem(message, ...remedies) {
  byId("problem", HTMLElement).replaceChildren(problemBox(message, ...remedies));
}

function chooseButton() {
  return make("button", { type: "button", textContent: "Choose another picture", onclick: () => upload.click() });
}

watchForPictures(
  upload,
  (file) => {
    viewer.close();
    // randomUUID exists only in secure contexts, and another device may use plain HTTP.
    pictures.set(String(crypto.getRandomValues(new BigUint64Array(1))[0]), file);
    change({ ...controls.read(), ...NOTHING, picture: file });
  },
  (message) => showProblem(message, chooseButton()),
);

addEventListener("popstate", () => {
  const isBackFromPicture = trail.arrive();
  if (viewer.isOpen) viewer.close();
  else if (isBackFromPicture) return history.back(); // the picture had been closed by other means
  const spot = trail.spot;
  const picture = (trail.picture && pictures.get(trail.picture)) || null;
  if (location.search !== address || picture !== query.picture) recall();
  else if (spot?.kind === "photo") openAgain(spot.id);
  isSettled = true;
});

document.addEventListener("visibilitychange", () => document.hidden || !indexes.length || refresh());

addEventListener(
  "scroll",
  () => {
    clearTimeout(restTimer);
    restTimer = window.setTimeout(rememberPlace, RESTED);
  },
  { passive: true },
);

function rememberPlace() {
  if (viewer.isOpen || panes.some((pane) => pane.summary === null)) return;
  const list = panes[0]?.parts.at(-1)?.list;
  trail.stay((scrollY > 0 && list?.firstVisible()) || null);
}

watchKeys({ results, controls, viewer, selection, actions, panes: () => panes });

async function start() {
  byId("problem", HTMLElement).replaceChildren();
  try {
    indexes = await api.indexes();
  } catch (problem) {
    const retry = make("button", { type: "button", textContent: "Try again", onclick: start });
    return showProblem(messageOf(problem), retry);
  }
  if (!indexes.length) {
    const retry = make("button", { type: "button", textContent: "Try again", onclick: start });
    return showProblem("The server has no index; start it with “diptych serve INDEX”.", retry);
  }
  controls.offer(indexes);
  const typed = controls.read().text; // while the page was loading
  recall(typed.trim() ? { text: typed, picture: null } : {});
}

byId("open-library", HTMLButtonElement).prepend(icon("menu"));
await start();
if (matchMedia("(hover: hover)").matches && !results.contains(document.activeElement)) {
  byId("text", HTMLElement).focus({ preventScroll: true });
}
