// How pictures, dates, times, sizes and fits are called on the page.

/** @typedef {import("./api.js").Item} Item */

const FITS = { strong: "Strong match", likely: "Likely match", possible: "Possible match", weak: "Less likely" };
const UNITS = ["bytes", "kB", "MB", "GB"];

const DAY = new Intl.DateTimeFormat("en", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });

// What a picture or a text is best called in one line: a text, else a caption, else the name of its file.
/** @param {Item} item */
export function nameOf(item) {
  return item.text ?? item.captions?.[0] ?? fileName(item.key);
}

// The name of a file without its folders; a moment of a video is named by the file and the time.
/** @param {string} key */
export function fileName(key) {
  const name = key.slice(key.lastIndexOf("/") + 1);
  const moment = momentOf(key);
  return moment === null ? name : `${name.slice(0, name.lastIndexOf("#"))} at ${formatMoment(moment)}`;
}

// The second of a video that a key such as holiday.mp4#12.0 names.
/** @param {string} key */
export function momentOf(key) {
  const found = /\.\w+#(\d+(?:\.\d+)?)$/.exec(key);
  return found ? Number(found[1]) : null;
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
