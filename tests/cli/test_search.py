import hashlib
import json
import shutil
from typing import get_args

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.cli.places import default_index
from diptych.cli.search import BY_WORDS, METHODS
from diptych.errors import DiptychError
from diptych.index.entries import Method
from diptych.index.sync import sync
from diptych.model import Model
from diptych.models.calibration.calibration import Calibration, LogisticFit
from diptych.models.engines.engine import Encodings
from support.own_engine import OwnEngine
from support.videos import video

COLOURS = ("red", "lime", "blue", "white", "black")


class FakeModel(OwnEngine):
    """Each picture by its first pixel and each text by its words."""

    address, identity, embedding_dim, is_inner_product = "", "fake", 8, True

    def __init__(self, address):
        super().__init__()
        self.address = str(address)

    def preprocess(self, photo):
        return np.asarray(photo)[0, 0]

    def encode_preprocessed(self, prepared):
        return self.encode_texts([str(pixel.tolist()) for pixel in prepared])

    def encode_texts(self, texts):
        digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts]
        vectors = np.array([list(digest) for digest in digests], np.float32) - 127
        return Encodings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def known_words(self, words):
        return np.array([word in ("two", "dogs") for word in words], bool)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    (folder / "run").mkdir()
    (folder / "photos" / "old").mkdir(parents=True)
    for number, colour in enumerate(COLOURS):
        Image.new("RGB", (9, 8), colour).save(folder / "photos" / ("old" if number % 2 else ".") / f"{colour}.png")
    Image.new("RGB", (9, 8), "red").save(folder / "photos" / "[b]again.png", optimize=True)
    (folder / "photos" / "red.txt").write_text("a man [sic] and a [red]dog[/b]\ntwo dogs\n")
    sync(FakeModel(folder / "run"), str(folder / "photos"), folder / "x.diptych")
    return folder / "x.diptych"


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    monkeypatch.setattr(Model, "load", lambda address, device, **_: FakeModel(address))
    monkeypatch.setenv("COLUMNS", "200")


def invoke(index, *words):
    return CliRunner().invoke(app, ["search", str(index), *map(str, words)])


def refused(index, *words):
    found = invoke(index, *words)
    assert isinstance(found.exception, DiptychError), found.output
    assert "\n" not in str(found.exception)
    return str(found.exception)


def test_words_find_images_and_a_sheet_shows_them(index, tmp_path):
    found = invoke(index, "two dogs", "-k", 3, "--sheet", tmp_path / "hits.png")
    assert found.exit_code == 0
    assert found.stdout.count(".png") == 3
    assert "searched 6 images" in found.stderr
    assert "does not know" not in found.stderr
    with Image.open(tmp_path / "hits.png") as sheet:
        assert sheet.size[0] > 100


