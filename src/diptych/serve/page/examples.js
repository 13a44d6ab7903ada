// A few captions of an index with their images, as examples of queries.

import * as api from "./api.js";
import { make, picture } from "./element.js";
import { NO_FILTERS } from "./query.js";

const REQUESTED = 48;
const SHOWN = 4;
const MAX_LENGTH = 120; // characters: a longer caption is not a good example of a query

/** @param {api.Index} index @param {AbortSignal} signal @param {(text: string) => void} onChosen */
export async function examples(index, signal, onChosen) {
  if (!index.texts) return null;
  let hits;
  try {
    ({ hits } = await api.search("a", { index: index.name, to: "text", k: REQUESTED, filters: NO_FILTERS }, signal));
  } catch {
    return null; // the page works without them, and a real query will show what is wrong
  }
  const byText = new Map(hits.map((hit) => [hit.text ?? "", hit.image]));
  const short = [...byText].filter(([text]) => text.length <= MAX_LENGTH);
  const step = Math.max(1, Math.floor(short.length / SHOWN)); // adjacent hits say nearly the same
  const chosen = short.filter((_, position) => position % step === 0).slice(0, SHOWN);
  if (!chosen.length) return null;
  return make(
    "ul",
    { className: "examples", role: "list", "aria-label": "Examples" },
    ...chosen.map(([text, image]) => {
      const shown = image === null ? null : picture(api.imageUrl(image, index.name, "thumbnail"));
      const caption = make("span", { className: "caption", dir: "auto", textContent: text });
      return make(
        "li",
        {},
        make(
          "button",
          { type: "button", className: "example", onclick: () => onChosen(text) },
          shown && make("span", { className: "tile" }, shown),
          caption,
        ),
      );
    }),
  );
}
