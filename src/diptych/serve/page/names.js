// How pictures, dates, times, sizes and fits are called on the page.

/** @typedef {import("./api.js").Item} Item */

const FITS = { strong: "Strong match", likely: "Likely match", possible: "Possible match", weak: "Less likely" };
const UNITS = ["bytes", "kB", "MB", "GB"];

const DAY = new Intl.DateTimeFormat("en", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });

// What a picture or a text is best called in one line: a text, else a caption, else the name of its file.
/** @param {Item} item */
export function nameOf(item) {
  return item.text ?? item.captions?.[0] ?? fileNameOf(item);
}

// The name of the file of a picture, or of the picture of a text; a frame of a video is named by the file and its time.
/** @param {Item} item */
export function fileNameOf({ kind, key, moment }) {
  const name = lastPart(kind === "text" ? key.slice(0, key.lastIndexOf("#")) : key);
  return typeof moment === "number" ? `${name.slice(0, name.lastIndexOf("#"))} at ${formatMoment(moment)}` : name;
}

// A file or a folder without the folders that it is in.
/** @param {string} path */
export function lastPart(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** @param {number} seconds */
export function formatMoment(seconds) {
  const whole = Math.floor(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const end = String(rest).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${end}` : `${minutes}:${end}`;
}

// A day such as 2026-11-16 in words; anything else is left as it is.
/** @param {string} day */
export function formatDay(day) {
  return withDate(day, DAY) ?? day;
}

/** @param {string} day */
export function monthOf(day) {
  return withDate(day, MONTH) ?? "No date";
}

/** @param {import("./api.js").Fit | undefined} fit */
export function fitWord(fit) {
  return fit ? FITS[fit] : null;
}

// Whether a hit fits its query; what was not searched for always does.
/** @param {Item} item */
export function fits(item) {
  return item.fit ? item.fit !== "weak" : item.stands_out !== false;
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const amount = bytes / 1000 ** unit;
  return `${amount.toFixed(unit && amount < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

/** @param {string} day @param {Intl.DateTimeFormat} format */
function withDate(day, format) {
  const date = new Date(`${day.slice(0, 10)}T00:00:00Z`);
  return Number.isNaN(date.getTime()) ? null : format.format(date);
}
