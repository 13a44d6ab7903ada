// What is known about a picture: date, camera, place, folder, text in it, albums, and how well it fits the query.

import { formatScore, make } from "./element.js";
import { fitWord, formatBytes, formatDay, formatMoment } from "./names.js";

/**
 * @typedef {import("./api.js").Item} Item
 * @typedef {import("./api.js").Details} Details
 *
 * @typedef {object} FactCallbacks
 * @property {(folder: string) => void} onFolder
 * @property {(album: number) => void} onAlbum
 */

// The facts that come with the item, until its details have been loaded; only they say what its date is the date of.
/** @param {Item} item @returns {HTMLElement[]} */
export function itemFacts(item) {
  const captions = item.kind === "text" ? [item.text ?? ""] : (item.captions ?? []);
  return [captionList(captions), list([...match(item), ["Size", size(item)], ...others(item)])];
}

/** @param {Item} item @param {Details} details @param {FactCallbacks} callbacks @returns {HTMLElement[]} */
export function allFacts(item, details, { onFolder, onAlbum }) {
  const { folder, albums, moment, words, bytes } = details;
  const captions = item.kind === "text" ? [item.text ?? ""] : details.captions;
  const dated = details.day_source === "taken" ? "Date" : "File date";
  const dimensions = [size(details), bytes === null ? null : formatBytes(bytes)].filter(Boolean).join(", ");
  return [
    captionList(captions),
    list([
      ...match(item),
      [dated, details.day ? formatDay(details.day) : null],
      ["Moment", moment === null ? null : formatMoment(moment)],
      ["Camera", details.camera],
      ["Place", place(details)],
      ["Size", dimensions],
      ["Folder", folder ? link(folder, () => onFolder(folder)) : null],
      ["Albums", albums.length ? make("span", {}, ...albums.map(({ id, name }) => link(name, () => onAlbum(id)))) : null],
      ["Words in the picture", words],
      ...others(item),
    ]),
  ];
}

/** @typedef {[string, HTMLElement | string | null | undefined]} Fact */

// How well a hit fits the query; only here, in numbers.
/** @param {Item} item @returns {Fact[]} */
function match({ fit, probability, score }) {
  if (score === undefined) return [];
  const share = typeof probability === "number" ? ` (${Math.round(100 * probability)}%)` : "";
  const word = fitWord(fit);
  return [["Match", word && word + share], ["Score", formatScore(score)]];
}

/** @param {Item} item @returns {Fact[]} */
function others({ split, columns }) {
  return [["Split", split], ...Object.entries(columns)];
}

/** @param {{ width: number, height: number }} picture */
function size({ width, height }) {
  return width && height ? `${width} × ${height}` : null;
}

// Coordinates, with a map that is only loaded from elsewhere if the user follows the link.
/** @param {Details} details */
function place({ latitude, longitude }) {
  if (latitude === null || longitude === null) return null;
  const [north, east] = [latitude.toFixed(5), longitude.toFixed(5)];
  const href = `https://www.openstreetmap.org/?mlat=${north}&mlon=${east}#map=14/${north}/${east}`;
  const name = `${degrees(latitude, "N", "S")}, ${degrees(longitude, "E", "W")}`;
  const map = make("a", { href, target: "_blank", rel: "noopener noreferrer", textContent: "Map on openstreetmap.org" });
  return make("span", {}, `${name} `, map);
}

/** @param {number} angle @param {string} positive @param {string} negative */
function degrees(angle, positive, negative) {
  return `${Math.abs(angle).toFixed(4)}° ${angle < 0 ? negative : positive}`;
}

/** @param {string} text @param {() => void} onclick */
function link(text, onclick) {
  return make("button", { type: "button", className: "link", dir: "auto", textContent: text, onclick });
}

/** @param {string[]} captions */
function captionList(captions) {
  const items = captions.map((text) => make("li", { dir: "auto", textContent: text }));
  return make("ul", { className: "captions", role: "list", hidden: !items.length }, ...items);
}

/** @param {Fact[]} facts */
function list(facts) {
  const known = facts.filter(([, value]) => value);
  const pairs = known.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { dir: "auto" }, value)));
  return make("dl", {}, ...pairs);
}
