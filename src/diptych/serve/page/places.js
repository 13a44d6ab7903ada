// Where the phrases of a query are in an image: boxes over it, and a list for those who cannot see them.

import { localize } from "./api.js";
import { formatScore, hidden, make, quiet } from "./element.js";
import { messageOf } from "./http.js";

/**
 * @typedef {import("./api.js").Index} Index
 * @typedef {import("./api.js").Phrase} Phrase
 * @typedef {import("./query.js").Query} Query
 * @typedef {import("./stage.js").Stage} Stage
 */

const MAX_PLACES = 3; // per phrase; all but the first are drawn faintly
const COLOURS = 4;

/** @param {Phrase[]} phrases */
function boxes(phrases) {
  return phrases.flatMap(({ phrase, places }, number) =>
    places.slice(0, MAX_PLACES).map(({ box }, rank) => {
      const [left, top, right, bottom] = box.map((edge) => Math.min(1, Math.max(0, edge)));
      const drawn = make("div", { className: `place colour-${number % COLOURS}${rank ? " lesser" : ""}` });
      for (const [side, share] of Object.entries({ left, top, right: 1 - right, bottom: 1 - bottom })) {
        drawn.style.setProperty(side, `${(100 * share).toFixed(2)}%`);
      }
      if (rank === 0) drawn.append(make("span", { className: "label", dir: "auto", textContent: phrase }));
      drawn.classList.toggle("top", top < 0.08); // the label would not fit above the box
      drawn.classList.toggle("end", left > 0.6); // or to its right
      return drawn;
    }),
  );
}

/** @param {Phrase[]} phrases */
function phraseList(phrases) {
  /** @param {number} share */
  const percent = (share) => `${Math.round(100 * share)}%`;
  return make(
    "ul",
    { className: "phrases", role: "list" },
    ...phrases.map(({ phrase, places }, number) => {
      const name = make("span", { className: `phrase colour-${number % COLOURS}`, dir: "auto", textContent: phrase });
      if (!places.length) return make("li", {}, name, " not found");
      const [left, top, right, bottom] = places[0].box;
      const across = `${percent(left)} to ${percent(right)} from the left`;
      const down = `${percent(top)} to ${percent(bottom)} from the top`;
      const score = make("span", { className: "score", textContent: formatScore(places[0].score) });
      return make("li", {}, name, hidden(`: ${across}, ${down}, score `), score);
    }),
  );
}

// The button that draws the boxes, and the list of the phrases.
/** @param {Index} index @param {Query} query @param {Stage} stage @param {AbortSignal} signal */
export function placesButton(index, query, stage, signal) {
  const button = make("button", { type: "button", textContent: "Show where" });
  button.dataset.control = "where";
  button.setAttribute("aria-pressed", "false");
  const list = make("div", { className: "found-places", role: "status" });
  button.addEventListener("click", async () => {
    const isOn = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(isOn));
    stage.boxes.replaceChildren();
    list.replaceChildren();
    if (!isOn) return;
    try {
      const { phrases } = await localize(stage.image, query.text, index.name, signal);
      if (button.getAttribute("aria-pressed") === "false") return;
      if (stage.shown !== stage.image) stage.show(stage.image);
      stage.boxes.replaceChildren(...boxes(phrases));
      list.replaceChildren(phrases.length ? phraseList(phrases) : "No phrase of the query was found in it.");
    } catch (problem) {
      if (!signal.aborted) list.replaceChildren(quiet(messageOf(problem)));
    }
  });
  return [button, list];
}
