// A picture in the grid: a button that opens it, its name and fit, and a circle that selects it.

import { imageUrl } from "./api.js";
import { hidden, make, picture } from "./element.js";
import { icon } from "./icons.js";
import { fileNameOf, fitWord, formatMoment, nameOf } from "./names.js";

/** @typedef {import("./api.js").Item} Item */

/** @param {Item} item @param {string} index @param {boolean} isSelected */
export function makeTile(item, index, isSelected) {
  const near = item.near?.length ?? 0;
  const { moment } = item;
  const fit = fitWord(item.fit);
  const shown = item.image === null ? null : picture(imageUrl(item.image, index, "thumbnail"));
  const open = make(
    "button",
    { type: "button", className: "hit", tabIndex: -1, "aria-keyshortcuts": "x f" },
    shown,
    make(
      "span",
      { className: "about" },
      make("span", { className: "caption", dir: "auto", textContent: nameOf(item) }),
      fit && hidden(", "),
      fit && make("span", { className: "fit", textContent: fit }),
      item.captions?.length ? hidden(`, ${fileNameOf(item)}`) : null,
    ),
    make(
      "span",
      { className: "badges" },
      typeof moment === "number" ? make("span", { className: "badge", textContent: `▶ ${formatMoment(moment)}` }) : null,
      near ? make("span", { className: "badge near", textContent: `+${near} similar` }) : null,
    ),
  );
  const check = make("button", { type: "button", className: "check", tabIndex: -1 }, icon("check"), hidden(`Select ${fileNameOf(item)}`));
  const tile = make("li", { className: "tile" }, open, check);
  tile.dataset.id = String(item.id);
  markSelected(tile, isSelected);
  return tile;
}

/** @param {HTMLElement} tile @param {boolean} isSelected */
export function markSelected(tile, isSelected) {
  tile.classList.toggle("selected", isSelected);
  tile.querySelector(".check")?.setAttribute("aria-pressed", String(isSelected));
}

/** @param {HTMLElement} tile @param {import("./rows.js").Box} box */
export function placeTile(tile, { left, top, width, height }) {
  tile.style.setProperty("transform", `translate(${left}px, ${top}px)`);
  tile.style.setProperty("width", `${width}px`);
  tile.style.setProperty("height", `${height}px`);
}
