// A list of hits, each a button; the arrow keys move between them as they are laid out on the screen.

import * as api from "./api.js";
import { formatScore, hidden, make, picture } from "./element.js";

/** @typedef {(score: number) => number} Scale */

/** @param {api.Hit[]} hits @param {string} index @param {Scale} scale @param {(position: number) => void} onOpen */
export function hitList(hits, index, scale, onOpen) {
  const buttons = hits.map((hit) => hitButton(hit, index, scale));
  buttons.forEach((button, position) => button.addEventListener("click", () => onOpen(position)));
  const kind = hits.every((hit) => hit.kind === "text") ? "texts" : "images";
  return make("ol", { className: `hits ${kind}`, role: "list" }, ...buttons.map((button) => make("li", {}, button)));
}

// The length of a hit's bar: 1 for the best score of the answer, 0 for the lowest, or for 0 if all are positive.
/** @param {api.Hit[]} hits @returns {Scale} */
export function scaleOf(hits) {
  const scores = hits.map((hit) => hit.score);
  const low = Math.min(0, ...scores);
  const range = Math.max(...scores) - low;
  return (score) => (range > 0 ? (score - low) / range : 1);
}

/** @param {api.Hit} hit */
export function nameOf(hit) {
  return hit.text ?? hit.captions?.[0] ?? hit.key;
}

/** @param {api.Hit} hit @param {string} index @param {Scale} scale */
function hitButton(hit, index, scale) {
  const bar = make("span", { className: "reach" });
  bar.style.setProperty("--reach", scale(hit.score).toFixed(3));
  const near = hit.near.length;
  const similar = near ? make("span", { className: "near", textContent: `+${near} similar` }) : null;
  const shown = hit.image === null ? null : picture(api.imageUrl(hit.image, index, "thumbnail"));
  return make(
    "button",
    { type: "button", className: hit.stands_out ? "hit" : "hit faint" },
    shown && make("span", { className: "tile" }, shown),
    make(
      "span",
      { className: "about" },
      make("span", { className: "caption", dir: "auto", textContent: nameOf(hit) }),
      hidden(", "),
      similar,
      hidden(" score "),
      make("span", { className: "score", textContent: formatScore(hit.score) }),
      hit.stands_out ? null : hidden(", does not stand out"),
      bar,
    ),
  );
}

// Moves the focus to the hit that lies in the direction of an arrow key.
/** @param {KeyboardEvent} event @param {HTMLElement} root */
export function moveByKey(event, root) {
  const buttons = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("button.hit")]);
  const current = buttons.findIndex((button) => event.target instanceof Node && button.contains(event.target));
  if (current < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  /** @type {Record<string, number>} */
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -current, End: buttons.length - 1 - current };
  const isStep = event.key in steps;
  const next = isStep ? buttons[current + steps[event.key]] : nearestInColumn(buttons, current, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** @param {HTMLElement[]} buttons @param {number} current @param {string} key */
function nearestInColumn(buttons, current, key) {
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  const isDown = key === "ArrowDown";
  const from = buttons[current].getBoundingClientRect();
  const beyond = buttons.filter((button) => {
    const { top } = button.getBoundingClientRect();
    return isDown ? top > from.top + 1 : top < from.top - 1;
  });
  /** @param {HTMLElement} button */
  const distance = (button) => {
    const { left, top } = button.getBoundingClientRect();
    return Math.abs(left - from.left) + Math.abs(top - from.top);
  };
  return beyond.sort((a, b) => distance(a) - distance(b)).at(0);
}
