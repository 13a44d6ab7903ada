// Where the phrases of a query are in an image: boxes over it, and a list for those who cannot see them.

import { formatScore, hidden, make } from "./element.js";

/** @typedef {import("./api.js").Phrase} Phrase */

const MAX_PLACES = 3; // per phrase; all but the first are drawn faintly
const COLOURS = 4;

/** @param {Phrase[]} phrases */
export function boxes(phrases) {
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
export function list(phrases) {
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
