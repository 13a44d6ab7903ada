// The words of a query, each marked by how it changes the score: by colour, by the line below it, and in text.

import { explain } from "./api.js";
import { hidden, make, quiet } from "./element.js";
import { messageOf } from "./http.js";

/** @typedef {import("./api.js").Index} Index */
/** @typedef {import("./api.js").Word} Word */
/** @typedef {import("./query.js").Query} Query */
/** @typedef {keyof typeof EFFECTS} Effect */

const NEGLIGIBLE = 0.02; // relative to the most important word
const EFFECTS = {
  helps: "raises the score",
  harms: "lowers the score",
  unknown: "is unknown to the model",
  plain: "has little effect",
};

// The words of the query, once their importance for a picture is known.
/** @param {number} image @param {Index} index @param {Query} query @param {AbortSignal} signal */
export function importance(image, index, query, signal) {
  const shown = make("div", { className: "explained" }, quiet("Computing the importance of each word …"));
  explain(image, query.text, index.name, signal).then(
    ({ words }) => shown.replaceChildren(make("h3", { textContent: "Which words matched" }), ...wordImportance(words)),
    (problem) => signal.aborted || shown.replaceChildren(quiet(messageOf(problem))),
  );
  return shown;
}

/** @param {Word[]} words */
function wordImportance(words) {
  const largest = Math.max(...words.map(({ importance }) => Math.abs(importance ?? 0)));
  const list = make("ol", { className: "words", role: "list" }, ...words.map((word) => wordItem(word, largest)));
  const present = new Set(words.map(({ importance }) => effectOf(importance, largest)));
  const legend = /** @type {Effect[]} */ (["helps", "harms", "unknown"]).filter((effect) => present.has(effect));
  const items = legend.map((effect) => {
    const sample = make("span", { className: `word ${effect}`, textContent: "word" });
    return make("li", {}, sample, ` ${EFFECTS[effect]}`);
  });
  return [list, make("ul", { className: "legend", role: "list" }, ...items)];
}

/** @param {number | null} importance @param {number} largest @returns {Effect} */
function effectOf(importance, largest) {
  if (importance === null) return "unknown";
  if (Math.abs(importance) <= NEGLIGIBLE * largest) return "plain";
  return importance > 0 ? "helps" : "harms";
}

/** @param {Word} word @param {number} largest */
function wordItem({ word, importance }, largest) {
  const effect = effectOf(importance, largest);
  const number = importance === null ? "" : `, ${importance > 0 ? "+" : ""}${importance.toFixed(3)}`;
  const description = EFFECTS[effect] + number;
  const shown = make("span", { className: `word ${effect}`, title: description, dir: "auto", textContent: word });
  if (largest > 0) shown.style.setProperty("--strength", (Math.abs(importance ?? 0) / largest).toFixed(3));
  return make("li", {}, shown, hidden(` ${description}; `));
}
