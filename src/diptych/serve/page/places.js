// Where in an image the phrases of a query are: boxes over it, and the same as a list for who cannot see them.

import { hidden, make, score } from "./element.js";

const MOST = 3; // places of a phrase; the first is the answer, the others are drawn faintly
const COLOURS = 4;

export function boxes(phrases) {
  return phrases.flatMap(({ phrase, places }, which) =>
    places.slice(0, MOST).map(({ box }, rank) => {
      const [left, top, right, bottom] = box.map((edge) => Math.min(1, Math.max(0, edge)));
      const drawn = make("div", { className: `place colour-${which % COLOURS}${rank ? " lesser" : ""}` });
      for (const [side, share] of Object.entries({ left, top, right: 1 - right, bottom: 1 - bottom })) {
        drawn.style.setProperty(side, `${(100 * share).toFixed(2)}%`);
      }
      if (rank === 0) drawn.append(make("span", { className: "label", dir: "auto", textContent: phrase }));
      drawn.classList.toggle("top", top < 0.08); // where its label would not fit above it, or to its right
      drawn.classList.toggle("end", left > 0.6);
      return drawn;
    }),
  );
}

export function list(phrases) {
  const percent = (share) => `${Math.round(100 * share)}%`;
  return make(
    "ul",
    { className: "phrases", role: "list" },
    ...phrases.map(({ phrase, places }, which) => {
      const name = make("span", { className: `phrase colour-${which % COLOURS}`, dir: "auto", textContent: phrase });
      if (!places.length) return make("li", {}, name, " nowhere");
      const [left, top, right, bottom] = places[0].box;
      const across = `${percent(left)} to ${percent(right)} from the left`;
      const down = `${percent(top)} to ${percent(bottom)} from the top`;
      const shown = make("span", { className: "score", textContent: score(places[0].score) });
      return make("li", {}, name, hidden(`: ${across}, ${down}, score `), shown);
    }),
  );
}
