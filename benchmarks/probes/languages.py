"""Single words in several languages: how many of the ten best photos show what the word names.

    python benchmarks/probes/languages.py RUN FLICKR8K [--split test]

A photo shows a thing if one of its English captions names it. `chance` is the share of photos that do. The words were
translated by hand; the captions stay English.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np

import diptych

sys.path.insert(0, str(Path(__file__).parents[1]))

from probes.captioned_photos import parser_of, read

LANGUAGES = ("English", "German", "French", "Spanish", "Italian")
# What captions say, as a pattern, and the word in each language.
THINGS = {
    r"dogs?": ("dog", "Hund", "chien", "perro", "cane"),
    r"horses?": ("horse", "Pferd", "cheval", "caballo", "cavallo"),
    r"(boy|girl|child|kid|toddler|baby)\w*": ("child", "Kind", "enfant", "niño", "bambino"),
    r"(woman|women|lady|ladies)": ("woman", "Frau", "femme", "mujer", "donna"),
    r"snow\w*": ("snow", "Schnee", "neige", "nieve", "neve"),
    r"(beach|sand|shore)\w*": ("beach", "Strand", "plage", "playa", "spiaggia"),
    r"(sea|ocean|wave|surf)\w*": ("sea", "Meer", "mer", "mar", "mare"),
    r"(bike|bicycle|cycl)\w*": ("bicycle", "Fahrrad", "vélo", "bicicleta", "bicicletta"),
    r"(motorcycle|motorbike|dirt ?bike)\w*": ("motorcycle", "Motorrad", "moto", "motocicleta", "motocicletta"),
    r"(car|cars|truck|vehicle)": ("car", "Auto", "voiture", "coche", "automobile"),
    r"(boat|canoe|kayak|raft|sail)\w*": ("boat", "Boot", "bateau", "barco", "barca"),
    r"(mountain|cliff|rock)\w*": ("mountain", "Berg", "montagne", "montaña", "montagna"),
    r"(grass|lawn|field)\w*": ("grass", "Gras", "herbe", "hierba", "erba"),
    r"(soccer|football)\w*": ("football", "Fußball", "football", "fútbol", "calcio"),
    r"basketball\w*": ("basketball", "Basketball", "basketball", "baloncesto", "pallacanestro"),
    r"skateboard\w*": ("skateboard", "Skateboard", "planche à roulettes", "monopatín", "skateboard"),
    r"(pool|swim\w*)": ("swimming pool", "Schwimmbad", "piscine", "piscina", "piscina"),
    r"(street|road|sidewalk)\w*": ("street", "Straße", "rue", "calle", "strada"),
    r"(climb)\w*": ("climbing", "Klettern", "escalade", "escalada", "arrampicata"),
    r"(hat|cap|helmet)s?": ("hat", "Hut", "chapeau", "sombrero", "cappello"),
}


def main() -> None:
    """Print the precision of the first ten photos in each language as one JSON line."""
    parser = parser_of(__doc__)
    parser.add_argument("--split", default="test")
    options = parser.parse_args()
    corpus = diptych.open_corpus(options.data).split(options.split)
    model = diptych.load(options.run)
    photos = read(model, corpus, options.vectors, options.split)
    images, captions = photos.vectors, [" ".join(some) for some in photos.captions]
    shown = np.array([[bool(re.search(rf"\b{thing}\b", text, re.I)) for text in captions] for thing in THINGS])
    result = {"chance": round(float(shown.mean()), 3)}
    for number, language in enumerate(LANGUAGES):
        scores = model.score(images, [words[number] for words in THINGS.values()])  # (images, things)
        best = np.argsort(-scores, axis=0)[:10].T  # (things, 10)
        found = np.take_along_axis(shown, best, axis=1).mean(1)  # (things,)
        result[language] = round(float(found.mean()), 3)
        words = ", ".join(f"{words[number]} {share:.1f}" for words, share in zip(THINGS.values(), found, strict=True))
        print(f"{language}: {words}", file=sys.stderr)
    print(json.dumps({"run": options.run, "photos": len(captions), "things": len(THINGS), **result}))


if __name__ == "__main__":
    main()
