// A few captions of an index with their images, for who does not know yet what to ask.

import * as api from "./api.js";
import { make, picture } from "./element.js";
import { NO_FILTERS } from "./question.js";

const ASKED = 48;
const SHOWN = 4;
const LONGEST = 120; // characters: a longer one is no example of a question

export async function examples(index, signal, suggest) {
  if (!index.texts) return null;
  let hits;
  try {
    ({ hits } = await api.search("a", { index: index.name, to: "text", k: ASKED, filters: NO_FILTERS }, signal));
  } catch {
    return null; // the page is as good without them, and a real question will tell what is wrong
  }
  const texts = new Set();
  const short = hits.filter(({ text }) => text.length <= LONGEST && !texts.has(text) && texts.add(text));
  const step = Math.max(1, Math.floor(short.length / SHOWN)); // neighbours in the answer say nearly the same
  const chosen = short.filter((_, place) => place % step === 0).slice(0, SHOWN);
  if (!chosen.length) return null;
  return make(
    "ul",
    { className: "examples", role: "list", "aria-label": "Examples" },
    ...chosen.map(({ text, image }) => {
      const shown = image === null ? null : picture(api.image(image, index.name, "thumbnail"));
      const about = make("span", { className: "caption", dir: "auto", textContent: text });
      return make(
        "li",
        {},
        make(
          "button",
          { type: "button", className: "example", onclick: () => suggest(text) },
          shown && make("span", { className: "tile" }, shown),
          about,
        ),
      );
    }),
  );
}
