// Icons, and buttons with an icon.

import { hidden, make } from "./element.js";

// The shapes of icons, 20 by 20.
const ICONS = {
  album: "M3 6.5h14v10H3zM5 3.5h10M7 9.5h6",
  check: "M4.5 10.5l3.5 3.5 7.5-8",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h9v9H7zM13 7V4H4v9h3",
  delete: "M4 6h12M8 6V3.5h4V6M5.5 6l.8 10.5h7.4L14.5 6",
  download: "M10 3.5v9M6 9l4 4 4-4M4 16.5h12",
  folder: "M2.5 5h5l2 2h8v8.5h-15z",
  heart: "M10 16.5C4 12.5 2.5 9.5 2.5 7.3a3.8 3.8 0 0 1 7.5-1 3.8 3.8 0 0 1 7.5 1c0 2.2-1.5 5.2-7.5 9.2z",
  less: "M4 10h12",
  menu: "M3 5.5h14M3 10h14M3 14.5h14",
  more: "M10 4v12M4 10h12",
  next: "M7.5 4l6 6-6 6",
  open: "M8 4.5H4v11.5h11.5V12M11 3.5h5.5V9M16.5 3.5L9.5 10.5",
  photos: "M3 4.5h14v11H3zM3 13l4-4 4.5 4.5 2-2 3.5 3.5M13 8h.01",
  previous: "M12.5 4l-6 6 6 6",
  rename: "M4 16l1-4L13.5 3.5l3 3L8 15z",
  similar: "M3 3h8v8H3zM9 9h8v8H9z",
  zoom: "M8.5 3.5a5 5 0 1 0 0 10a5 5 0 1 0 0-10zM12.5 12.5l4.5 4.5M8.5 6v5M6 8.5h5",
};

/** @typedef {keyof typeof ICONS} Icon */

/** @param {Icon} name */
export function icon(name) {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", ICONS[name]);
  const image = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  image.setAttribute("viewBox", "0 0 20 20");
  image.setAttribute("aria-hidden", "true");
  image.classList.add("icon");
  image.append(shape);
  return image;
}

// A control with a name, by which it is found when it has been made again.
/** @template {HTMLElement} Control @param {string} name @param {Control} control */
export function named(name, control) {
  control.dataset.control = name;
  return control;
}

// A button with an icon; its label is shown beside it, or only as a hint.
/** @param {Icon} name @param {string} label @param {() => void} onclick */
export function iconButton(name, label, onclick, isLabelled = true) {
  const text = isLabelled ? make("span", { textContent: label }) : hidden(label);
  const title = isLabelled ? undefined : label;
  return make("button", { type: "button", className: isLabelled ? "labelled" : "sign", title, onclick }, icon(name), text);
}
