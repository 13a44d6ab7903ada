// The pictures of an index by date, newest first, and examples of queries.

import { FAVOURITES } from "./albums.js";
import * as api from "./api.js";
import { count, make } from "./element.js";
import { FIRST, Feed } from "./feed.js";
import { Grid } from "./grid.js";
import { Problem } from "./http.js";
import { monthOf } from "./names.js";
import { Part } from "./part.js";
import { isUnfiltered } from "./query.js";

/**
 * @typedef {import("./query.js").Query} Query
 * @typedef {import("./part.js").Page} Page
 * @typedef {import("./pane.js").View} View
 * @typedef {import("./pane.js").Callbacks} Callbacks
 */

const NOT_SUPPORTED = 409;
const HOW = "Describe what a picture shows, or drop a picture here to find similar ones.";

/**
 * @param {api.Index} index @param {Query} query @param {AbortSignal} signal @param {Callbacks} callbacks
 * @returns {Promise<View>}
 */
export async function homeView(index, query, signal, callbacks) {
  const { filters } = query;
  const isWhole = isUnfiltered(filters);
  /** @type {Feed<Page>} */
  const feed = new Feed(async (cursor, k) => {
    const { images, next } = await api.home({ index: index.name, filters, k, cursor }, signal);
    return { items: images, next };
  }, signal);
  const examples = isWhole ? exampleList(index, signal, (text) => callbacks.onTry({ text })) : null;
  const first = await feed.next(FIRST).catch(listedNowhere);
  const grid = new Grid({
    index: index.name,
    selection: callbacks.selection,
    titles: [],
    titleOf: (item) => monthOf(item.day ?? ""),
    onOpen: (id) => callbacks.onOpen(part, id, index, query),
    onNearEnd: () => part.more(),
  });
  const part = new Part(grid, feed, callbacks.onChange);
  if (!first) return hint(index, examples);
  grid.append(first.items);
  const nodes = [examples, first.items.length ? part.element : emptyPlace(filters)];
  return {
    nodes: nodes.filter((node) => node !== null),
    parts: [part],
    summary: () => summarise(index, part, isWhole),
  };
}

// An index whose backend cannot list its pictures by date can still be searched.
/** @param {unknown} problem */
function listedNowhere(problem) {
  if (problem instanceof Problem && problem.status === NOT_SUPPORTED) return null;
  throw problem;
}

/** @param {api.Index} index @param {HTMLElement | null} examples @returns {View} */
function hint(index, examples) {
  const lead = make("p", { className: "lead", textContent: `${contents(index)} to search.` });
  const box = make("div", { className: "hint" }, lead, make("p", { textContent: HOW }));
  return { nodes: examples ? [box, examples] : [box], parts: [], summary: () => "" };
}

/** @param {import("./query.js").Filters} filters */
function emptyPlace({ folder, album, ...others }) {
  const choose = album === String(FAVOURITES) ? "Favourite" : "Add to album";
  const fill = `Select pictures and choose “${choose}”, or open one.`;
  const isNarrowed = !isUnfiltered({ ...others, folder: "", album: "" });
  const how = isNarrowed ? "Remove a filter to see more." : album ? fill : "Choose another folder.";
  const lead = make("p", { className: "lead", textContent: "There is no picture here." });
  return make("div", { className: "hint" }, lead, make("p", { textContent: how }));
}

/** @param {api.Index} index @param {Part} part @param {boolean} isWhole */
function summarise(index, part, isWhole) {
  if (isWhole) return `${contents(index)}, newest first.`;
  if (!part.list.items.length) return "No images.";
  const loaded = count(part.list.items.length, "image");
  return `${part.isComplete ? "" : "More than "}${loaded}, newest first.`;
}

/** @param {api.Index} index */
function contents({ images, texts }) {
  return [images && count(images, "image"), texts && count(texts, "caption")].filter(Boolean).join(" and ");
}

/** @param {api.Index} index @param {AbortSignal} signal @param {(text: string) => void} onChosen */
function exampleList(index, signal, onChosen) {
  const list = make("ul", { className: "examples", role: "list", "aria-label": "Examples" });
  api.examples(index.name, signal).then(
    (texts) =>
      list.append(
        ...texts.map((text) => {
          const onclick = () => onChosen(text);
          return make("li", {}, make("button", { type: "button", className: "example", dir: "auto", textContent: text, onclick }));
        }),
      ),
    () => (list.hidden = true), // the page works without them, and a real query will show what is wrong
  );
  return list;
}
