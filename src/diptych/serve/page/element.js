// Elements from words: whatever is put in becomes text, never markup.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function hidden(text) {
  return make("span", { className: "hidden", textContent: text });
}

export function quiet(text) {
  return make("p", { className: "quiet", textContent: text });
}

export function count(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

export function score(number) {
  return Math.abs(number) < 100 ? number.toFixed(3) : number.toPrecision(5);
}

// A picture that cannot be had leaves its box as it is, with a word in it.
export function picture(address, alt = "") {
  const image = make("img", { alt, loading: "lazy", decoding: "async", draggable: false });
  const missing = make("span", { className: "missing", textContent: "no preview" });
  image.addEventListener("error", () => image.replaceWith(missing));
  image.src = address;
  return image;
}
