"""The Python programs of README and docs, and a working directory that has the files which they name.

A page's blocks are one program, as a reader types them one after another. A block whose first line is a comment with a
file name, such as `# my_loss.py`, is written to that file; all others are executed.
"""

import re
import textwrap
from pathlib import Path

from PIL import Image

from diptych.data.open import open_corpus
from diptych.index.sync import sync
from diptych.mining.lists import weights_digest
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.models.export.onnx import export_onnx
from diptych.training.recipe_loader import load_recipe
from diptych.training.train import train

ROOT = Path(__file__).parents[2]
PAGES = {page.relative_to(ROOT).as_posix(): page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]}

SCENES = "scenes:train=24,val=6,test=10,texts=2"
TINY = ("model.joint=16", "model.text.hidden=16", "model.text.word=8", "model.image.width=2", "model.image.pixels=32")
TINY_PHRASES = (
    *("model.image.side=64", "model.image.regions.count=20", "model.image_layers=[8,4]", "model.text_layers=[8,4]"),
    *("stage.1.epochs=1", "stage.1.batches.size=16"),
)


def python_blocks(text):
    """The line number and the code of each Python block of a page."""
    for found in re.finditer(r"^( *)```python\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE):
        yield text[: found.start()].count("\n") + 2, textwrap.dedent(found[2])


def run_program(page):
    """Execute the blocks of a page in the working directory, and return the names that they define."""
    namespace = {"__name__": "__main__"}
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        file = re.match(r"# (\S+\.py)\n", code)
        if file:
            Path(file[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(file[1]).write_text(code, encoding="utf-8")
        else:  # the blank lines make the line numbers of a traceback those of the page
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
    return namespace


def make_photos(folder):
    """A folder of drawn photos and a table of their captions, with splits."""
    folder.mkdir()
    corpus = open_corpus(SCENES)
    rows = ["image,text,split"]
    for number, picture in enumerate(corpus.pictures):
        picture.load().save(folder / f"{number:02}.jpg")
        group, split = corpus.image_groups[number], corpus.image_splits[number]
        rows += [
            f'{number:02}.jpg,"{text}",{split}'
            for text, text_group in zip(corpus.texts, corpus.text_groups, strict=True)
            if text_group == group
        ]
    (folder / "captions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def make_photo(path):
    """One drawn photo, larger than the model's input."""
    photo = open_corpus("scenes:train=1,val=0,test=0").pictures[0].load()
    photo.resize((320, 240), Image.Resampling.BICUBIC).save(path)


def make_run(folder):
    """A tiny model, trained for a moment on drawn scenes."""
    recipe = load_recipe("scenes", [*TINY, "stage.1.batches.size=16"]).first(1)
    train(recipe, open_corpus(SCENES), folder, device="cpu", workers=0)


def make_lists(path):
    """The hard negatives that a tiny model mines."""
    corpus = open_corpus(SCENES).split("train")
    mine(Model.load(path.parent, "cpu"), corpus, path, weights=weights_digest(path.parent))


def make_export(folder):
    """A tiny model as ONNX."""
    make_run(folder.parent / "runs-of-the-export")
    export_onnx(folder.parent / "runs-of-the-export", folder)


def make_phrase_run(folder):
    """A tiny model for phrase localisation."""
    recipe = load_recipe("phrases-scenes", TINY_PHRASES)
    train(recipe, open_corpus("scenes:train=6,val=3,test=3,texts=2"), folder, device="cpu", workers=0)


def make_index(path):
    """An index of a few photos by a tiny model."""
    make_run(path.parent / "runs-of-the-index")
    make_photos(path.parent / "photos-of-the-index")
    sync(Model.load(path.parent / "runs-of-the-index"), str(path.parent / "photos-of-the-index"), path)


# What pages may name, and how it is made.
FILES = {
    "photos": make_photos,
    "holiday.jpg": make_photo,
    "dog.jpg": make_photo,
    "runs/first": make_run,
    "runs/first/lists.safetensors": make_lists,
    "first-onnx": make_export,
    "runs/second": make_run,
    "runs/phrases": make_phrase_run,
    "Pictures.diptych": make_index,
}


def make_files(page, folder):
    """Make what the programs of a page name in a string, such as "photos/" or "runs/first"."""
    programs = "\n".join(code for _, code in python_blocks(page.read_text(encoding="utf-8")))
    for name, make in FILES.items():
        if re.search(rf'"{re.escape(name)}[/"]', programs):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            make(folder / name)
