"""`diptych index` as people use it; a fake model stands for the run."""

import json
import os
import re
import shlex
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.main import app
from diptych.errors import DiptychError
from diptych.model import Model
from diptych.models.engines.engine import Encodings
from support.own_engine import OwnEngine, model_from


class Fake(OwnEngine):
    address, identity, embedding_dim, is_inner_product = "runs/first", "f" * 64, 4, True

    def __init__(self, identity="f" * 64):
        super().__init__()
        self.identity = identity

    def preprocess(self, photo):
        return np.asarray(photo.resize((4, 4)), np.uint8).transpose(2, 0, 1).copy()

    def encode_preprocessed(self, prepared):
        return Encodings(np.stack([pixels.reshape(4, -1).mean(1) for pixels in prepared]).astype(np.float32))

    def encode_texts(self, texts):
        return Encodings(np.ones((len(texts), 4), np.float32))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with photos in Pictures."""
    (tmp_path / "Pictures").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "Pictures" / f"{number}.png")
    (tmp_path / "Pictures" / "[bold]broken.jpg").write_bytes(b"nothing")
    (tmp_path / "Pictures" / "0.txt").write_text("a dog")
    models = {
        "starter": model_from(Fake, "starter", lambda: "f" * 64),
        "other": model_from(lambda: Fake("e" * 64), "other", lambda: "e" * 64),
    }
    monkeypatch.setattr(Model, "load", lambda run, device="auto": models[run])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, ["index", *words])


def done(*words):
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words):
    result = invoke(*words)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, DiptychError), result.output
    return str(result.exception)


def test_index_then_index_again_then_status(folder):
    said = done("starter", "Pictures")
    assert "Pictures.diptych: encoded 3, kept 0, renamed 0, removed 0, 1 new text\n" in said
    assert "indexed 3 of 5 files; 1 with captions; skipped 1 (`diptych index status Pictures.diptych` lists" in said
    assert 'diptych search Pictures.diptych "' in said
    assert "diptych serve Pictures.diptych" in said
    assert "encoded 0, kept 3" in done("starter", "Pictures")
    shutil.copy("Pictures/0.png", "Pictures/again.png")
    assert "encoded 0, kept 3, renamed 0, removed 0, 1 copy\n" in done("starter", "Pictures")
    (folder / "Pictures" / "again.png").unlink()
    done("starter", "Pictures")
    shown = done("status", "Pictures.diptych")
    assert re.search(r"^quality +best$", shown, re.MULTILINE)
    for part in ("starter (ffffffff)", "3 images, 1 text\n", str(folder / "Pictures"), "float16: recall@10"):
        assert part in shown
    assert re.search(r"float16: recall@10 [\d.]+ against float32, this index", shown)
    assert "[bold]broken.jpg: not an image in a known format" in shown
    found = json.loads(done("status", "Pictures.diptych", "--json"))
    assert (found["images"], found["texts"], found["storage"], found["complete"]) == (3, 1, "float16", True)
    assert found["storage_cost"].keys() == {"float32", "float16", "int8"}
    assert found["measured_with"] == 3


def test_options_may_come_first_and_the_default_name_is_that_of_the_source(folder):
    done("--storage", "int8", "starter", "scenes:train=2,val=1,test=1")
    assert json.loads(done("status", "scenes.diptych", "--json"))["storage"] == "int8"
    done("--into", "deep/other.diptych", "starter", "Pictures")
    assert (folder / "deep" / "other.diptych").is_file()


def test_patterns_and_folders_are_remembered(folder):
    (folder / "card").mkdir()
    Image.new("RGB", (9, 9), (7, 7, 7)).save(folder / "card" / "c.png")
    done("starter", "Pictures", "--ignore", "1.*", "--ignore", "broken*", "--follow-links")
    found = json.loads(done("status", "Pictures.diptych", "--json"))
    assert (found["ignored_patterns"], found["follows_links"]) == (["1.*", "broken*"], True)
    assert found["files"]["ignored"] == {"by a pattern": 1}
    assert "encoded 1, kept 2" in done("starter", "Pictures", "card")
    assert "encoded 1, kept 3" in done("starter", "Pictures", "--no-ignore", "--no-follow-links")
    assert json.loads(done("status", "Pictures.diptych", "--json"))["follows_links"] is False
    assert "removed 3" in done("starter", "card", "--into", "Pictures.diptych", "--remove-folder", "Pictures")
    assert "name the patterns, or forget them" in refused("starter", "card", "--ignore", "a", "--no-ignore")


def test_an_empty_folder_leaves_no_index(folder):
    (folder / "nothing").mkdir()
    assert "contains no files, so there is nothing to index" in refused("starter", "nothing")
    assert not (folder / "nothing.diptych").exists()


def test_another_model_is_refused_with_the_command_and_the_command_works(folder):
    done("starter", "Pictures")
    command = refused("other", "Pictures").partition("rebuild it: diptych index ")[2].split()
    assert command == ["rebuild", "Pictures.diptych", "--run", "other"]
    assert "encoded 3" in done(*command)
    assert json.loads(done("status", "Pictures.diptych", "--json"))["identity"] == "e" * 64


def test_doctor_names_faults_and_rebuild_mends_them(folder):
    done("starter", "Pictures")
    assert "sound" in done("doctor", "Pictures.diptych")
    file = folder / "Pictures.diptych"
    file.write_bytes(file.read_bytes().replace(b"\xff\xd8\xff\xe0", b"\0\0\0\0"))
    result = invoke("doctor", "Pictures.diptych")
    assert result.exit_code == 1
    assert "0.png: its thumbnail cannot be decoded" in result.output
    assert "3 faults; rebuild it from the images: diptych index rebuild Pictures.diptych" in result.output
    done("rebuild", "Pictures.diptych", "--run", "starter")
    assert "sound" in done("doctor", "Pictures.diptych")


def test_an_interrupt_is_one_line_with_the_command_to_go_on(folder, monkeypatch):
    preprocess, times = Fake.preprocess, iter([True])  # a second interrupt would not wait

    def interrupted(self, photo):
        if next(times, False):
            os.kill(os.getpid(), signal.SIGINT)
        return preprocess(self, photo)

    monkeypatch.setattr(Fake, "preprocess", interrupted)
    result = invoke("starter", "Pictures", "--workers", "0")
    assert result.exit_code == 130
    assert "this continues: diptych index starter Pictures --into Pictures.diptych" in result.output
    monkeypatch.setattr(Fake, "preprocess", preprocess)
    assert "encoded 0" not in done("starter", "Pictures")


def test_an_interrupted_replacement_continues_with_its_own_options(folder, monkeypatch):
    done("starter", "Pictures")
    preprocess, count = Fake.preprocess, iter(range(3))

    def interrupted(self, photo):
        if next(count, 0) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return preprocess(self, photo)

    monkeypatch.setattr(Fake, "preprocess", interrupted)
    output = invoke("starter", "Pictures", "--storage", "int8", "--ignore", "2.*", "--fresh", "--workers", "0").output
    command = shlex.split(re.search("this continues: (.*)", output)[1])
    assert command[6:] == ["--fresh", "--storage", "int8", "--ignore", "2.*"]
    assert "encoded 1, kept 1" in done(*command[2:])


def test_help_shows_an_example_of_each_form():
    shown = done("--help")
    for example in ("index starter ~/Pictures", "index status P", "index doctor P", "index rebuild P"):
        assert f"diptych {example}" in shown
    assert "--storage" in done("starter", "Pictures", "--help")
    assert invoke("starter").exit_code == 2


def test_words_in_pictures_are_read_when_asked_and_later_again(folder, monkeypatch):
    reader = SimpleNamespace(read=lambda photo: "receipt")
    monkeypatch.setattr("diptych.index.word_reading.RapidTextReader", lambda: reader)
    first = done("starter", "Pictures", "--ocr")
    assert re.search(r", words read in \d pictures", first)
    assert re.search(r"^words +are read in pictures$", done("status", "Pictures.diptych"), re.MULTILINE)
    assert "words read" not in done("starter", "Pictures")
