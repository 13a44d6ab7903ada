// Small dialogs: a name to type, a decision to confirm, an album to choose. Each is answered by a promise.

import { AlbumList } from "./album_list.js";
import { make } from "./element.js";

/** @typedef {import("./albums.js").Album} Album */

// The name that was typed, or null if there is none.
/** @param {string} title @param {string} action @param {string} [value] @returns {Promise<string | null>} */
export async function askName(title, action, value = "") {
  const input = make("input", { type: "text", value, required: true, maxLength: 200, "aria-label": "Name", autocomplete: "off" });
  const answer = await ask(title, action, input, () => input.value.trim() || null);
  return answer;
}

/** @param {string} title @param {string} text @param {string} action @returns {Promise<boolean>} */
export async function askConsent(title, text, action) {
  return (await ask(title, action, make("p", { textContent: text }), () => true)) ?? false;
}

// An album that was chosen, or the name of a new one.
/** @param {Album[]} albums @param {string} title @returns {Promise<Album | string | null>} */
export function askAlbum(albums, title) {
  /** @type {Album | null} */
  let chosen = null;
  const list = new AlbumList((album) => {
    const name = make("span", { className: "name", dir: "auto", textContent: album.name });
    return make("button", { type: "submit", className: "row", onclick: () => (chosen = album) }, name);
  });
  list.show(albums, true);
  const answer = ask(title, "Add", list.element, () => chosen ?? (list.typed || null));
  const input = /** @type {HTMLInputElement} */ (list.element.querySelector("input"));
  input.placeholder = albums.length ? "Find an album, or name a new one" : "Name a new album";
  input.setAttribute("aria-label", input.placeholder);
  return answer;
}

/**
 * @template Answer
 * @param {string} title @param {string} action the label of the button that answers
 * @param {HTMLElement} content @param {() => Answer | null} read
 * @returns {Promise<Answer | null>}
 */
function ask(title, action, content, read) {
  const { promise, resolve } = defer();
  const cancel = make("button", { type: "button", textContent: "Cancel", onclick: () => dialog.close() });
  const submit = make("button", { type: "submit", className: "primary", textContent: action });
  const form = make(
    "form",
    { method: "dialog" },
    make("h2", { id: "asked", textContent: title }),
    content,
    make("div", { className: "actions" }, cancel, submit),
  );
  const dialog = make("dialog", { className: "ask", "aria-labelledby": "asked" }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const answer = read();
    if (answer === null) return;
    resolve(answer);
    dialog.close();
  });
  dialog.addEventListener("close", () => {
    resolve(null);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  const first = content instanceof HTMLInputElement ? content : (content.querySelector("input") ?? submit);
  first.focus();
  return promise;
}

function defer() {
  /** @type {(value: any) => void} */
  let resolve = () => {};
  const promise = new Promise((resolved) => (resolve = resolved));
  return { promise, resolve };
}
