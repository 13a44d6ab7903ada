// The keys of the page outside of its dialogs.

import { idOf } from "./grid.js";

/**
 * @typedef {object} Page
 * @property {HTMLElement} results
 * @property {import("./controls.js").Controls} controls
 * @property {import("./viewer.js").Viewer} viewer
 * @property {import("./selection.js").Selection} selection
 * @property {import("./actions.js").Actions} actions
 * @property {() => import("./pane.js").Pane[]} panes
 */

/** @param {Page} page */
export function watchKeys(page) {
  document.addEventListener("keydown", (event) => {
    if (!(event.target instanceof Element) || event.altKey || page.viewer.isOpen) return;
    const isTyping = event.target.closest("input:not([type=radio]), select, textarea, dialog");
    const isControl = event.ctrlKey || event.metaKey;
    if (isControl && event.key === "a" && !isTyping) act(event, () => selectAll(page));
    else if (isControl) return;
    else if (event.key === "/" && !isTyping) act(event, () => page.controls.focus());
    else if (event.key === "Escape" && !isTyping) page.selection.clear();
    else if (event.key === "ArrowDown" && event.target.id === "text") act(event, () => focusFirst(page));
    else if (!isTyping) onItem(event, event.target, page);
  });
}

/** @param {KeyboardEvent} event @param {() => void} action */
function act(event, action) {
  event.preventDefault();
  action();
}

// Keys on a picture or a text that was found.
/** @param {KeyboardEvent} event @param {Element} target @param {Page} page */
function onItem(event, target, { actions, panes }) {
  const id = idOf(target) ?? Number(target.closest("button.hit")?.getAttribute("data-id") ?? NaN);
  const parts = panes().flatMap((pane) => pane.parts);
  const part = parts.find(({ list }) => list.element.contains(target));
  if (!part || Number.isNaN(id)) return;
  const { list } = part;
  if (event.key === "x" && "toggle" in list) return act(event, () => list.toggle(id));
  if (event.key === "X" && "toggle" in list) return act(event, () => list.toggle(id, true));
  if (event.key === "f" && "toggle" in list) return act(event, () => actions.toggleFavourite(id));
  const next = list.neighbour(id, event.key);
  if (next !== undefined) return act(event, () => list.focus(next));
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const beyond = step && parts[parts.indexOf(part) + step];
  if (beyond) act(event, () => beyond.list.focusFirst());
}

/** @param {Page} page */
function focusFirst({ results, panes }) {
  const lists = panes().flatMap((pane) => pane.parts.map(({ list }) => list));
  const list = lists.find(({ items }) => items.length);
  if (list) return list.focusFirst();
  const example = results.querySelector("button.example");
  if (example instanceof HTMLElement) example.focus();
}

// Select everything that is listed by date, or everything that was found and fits.
/** @param {Page} page */
async function selectAll({ panes, selection }) {
  const pane = panes().find(({ element }) => element.contains(document.activeElement)) ?? panes()[0];
  const part = pane?.parts.filter(({ list }) => "toggle" in list).at(-1);
  if (part && pane.index) selection.set(pane.index.name, await part.all(), true);
}
