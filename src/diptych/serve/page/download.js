// A download that the browser writes to disk while it arrives, however large; only an error comes back to the page.

import { make } from "./element.js";
import { NO_RESPONSE, toSentence } from "./http.js";

let started = 0;

/** @param {string} url @param {unknown} body of a POST request @param {(message: string) => void} onProblem */
export function download(url, body, onProblem) {
  started += 1;
  const frame = make("iframe", { name: `download-${started}`, hidden: true });
  const field = make("input", { type: "hidden", name: "body", value: JSON.stringify(body) });
  const form = make("form", { method: "post", action: url, target: frame.name, hidden: true }, field);
  document.body.append(frame, form);
  // A frame has loaded something only if it is not a download.
  frame.addEventListener("load", () => {
    if (frame.contentDocument?.URL === "about:blank") return;
    onProblem(reason(frame.contentDocument));
    frame.remove();
  });
  form.submit();
  form.remove();
}

// The error in a document; the browser's own error page cannot be read.
/** @param {Document | null} content */
function reason(content) {
  try {
    return toSentence(JSON.parse(content?.body.textContent ?? "")) ?? NO_RESPONSE;
  } catch {
    return NO_RESPONSE;
  }
}