def test_no_hits_are_no_table(index):
    result = CliRunner().invoke(app, ["search", str(index), "zebra", "--mode", "words"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No image has all of these words" in result.stderr


def test_the_index_of_an_opened_folder_is_found(index, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "Pictures").mkdir()
    assert "not an index; make one of it: diptych open" in refused(tmp_path / "Pictures", "two")
    opened = default_index([str(tmp_path / "Pictures")])
    opened.parent.mkdir(parents=True)
    shutil.copy(index, opened)
    assert invoke(tmp_path / "Pictures", "two", "--paths").stdout == invoke(index, "two", "--paths").stdout != ""


def test_json_has_everything(index):
    told = invoke(index, "two zebras", "--json")
    answer = json.loads(told.stdout)
    assert [hit["score"] for hit in answer["hits"]] == sorted((hit["score"] for hit in answer["hits"]), reverse=True)
    assert (answer["searched"], answer["method"], answer["unknown"]) == (6, "exact", ["zebras"])
    assert "The model does not know “zebras”." in told.stderr
    assert "none of these words" not in told.stderr
    assert sum(len(hit["near"]) for hit in answer["hits"]) >= 1  # the red one is there twice


def test_a_query_of_unknown_words_finds_nothing(index):
    for options, reason in (((), "No image has all"), (("--mode", "meaning"), "The model knows none of these words")):
        result = invoke(index, "zebras", "--json", *options)
        assert reason in result.stderr
        answer = json.loads(result.stdout)
        assert not answer["hits"]
        assert not answer["found"]


def test_words_in_names_are_hinted_at_if_meaning_finds_nothing(index):
    by_meaning = invoke(index, "lime", "--mode", "meaning", "--json")
    assert json.loads(by_meaning.stdout)["words_exist"] is True
    assert BY_WORDS in by_meaning.stderr
    by_words = invoke(index, "lime", "--mode", "words", "--json")
    assert [hit["key"] for hit in json.loads(by_words.stdout)["hits"]] == ["old/lime.png"]
    assert BY_WORDS not in by_words.stderr + invoke(index, "zebras", "--mode", "meaning").stderr


def test_a_mistyped_query_is_corrected_in_a_note(index):
    result = invoke(index, "a", "red", "cicrle", "--json")
    assert "did you mean: a red circle?" in result.stderr
    assert json.loads(result.stdout)["suggestion"] == "a red circle"
    assert "did you mean" not in invoke(index, "a red circle").stderr


def test_images_and_entries_find_texts_and_images(index):
    photo = index.parent / "photos" / "red.png"
    texts = invoke(index, "--image", photo, "--to", "texts")
    assert "a man [sic] and a [red]dog[/b]" in texts.stdout
    assert "searched 2 texts" in texts.stderr
    hits = json.loads(invoke(index, "--image", photo, "--json").stdout)["hits"]
    assert hits[0]["score"] == pytest.approx(1, abs=1e-3)
    assert len(hits[0]["near"]) == 1
    like = json.loads(invoke(index, "--like", hits[0]["id"], "--json", "-k", 9).stdout)["hits"]
    assert {hit["id"] for hit in like}.isdisjoint({hits[0]["id"]})
    assert "[b]again.png" in invoke(index, "--like", hits[1]["id"]).stdout
    added = invoke(index, "two", "dogs", "cicrle", "--like", hits[0]["id"], "--json")
    assert "did you mean: two dogs circle?" in added.stderr
    assert json.loads(added.stdout)["hits"] not in ([], like)
    assert json.loads(invoke(index, "two dogs", "--image", photo, "--json").stdout)["hits"][0] != hits[0]
    unknown = invoke(index, "green", "--image", photo, "--json")
    assert json.loads(unknown.stdout)["hits"] == []
    assert "knows none of these words" in unknown.stderr
    assert json.loads(invoke(index, "two dogs", "--to", "texts", "--json").stdout)["hits"][0]["text"] == "two dogs"


def test_filters_and_nothing_left(index):
    assert "searched 2 images" in invoke(index, "dogs", "--folder", "old").stderr
    nothing = invoke(index, "dogs", "--until", "1990-01-01")
    assert nothing.exit_code == 0
    assert "No image passes the filters" in nothing.stderr
    assert "column=value" in refused(index, "dogs", "--where", "year")
    assert "no column 'year'" in refused(index, "dogs", "--where", "year=1999")


def test_a_note_says_that_nothing_stands_out(index, monkeypatch):
    never = LogisticFit(np.zeros(7, np.float32), -9.0)
    calibration = Calibration("fake", never, never, np.ones((1, FakeModel.embedding_dim), np.float32), {})
    monkeypatch.setattr("diptych.index.search.calibration_of", lambda model: calibration)
    shown = invoke(index, "two cats")
    assert "Nothing stands out" in shown.stderr
    assert "weak" in shown.stdout
    assert not json.loads(invoke(index, "two cats", "--json").stdout)["found"]


def test_every_way_to_search_has_a_name_in_the_note():
    assert set(METHODS) == set(get_args(Method))


def test_wrong_queries_are_one_line(index, tmp_path, monkeypatch):
    assert "search with words" in refused(index)
    assert "not both" in refused(index, "x", "--like", 1, "--image", "a.png")
    assert "query is empty" in refused(index, " ")
    assert "no such file" in refused(index, "--image", tmp_path / "none.jpg")
    assert "search for images" in refused(index, "x", "--to", "texts", "--sheet", tmp_path / "a.png")
    assert "a .png file" in refused(index, "x", "--sheet", tmp_path / "none" / "a.png")
    photos = index.parent / "photos"
    assert f"diptych index starter {photos}" in refused(photos, "x")
    (tmp_path / "vocabulary.json").touch()
    assert f"diptych index {tmp_path} FOLDER" in refused(tmp_path, "x")
    monkeypatch.setattr(FakeModel, "identity", "another")
    assert "made by another model than elsewhere" in refused(index, "x", "--run", "elsewhere")
    (index.parent / "run").rmdir()
    assert "its model is no longer at" in refused(index, "x")
    (index.parent / "run").mkdir()


def test_paths_are_absolute_and_words_need_no_quotes(index):
    photos = index.parent / "photos"
    listed = invoke(index, "two", "dogs", "--paths", "-k", 9).stdout.splitlines()
    found = json.loads(invoke(index, "two dogs", "--json", "-k", 9).stdout)["hits"]
    assert listed == [hit["path"] for hit in found] == [str(photos / hit["key"]) for hit in found]
    assert invoke(index, "two", "dogs", "-0", "-k", 9).stdout.split("\0") == [*listed, ""]
    assert "--paths prints files only" in refused(index, "x", "--paths", "--json")
    assert "--paths prints files only" in refused(index, "x", "--paths", "--to", "texts")


def test_next_of_the_json_continues_the_answer(index):
    whole = json.loads(invoke(index, "two dogs", "--json", "-k", 9).stdout)
    found, cursor = [], []
    while cursor is not None:
        page = json.loads(invoke(index, "two dogs", "--json", "-k", 2, *cursor).stdout)
        found += [hit["id"] for hit in page["hits"]]
        cursor = page["next"] and ["--cursor", page["next"]]
    assert found == [hit["id"] for hit in whole["hits"]]
    assert len(found) > 2
    assert "cursor: not one that this search gave" in refused(index, "two dogs", "--cursor", "x")


@pytest.mark.parametrize("is_one_scene", [False, True])
def test_a_frame_of_a_video_is_shown_with_its_time_and_its_path_once(tmp_path, monkeypatch, is_one_scene):
    if not is_one_scene:  # the last pixel differs between the scenes, the first one does not
        monkeypatch.setattr(FakeModel, "preprocess", lambda self, photo: np.asarray(photo)[-1, -1])
    (tmp_path / "run").mkdir()
    (tmp_path / "photos").mkdir()
    film = video(tmp_path / "photos" / "film.mp4", [(200, 0, 0), (0, 0, 200), (230, 230, 230)])
    sync(FakeModel(tmp_path / "run"), str(tmp_path / "photos"), tmp_path / "x.diptych")
    shown = [line for line in invoke(tmp_path / "x.diptych", "two dogs").stdout.splitlines() if "film" in line]
    times = {line.split("film.mp4 ")[1].split()[0] for line in shown}
    assert times == ({"0:00"} if is_one_scene else {"0:00", "0:05", "0:10"})
    assert ("+2" in shown[0]) == is_one_scene
    assert invoke(tmp_path / "x.diptych", "two dogs", "--paths").stdout.splitlines() == [str(film)]
    hits = json.loads(invoke(tmp_path / "x.diptych", "two dogs", "--json").stdout)["hits"]
    assert {hit["moment"] for hit in hits} == ({0.0} if is_one_scene else {0.0, 5.0, 10.0})
