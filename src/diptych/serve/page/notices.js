// Short messages about what was done, each with a way to undo it where there is one.

import { byId, make } from "./element.js";
import { messageOf } from "./http.js";

const SHOWN = 8000; // milliseconds, unless the pointer or the focus is on it
const SHOWN_BRIEFLY = 4000; // what needs no answer
const board = byId("notices", HTMLElement);

document.addEventListener("close", place, { capture: true }); // of a dialog

/** @param {string} message @param {string} [label] of the button @param {() => void} [onClick] */
export function notify(message, label, onClick) {
  show(make("p", { textContent: message }), label ? SHOWN : SHOWN_BRIEFLY, label, onClick);
}

/** @param {unknown} problem */
export function notifyProblem(problem) {
  show(make("p", { textContent: messageOf(problem), role: "alert" }), SHOWN);
}

/** @param {HTMLElement} message @param {number} milliseconds @param {string} [label] @param {() => void} [onClick] */
function show(message, milliseconds, label, onClick) {
  const notice = make("div", { className: "notice" }, message);
  if (label) {
    const act = () => {
      notice.remove();
      onClick?.();
    };
    notice.append(make("button", { type: "button", textContent: label, onclick: act }));
  }
  place();
  board.replaceChildren(notice);
  const remove = () => (notice.matches(":hover, :focus-within") ? wait() : notice.remove());
  const wait = () => setTimeout(remove, milliseconds);
  wait();
}

// An open dialog covers what is outside of it and makes it inert, so notices are shown inside the one on top.
function place() {
  const parent = [...document.querySelectorAll("dialog:modal")].at(-1) ?? document.body;
  if (board.parentElement !== parent) parent.append(board);
}
