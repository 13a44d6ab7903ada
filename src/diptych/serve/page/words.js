// A sentence whose words show how much each helps to find an image: by colour, by the line below, and in words.

import { hidden, make } from "./element.js";

const SMALL = 0.02; // of the most important word: below it a word does nothing

export function sentence(words) {
  const most = Math.max(...words.map(({ importance }) => Math.abs(importance ?? 0)));
  const list = make("ol", { className: "words", role: "list" }, ...words.map((word) => wordItem(word, most)));
  const kinds = new Set(words.map(({ importance }) => kindOf(importance, most)));
  const told = {
    helps: "helps to find this picture",
    harms: "would better be left out",
    unknown: "is not known to the model",
  };
  const legend = Object.keys(told).filter((kind) => kinds.has(kind));
  const items = legend.map((kind) => {
    const sample = make("span", { className: `word ${kind}`, textContent: "word" });
    return make("li", {}, sample, ` ${told[kind]}`);
  });
  return [list, make("ul", { className: "legend", role: "list" }, ...items)];
}

function kindOf(importance, most) {
  if (importance === null) return "unknown";
  if (Math.abs(importance) <= SMALL * most) return "plain";
  return importance > 0 ? "helps" : "harms";
}

function wordItem({ word, importance }, most) {
  const kind = kindOf(importance, most);
  const number = importance === null ? "" : ` ${importance > 0 ? "+" : ""}${importance.toFixed(3)}`;
  const does = { helps: "helps,", harms: "harms,", plain: "does little,", unknown: "not known to the model" };
  const told = does[kind] + number;
  const shown = make("span", { className: `word ${kind}`, title: told, dir: "auto", textContent: word });
  if (most > 0) shown.style.setProperty("--strength", (Math.abs(importance ?? 0) / most).toFixed(3));
  return make("li", {}, shown, hidden(` ${told}; `));
}
