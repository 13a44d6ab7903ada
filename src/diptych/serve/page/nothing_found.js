// What to try if nothing was found: each piece of advice is a sentence, some with a button that follows it.

import { make } from "./element.js";
import { isQuoted, isUnfiltered, withoutQuotes } from "./query.js";

/** @typedef {import("./query.js").Query} Query */

const SEEN = " to find what can be seen in the pictures.";
const NAMES = ", which some pictures have in their name, folder or captions.";

/**
 * @param {import("./api.js").Answer} answer @param {Query} query
 * @param {(part: Partial<Query>) => void} onTry
 */
export function nothingFound(answer, query, onTry) {
  const { message, searched } = answer;
  const advice = [
    ...(query.text.trim() ? aboutText(answer, query, onTry) : []),
    ...(isUnfiltered(query.filters) ? [] : ["Remove a filter: only a part of the pictures was searched."]),
  ];
  return make(
    "div",
    { className: "note nothing" },
    make("p", { textContent: message ?? (searched ? "Nothing fits this query well." : "There is nothing to search here.") }),
    advice.length ? make("ul", {}, ...advice.map((sentence) => make("li", {}, sentence))) : null,
  );
}

/**
 * @param {import("./api.js").Answer} answer @param {Query} query
 * @param {(part: Partial<Query>) => void} onTry
 */
function aboutText({ suggestion, words_exist: doWordsExist }, { text, mode }, onTry) {
  /** @param {string} label @param {Partial<Query>} part @param {string} rest of the sentence */
  const button = (label, part, rest) => {
    const onclick = () => onTry(part);
    return make("span", {}, make("button", { type: "button", className: "link", textContent: label, onclick }), rest);
  };
  if (mode === "words") return [button("Search by meaning", { mode: "meaning" }, SEEN)];
  if (isQuoted(text) && mode !== "meaning") return [button("Remove the quotes", { text: withoutQuotes(text) }, SEEN)];
  return [
    ...(doWordsExist ? [button("Search for exact words", { mode: "words" }, NAMES)] : []),
    ...(suggestion ? [] : ["Describe what can be seen, such as “two dogs on a beach”."]),
  ];
}
