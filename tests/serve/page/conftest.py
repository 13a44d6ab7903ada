"""The page in a real browser, with the real service and real indexes; only the model is fake."""

import asyncio
import datetime
import hashlib
import os
import shutil
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import uvicorn
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from diptych.data.formats.scenes import make_scenes
from diptych.index.search import Searcher
from diptych.index.sqlite.store import Store
from diptych.index.sync import sync
from diptych.models.engines.engine import Encodings
from diptych.serve.app import create_app
from diptych.text.tokenisers.treebank import tokenise
from support.own_engine import OwnEngine

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TIMEOUT = 20_000  # milliseconds, for busy machines
MARKUP = "<img src=x onerror=window.broken=1>"


class FakeModel(OwnEngine):
    """A text is the sum of its words; an image is the text that it was taught for its pixels."""

    address, identity, embedding_dim, is_inner_product = "fake", "fake", 256, True

    def __init__(self):
        super().__init__()
        self.taught = {}

    def teach(self, photo, text):
        self.taught[self.preprocess(photo).tobytes()] = text

    def preprocess(self, photo):
        return np.asarray(photo.resize((8, 8)))

    def encode_preprocessed(self, prepared):
        return self.encode_texts([self.taught.get(pixels.tobytes(), "unseen") for pixels in prepared])

    def encode_texts(self, texts):
        return self.encode_tokens([tokenise(text) for text in texts])

    def encode_tokens(self, texts):
        vectors = np.zeros((len(texts), self.embedding_dim), np.float32)
        for row, words in enumerate(texts):
            for word in words:
                vectors[row, hashlib.sha256(word.encode()).digest()[0]] += 1
        return Encodings(vectors / np.maximum(1, np.linalg.norm(vectors, axis=1, keepdims=True)))

    def score(self, images, texts):
        return images.vectors @ texts.vectors.T

    def known_words(self, words):
        return np.array([word != "zebra" for word in words], bool)


def searcher(model, folder, seed, scenes, extra=()):
    """An index over a folder of drawn scenes, each with two captions, and over extra pictures (name, caption)."""
    corpus = make_scenes(train=0, val=0, test=scenes, texts=2, seed=seed)
    pictures = [(f"scene-{i}", corpus.texts[2 * i : 2 * i + 2], corpus.pictures[i].load()) for i in range(scenes)]
    pictures += [(name, [text], Image.new("RGB", (40, 30), (60 * i, 0, 0))) for i, (name, text) in enumerate(extra)]
    folder.mkdir()
    for name, texts, photo in pictures:
        model.teach(photo, " ".join(texts))
        photo.save(folder / f"{name}.png")
        (folder / f"{name}.txt").write_text("\n".join(texts))
    file = folder.with_suffix(".index")
    sync(model, str(folder), file)
    return Searcher(Store.open(file), model)


def many(model, folder, number=300):
    """An index without texts over many small pictures of several shapes, one per day, in folders."""
    shapes = [(24, 16), (16, 24), (20, 20), (48, 12)]
    newest = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC).timestamp()
    for i in range(number):
        place = folder / ("", "2025", "2026/beach", "2026/snow")[i % 4]
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{i:03}.png"
        photo = Image.new("RGB", shapes[i % len(shapes)], (i % 256, 255 - i % 256, 60 * (i // 256)))
        model.teach(photo, f"picture {i}")
        photo.save(file)
        os.utime(file, (newest - 86_400 * i,) * 2)
    file = folder.with_suffix(".index")
    sync(model, str(folder), file)
    return Searcher(Store.open(file), model)


@contextmanager
def served(app):
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", timeout_graceful_shutdown=3))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    model = FakeModel()
    indexes = {
        "scenes": searcher(model, folder / "scenes", 0, 30, [(MARKUP, f"dangerous {MARKUP}"), ("gone", "gone away")]),
        "others": searcher(model, folder / "others", 1, 8),
    }
    (folder / "scenes" / "gone.png").unlink()
    with served(create_app(indexes)) as found:
        yield found


@pytest.fixture(scope="session")
def many_address(tmp_path_factory):
    with served(create_app({"many": many(FakeModel(), tmp_path_factory.mktemp("many") / "many")})) as found:
        yield found


@pytest.fixture(scope="session")
def shared_tab():
    """A tab of a browser, which all tests share, because opening one takes longer than most tests."""
    if CHROMIUM is None:
        pytest.skip("no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = browser.new_page(reduced_motion="reduce")
        tab.set_default_timeout(TIMEOUT)
        expect.set_options(timeout=TIMEOUT)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield tab, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture
def tab(shared_tab):
    """The tab; its event loop counts as running only during a test, because other tests run loops, too."""
    tab, loop = shared_tab
    asyncio._set_running_loop(loop)
    yield tab
    asyncio._set_running_loop(None)


@pytest.fixture
def open_page(tab, address):
    """Opens the page over two small indexes; at the end, the browser has nothing to complain of."""
    with opening(tab, address) as opened:
        yield opened


@pytest.fixture
def open_many(tab, many_address):
    """Opens the page over an index of 300 pictures; at the end, the browser has nothing to complain of."""
    with opening(tab, many_address) as opened:
        yield opened


@contextmanager
def opening(tab, address):
    """Opens the page; at the end, no request went to another host, and the browser reported no error."""
    complaints, asked = [], []
    listeners = {
        "request": lambda request: asked.append(request.url),
        "pageerror": lambda error: complaints.append(str(error)),
        "console": lambda message: message.type in ("error", "warning") and complaints.append(message.text),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)

    def opened(query="", width=1100, height=800, scheme="light"):
        tab.set_viewport_size({"width": width, "height": height})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(address + query)
        return tab

    yield opened
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    tab.unroute_all(behavior="ignoreErrors")
    tab.goto("about:blank")
    # The browser reports every 4xx; the page shows what it means.
    assert [told for told in complaints if not told.startswith("Failed to load resource")] == []
    assert {url for url in asked if not url.startswith((address, "data:", f"blob:{address}"))} == set()
