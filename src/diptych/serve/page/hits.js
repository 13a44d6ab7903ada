// A list of hits, each a button; the arrow keys move between them as they lie on the screen.

import * as api from "./api.js";
import { hidden, make, picture, score } from "./element.js";

export function hitList(hits, index, scale, open) {
  const buttons = hits.map((hit) => hitButton(hit, index, scale));
  buttons.forEach((button, place) => button.addEventListener("click", () => open(place, buttons)));
  const kind = hits.every((hit) => hit.kind === "text") ? "texts" : "images";
  return make("ol", { className: `hits ${kind}`, role: "list" }, ...buttons.map((button) => make("li", {}, button)));
}

// The length of a hit's bar: 1 is the best score of the answer, 0 the lowest, or a score of 0 if all are above it.
export function scaleOf(hits) {
  const scores = hits.map((hit) => hit.score);
  const low = Math.min(0, ...scores);
  const range = Math.max(...scores) - low;
  return (value) => (range > 0 ? (value - low) / range : 1);
}

export function nameOf(hit) {
  return hit.text ?? hit.captions?.[0] ?? hit.key;
}

function hitButton(hit, index, scale) {
  const bar = make("span", { className: "reach" });
  bar.style.setProperty("--reach", scale(hit.score).toFixed(3));
  const near = hit.near.length;
  const alike = near ? make("span", { className: "alike", textContent: `+${near} alike` }) : null;
  const shown = hit.image === null ? null : picture(api.image(hit.image, index, "thumbnail"));
  return make(
    "button",
    { type: "button", className: hit.stands_out ? "hit" : "hit faint" },
    shown && make("span", { className: "tile" }, shown),
    make(
      "span",
      { className: "about" },
      make("span", { className: "caption", dir: "auto", textContent: nameOf(hit) }),
      hidden(", "),
      alike,
      hidden(" score "),
      make("span", { className: "score", textContent: score(hit.score) }),
      hit.stands_out ? null : hidden(", does not stand out"),
      bar,
    ),
  );
}

// For a keydown on the results: the hit that lies in the direction of the key.
export function moveByKey(event, root) {
  const buttons = [...root.querySelectorAll("button.hit")];
  const here = buttons.indexOf(event.target.closest?.("button.hit"));
  if (here < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -here, End: buttons.length - 1 - here };
  const to = event.key in steps ? buttons[here + steps[event.key]] : nearestInColumn(buttons, here, event.key);
  if (!to) return;
  event.preventDefault();
  to.focus();
}

function nearestInColumn(buttons, here, key) {
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  const down = key === "ArrowDown";
  const from = buttons[here].getBoundingClientRect();
  const beyond = buttons.filter((button) => {
    const { top } = button.getBoundingClientRect();
    return down ? top > from.top + 1 : top < from.top - 1;
  });
  const distance = (button) => {
    const { left, top } = button.getBoundingClientRect();
    return Math.abs(left - from.left) + Math.abs(top - from.top);
  };
  return beyond.sort((a, b) => distance(a) - distance(b))[0];
}
