// The answer of one index to a query: what was found, what is less likely, and what to try if nothing was found.

import * as api from "./api.js";
import { count, make } from "./element.js";
import { FIRST, Feed } from "./feed.js";
import { Grid } from "./grid.js";
import { fits } from "./names.js";
import { nothingFound } from "./nothing_found.js";
import { Part } from "./part.js";
import { isQuoted, withoutQuotes } from "./query.js";
import { TextList } from "./text_list.js";

/**
 * @typedef {import("./query.js").Query} Query
 * @typedef {import("./part.js").Page} Page
 * @typedef {import("./pane.js").View} View
 * @typedef {import("./pane.js").Callbacks} Callbacks
 */

const CAPTIONS = 6; // shown for a picture
const LESS_LIKELY = "Less likely";
const SHOWN = 80; // characters of a query in the sentence about its answer

/**
 * @param {api.Index} index @param {Query} query @param {AbortSignal} signal @param {Callbacks} callbacks
 * @returns {Promise<View>}
 */
export async function resultsView(index, query, signal, callbacks) {
  const byPicture = Boolean(query.like || query.picture);
  const request = await requester(index, query, signal);
  const captions = byPicture && index.texts ? [await captionPart(index, query, request, signal, callbacks)] : [];
  const isShown = index.images || !byPicture;
  const main = isShown ? [await mainPart(index, query, request, signal, callbacks)] : [];
  return {
    nodes: [...captions, ...main].flatMap(({ nodes }) => nodes),
    parts: [...captions, ...main].map(({ part }) => part),
    summary: () => (main[0] ?? captions[0])?.summary() ?? "",
  };
}

/** @typedef {(to: api.Kind, cursor: string | null, k: number) => Promise<api.Answer>} Request */

/** @param {api.Index} index @param {Query} query @param {Request} request @param {AbortSignal} signal @param {Callbacks} callbacks */
async function mainPart(index, query, request, signal, callbacks) {
  const to = query.like || query.picture ? "image" : query.to;
  /** @type {Feed<Page>} */
  const feed = new Feed(async (cursor, k) => toPage(await request(to, cursor, k)), signal);
  const first = await feed.next(FIRST);
  /** @type {Part} */
  const part = new Part(makeList(index, to, callbacks, () => part, query), feed, callbacks.onChange);
  part.list.append(first?.items ?? []);
  const answer = first?.answer;
  const byPicture = Boolean(query.like || query.picture);
  const title = byPicture && index.texts ? make("h3", { className: "title", textContent: "Similar images" }) : null;
  const nodes = [title, ...(answer ? notes(answer, query, callbacks) : []), part.element];
  return {
    part,
    nodes: nodes.filter((node) => node instanceof HTMLElement),
    summary: () => (answer ? summarise(answer, part, query) : ""),
  };
}

// The captions that describe a picture best: a few, and no more.
/** @param {api.Index} index @param {Query} query @param {Request} request @param {AbortSignal} signal @param {Callbacks} callbacks */
async function captionPart(index, query, request, signal, callbacks) {
  /** @type {Feed<Page>} */
  const feed = new Feed(async () => ({ ...toPage(await request("text", null, CAPTIONS)), next: null }), signal);
  const first = await feed.next(CAPTIONS);
  /** @type {Part} */
  const part = new Part(makeList(index, "text", callbacks, () => part, query), feed, callbacks.onChange);
  part.list.append(first?.items ?? []);
  const answer = first?.answer;
  return {
    part,
    nodes: [make("h3", { className: "title", textContent: "Captions" }), part.element],
    summary: () => (answer ? summarise(answer, part, query) : ""),
  };
}

/** @param {api.Index} index @param {api.Kind} to @param {Callbacks} callbacks @param {() => Part} part @param {Query} query */
function makeList(index, to, callbacks, part, query) {
  const onOpen = (/** @type {number} */ id) => callbacks.onOpen(part(), id, index, query);
  if (to === "text") return new TextList(index.name, onOpen, () => part().more());
  return new Grid({
    index: index.name,
    selection: callbacks.selection,
    titles: ["", LESS_LIKELY],
    titleOf: (item) => (fits(item) ? "" : LESS_LIKELY),
    onOpen,
    onNearEnd: () => part().more(),
  });
}

/** @param {api.Answer} answer @returns {Page} */
function toPage(answer) {
  return { items: answer.hits, next: answer.next, answer };
}

// How a query is sent: as words, or as the picture of an entry or of the user.
/** @param {api.Index} index @param {Query} query @param {AbortSignal} signal @returns {Promise<Request>} */
async function requester(index, query, signal) {
  const { like, text, filters } = query;
  /** @param {api.Kind} to @param {string | null} cursor @param {number} k @returns {api.Options} */
  const options = (to, cursor, k) => ({ index: index.name, to, cursor, k, filters });
  const isElsewhere = like && like.index !== index.name; // another index does not know the id, so its bytes are sent
  const picture = isElsewhere ? await api.imageBytes(like.id, like.index, signal) : query.picture;
  return (to, cursor, k) => {
    if (picture) return api.similarTo(picture, text, options(to, cursor, k), signal);
    if (like) return api.similar(like.id, text, options(to, cursor, k), signal);
    return api.search(query, options(to, cursor, k), signal);
  };
}

/** @param {api.Answer} answer @param {Query} query @param {Callbacks} callbacks */
function notes(answer, query, callbacks) {
  const { suggestion, message, found } = answer;
  const apply = () => callbacks.onTry({ text: suggestion ?? "" });
  const button = make("button", { type: "button", className: "suggestion", dir: "auto", textContent: suggestion, onclick: apply });
  return [
    suggestion ? make("p", { className: "note" }, "Did you mean ", button, "?") : null,
    found ? message && make("p", { className: "note", textContent: message }) : nothingFound(answer, query, callbacks.onTry),
  ];
}

/** @param {api.Answer} answer @param {Part} part @param {Query} query */
function summarise({ to, searched, milliseconds }, part, query) {
  const what = subject(query);
  const { items } = part.list;
  if (!items.length) return `No results ${what}.`;
  const clear = items.filter(fits).length;
  const kind = to === "text" ? "caption" : "image";
  const isOpen = clear === items.length && !part.isComplete;
  const found = clear ? `${isOpen ? "More than " : ""}${count(clear, kind)} ${what}` : `Nothing fits well ${what}`;
  const time = Math.max(1, Math.round(milliseconds));
  return `${found}, of ${searched.toLocaleString("en")}, in ${time} ms.`;
}

// What was searched for, such as: for “at night” and similar to the picture.
/** @param {Query} query */
function subject({ text, like, picture, more }) {
  const words = isQuoted(text) ? withoutQuotes(text) : text.trim();
  const shown = words.length > SHOWN ? `${words.slice(0, SHOWN).trimEnd()} …` : words;
  const example = like || picture ? "similar to the picture" : more.length ? "like these" : "";
  return [words && `for “${shown}”`, example].filter(Boolean).join(" and ");
}
