// Creates elements; whatever is passed in becomes text, never markup.

/** @typedef {Node | string | null | undefined} Child */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} properties properties of the element, or else attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in element) Object.assign(element, { [name]: value });
    else element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// The element with an id, which must exist and be of this type.
/**
 * @template {HTMLElement} Type
 * @param {string} id
 * @param {new () => Type} type
 * @returns {Type}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`the page has no #${id} of the expected type`);
  return element;
}

/** @param {string} text */
export function hidden(text) {
  return make("span", { className: "hidden", textContent: text });
}

/** @param {string} text */
export function quiet(text) {
  return make("p", { className: "quiet", textContent: text });
}

/** @param {number} number @param {string} noun */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** @param {number} number */
export function formatScore(number) {
  return Math.abs(number) < 100 ? number.toFixed(3) : number.toPrecision(5);
}

// A picture; if it cannot be loaded, a note takes its place.
/** @param {string} url @param {string} alt */
export function picture(url, alt = "") {
  const image = make("img", { alt, loading: "lazy", decoding: "async", draggable: false });
  const missing = make("span", { className: "missing", textContent: "no preview" });
  image.addEventListener("error", () => image.replaceWith(missing));
  image.src = url;
  return image;
}

/** @param {string} message @param {...HTMLElement} remedies buttons */
export function problemBox(message, ...remedies) {
  return make("div", { className: "problem", role: "alert" }, make("p", { textContent: message }), ...remedies);
}
