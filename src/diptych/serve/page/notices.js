// Short messages about what was done, each with a way to undo it where there is one.

import { byId, make } from "./element.js";
import { messageOf } from "./http.js";

const SHOWN = 8000; // milliseconds, unless the pointer or the focus is on it

/** @param {string} message @param {string} [label] of the button @param {() => void} [onClick] */
export function notify(message, label, onClick) {
  show(make("p", { textContent: message }), label, onClick);
}

/** @param {unknown} problem */
export function notifyProblem(problem) {
  show(make("p", { textContent: messageOf(problem), role: "alert" }));
}

/** @param {HTMLElement} message @param {string} [label] @param {() => void} [onClick] */
function show(message, label, onClick) {
  const notice = make("div", { className: "notice" }, message);
  if (label) {
    const act = () => {
      notice.remove();
      onClick?.();
    };
    notice.append(make("button", { type: "button", textContent: label, onclick: act }));
  }
  byId("notices", HTMLElement).replaceChildren(notice);
  const remove = () => (notice.matches(":hover, :focus-within") ? wait() : notice.remove());
  const wait = () => setTimeout(remove, SHOWN);
  wait();
}
