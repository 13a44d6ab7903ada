"""Mining compared with sorting all scores; interrupted, killed and resumed; refusals."""

import errno
import itertools
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.data.corpus import Corpus, Features
from diptych.errors import DataError, RunError, ScoreError
from diptych.evaluation import resumable
from diptych.mining.lists import HardNegativeLists
from diptych.mining.mine import mine
from diptych.model import Model
from diptych.models.matchers.vse import VSESettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from support.ranks import on_threads

WORDS = ["a", "dog", "cat", "on", "grass", "two", "red"]


class Table:
    """A stand-in for a model with known scores of images and strings; some images cannot be read."""

    def __init__(self, scores, strings, unreadable=()):
        self.scores, self.strings, self.unreadable = torch.as_tensor(scores), strings, unreadable
        self.encoded = self.tiles = 0
        self.torch_engine = self
        self.matcher = SimpleNamespace(
            settings=SimpleNamespace(name="table"), embedding_dim=1, score=self.score, score_pairs=self.score_pairs
        )

    def score(self, images, texts):
        self.tiles += 1
        return self.scores[images][:, texts]

    def score_pairs(self, images, texts):
        return self.scores[images, texts]

    def encode_corpus_images(self, corpus, workers, progress, reader, ranks):
        self.encoded += 1
        rows = np.array([row for row in range(len(corpus.image_ids)) if row not in self.unreadable])
        skipped = {corpus.image_ids[row]: f"{row}.jpg: broken" for row in self.unreadable}
        progress(len(corpus.image_ids), len(corpus.image_ids))
        return torch.from_numpy(rows), rows, skipped

    def text_tensor(self, texts, progress, ranks, keep):
        progress(len(texts), len(texts))
        return torch.tensor([self.strings.index(text) for text in texts[keep]], dtype=torch.long)


def corpus_of(image_groups, text_groups, texts):
    return Corpus(
        "c",
        [f"image {row}" for row in range(len(image_groups))],
        np.array(image_groups),
        np.full(len(image_groups), "train"),
        texts,
        np.array(text_groups),
        np.full(len(text_groups), "train"),
    ).matched()


def sorted_lists(table, corpus, top_texts, top_images):
    """All negative pairs of the readable part, each list sorted: slow and obvious."""
    read = [row for row in range(len(corpus.image_ids)) if row not in table.unreadable]
    live = [text for text, group in enumerate(corpus.text_groups) if group in corpus.image_groups[read]]
    said = {
        group: {corpus.texts[text] for text in np.flatnonzero(corpus.text_groups == group)}
        for group in corpus.text_groups
    }
    score = {
        (image, text): float(table.scores[image, table.strings.index(corpus.texts[text])])
        for image in read
        for text in live
        if corpus.texts[text] not in said[corpus.image_groups[image]]
    }
    texts = np.full((len(corpus.image_ids), min(top_texts, len(corpus.texts))), -1)
    images = np.full((len(corpus.texts), min(top_images, len(corpus.image_ids))), -1)
    for lists, own, other in ((texts, 0, 1), (images, 1, 0)):
        for row in range(len(lists)):
            pairs = sorted((pair for pair in score if pair[own] == row), key=lambda pair: (-score[pair], pair[other]))
            found = [pair[other] for pair in pairs][: lists.shape[1]]
            lists[row, : len(found)] = found
    return texts, images


@st.composite
def cases(draw):
    image_groups = draw(st.lists(st.integers(0, 6), min_size=2, max_size=14))
    strings = [f"text {number}" for number in range(draw(st.integers(2, 8)))]
    texts = draw(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(strings)), min_size=2, max_size=40))
    corpus = corpus_of(image_groups, [group for group, _ in texts], [string for _, string in texts])
    count = len(corpus.image_ids)
    scores = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 0.75]), min_size=count * 8, max_size=count * 8))
    unreadable = draw(st.sets(st.integers(0, max(0, count - 1)), max_size=2))
    table = Table(np.array(scores, np.float32).reshape(count, 8), strings, sorted(unreadable) if count > 2 else ())
    return table, corpus


@settings(max_examples=30)
@given(cases(), st.integers(1, 9), st.integers(1, 6), st.integers(1, 150))
def test_lists_are_those_of_a_sort_whatever_the_block(tmp_path_factory, case, top_texts, top_images, block):
    table, corpus = case
    file = tmp_path_factory.mktemp("mine") / "lists.safetensors"
    texts, images = sorted_lists(table, corpus, top_texts, top_images)
    if (texts < 0).all():
        with pytest.raises(DataError, match=r"nothing to mine|no negatives to mine"):
            mine(table, corpus, file, weights="w", top_texts=top_texts, top_images=top_images, block=block)
        return
    lists = mine(table, corpus, file, weights="w", top_texts=top_texts, top_images=top_images, block=block)
    np.testing.assert_array_equal(lists.texts, texts)
    np.testing.assert_array_equal(lists.images, images)
    again = HardNegativeLists.load(file)
    np.testing.assert_array_equal(again.texts, texts)
    np.testing.assert_array_equal(again.images, images)
    assert again.header == lists.header


@settings(max_examples=15)
@given(cases(), st.integers(1, 9), st.integers(1, 6), st.integers(1, 150), st.integers(2, 3))
def test_ranks_mine_the_lists_of_one_process(tmp_path_factory, case, top_texts, top_images, block, count):
    table, corpus = case
    folder = tmp_path_factory.mktemp("mine")
    options = {"weights": "w", "top_texts": top_texts, "top_images": top_images, "block": block}
    try:
        alone = mine(table, corpus, folder / "alone", **options)
    except DataError:
        with pytest.raises(DataError, match=r"nothing to mine|no negatives to mine"):
            on_threads(count, lambda ranks: mine(table, corpus, folder / "together", **options, ranks=ranks))
        return
    for lists in on_threads(count, lambda ranks: mine(table, corpus, folder / "together", **options, ranks=ranks)):
        assert_same(lists, alone)
    assert (folder / "together").read_bytes() == (folder / "alone").read_bytes()
    assert [file.name for file in sorted(folder.iterdir())] == ["alone", "together"]


def test_each_rank_compares_its_share_and_resumes_by_itself(table, corpus, tmp_path):
    """Interrupted after a few tiles, ranks go on from what each of them has saved."""
    whole = run(table, corpus, tmp_path / "whole")
    tables = [make_table(), make_table()]

    def interrupted(ranks):
        def progress(done, total):
            if tables[ranks.rank].tiles == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(tables[ranks.rank], corpus, tmp_path / "lists", progress=progress, ranks=ranks)

    on_threads(2, interrupted)
    assert len(list(tmp_path.glob("lists.partial-*-of-2"))) == 2
    for lists in on_threads(2, lambda ranks: run(tables[ranks.rank], corpus, tmp_path / "lists", ranks=ranks)):
        assert_same(lists, whole)
    assert tables[0].tiles + tables[1].tiles == table.tiles
    assert 0.3 * table.tiles < tables[0].tiles < 0.7 * table.tiles
    assert not list(tmp_path.glob("lists.partial*"))


@pytest.fixture
def corpus():
    return corpus_of(range(30), np.repeat(np.arange(30), 3), [f"text {number}" for number in range(90)])


@pytest.fixture
def table():
    return make_table()


def make_table():
    scores = np.random.default_rng(0).integers(0, 40, (30, 90)).astype(np.float32)
    return Table(scores, [f"text {number}" for number in range(90)])


def run(table, corpus, file, **options):
    return mine(table, corpus, file, weights="w", **{"top_texts": 7, "top_images": 5, "block": 200, **options})


def assert_same(one, other):
    np.testing.assert_array_equal(one.texts, other.texts)
    np.testing.assert_array_equal(one.images, other.images)
    assert one.header == other.header


def test_a_trained_model_mines_and_describes_the_lists(tmp_path):
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    vocabulary = Vocabulary.from_texts([" ".join(WORDS)], threshold=1)
    settings = VSESettings(
        joint=8, text=GRUSettings(hidden=8, word=4), image=FeatureSettings(shape=(5,)), words=len(vocabulary)
    )
    trained = Model.from_matcher(settings.build().eval(), vocabulary, torch.device("cpu"))
    texts = [" ".join(words) for words in random.permutation(list(itertools.permutations(WORDS, 4)))[:24]]
    corpus = replace(
        corpus_of(range(12), np.repeat(np.arange(12), 2), texts),
        features=Features([random.random((12, 5), np.float32)]),
    )
    lists = mine(trained, corpus, tmp_path / "lists.safetensors", weights="w", top_texts=4, top_images=3)
    encoded = trained.encode_corpus(corpus)
    scores = trained.matcher.score(encoded.images, encoded.texts)
    scores[torch.arange(12)[:, None] == torch.arange(24) // 2] = -torch.inf
    np.testing.assert_array_equal(lists.texts, scores.topk(4).indices)
    np.testing.assert_array_equal(lists.images, scores.T.topk(3).indices)
    assert (lists.header.model, lists.header.splits, lists.header.corpus) == ("vse", ("train",), corpus.digest())
    assert lists.header.hardness.first_text == pytest.approx(float(np.median(scores.amax(1))))
    assert lists.header.hardness.last_image == pytest.approx(float(np.median(scores.T.topk(3).values[:, -1])))
    own = trained.matcher.score(encoded.images, encoded.texts)[torch.arange(24) // 2, torch.arange(24)]
    assert lists.header.hardness.positive == pytest.approx(float(np.median(own)))


def test_progress_is_reported_up_to_the_end(table, corpus, tmp_path):
    told = []
    run(table, corpus, tmp_path / "lists.safetensors", progress=lambda *progress: told.append(progress))
    assert told == sorted(told)
    assert told[-1] == (30 + 2 * 90, 30 + 2 * 90)
    assert {total for _, total in told} == {30 + 2 * 90}


def stopped(corpus, file, at=5, **options):
    """A partial file after some tiles."""
    calls = 0

    def stop(done, total):
        nonlocal calls
        calls += done > total - 90  # a tile
        if calls == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make_table(), corpus, file, progress=stop, **options)
    return file.with_name(f"{file.name}.partial")


@pytest.mark.parametrize("at", [1, 2, 9, 13])
def test_interrupted_by_the_progress_callback_and_resumed(table, corpus, tmp_path, at):
    whole = run(table, corpus, tmp_path / "whole.safetensors")
    tiles, file = table.tiles, tmp_path / "lists.safetensors"
    stopped(corpus, file, at)
    assert not file.exists()
    table = make_table()
    assert_same(run(table, corpus, file), whole)
    assert table.tiles == tiles - at
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_control_c_takes_effect_when_the_tile_is_done(table, corpus, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    whole = run(table, corpus, tmp_path / "whole.safetensors")
    tiles, file = table.tiles, tmp_path / "lists.safetensors"
    table = make_table()
    score = table.matcher.score

    def interrupted(images, texts):
        if table.tiles == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return score(images, texts)

    table.matcher.score = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(table, corpus, file)
    assert table.tiles == 5
    assert signal.getsignal(signal.SIGINT) is before
    table = make_table()
    assert_same(run(table, corpus, file), whole)
    assert table.tiles == tiles - 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\x80\x04rest of a pickle"),
    ],
    ids=["cut", "empty", "pickle"],
)
def test_a_damaged_partial_file_is_ignored(table, corpus, tmp_path, damage):
    whole = run(table, corpus, tmp_path / "whole.safetensors")
    file = tmp_path / "lists.safetensors"
    damage(stopped(corpus, file))
    again = make_table()
    assert_same(run(again, corpus, file), whole)
    assert again.tiles == table.tiles


@pytest.mark.parametrize(
    "other", [{"weights": "x"}, {"top_texts": 8}, {"top_images": 4}, {"block": 201}, {"unreadable": [3]}], ids=str
)
def test_a_partial_file_of_other_work_is_ignored(corpus, tmp_path, other):
    options = {"weights": "w", "top_texts": 7, "top_images": 5, "block": 200, **other}
    unreadable = options.pop("unreadable", ())
    tables = [make_table(), make_table()]
    for table in tables:
        table.unreadable = unreadable
    whole = mine(tables[0], corpus, tmp_path / "whole.safetensors", **options)
    file = tmp_path / "lists.safetensors"
    stopped(corpus, file)
    assert_same(mine(tables[1], corpus, file, **options), whole)
    if other != {"block": 201}:  # which cuts the same tiles here
        assert tables[1].tiles == tables[0].tiles


def test_a_finished_file_is_not_computed_again(table, corpus, tmp_path):
    file = tmp_path / "lists.safetensors"
    whole = run(table, corpus, file)
    again = make_table()
    assert_same(run(again, corpus, file), whole)
    shorter = run(again, corpus, file, top_texts=3, top_images=2)
    assert again.encoded == 0
    np.testing.assert_array_equal(shorter.texts, whole.texts[:, :3])
    np.testing.assert_array_equal(shorter.images, whole.images[:, :2])
    assert HardNegativeLists.load(file).header.top_texts == 7, "the longer lists stay"
    assert run(again, corpus, file, top_texts=8).texts.shape == (30, 8)
    assert mine(again, corpus, file, weights="other", top_texts=2, top_images=2).header.weights == "other"
    assert again.encoded == 2


def test_lists_of_other_data_are_not_overwritten(table, corpus, tmp_path):
    file = tmp_path / "lists.safetensors"
    run(table, corpus, file)
    before = file.read_bytes()
    other = replace(corpus, texts=[f"text {89 - number}" for number in range(90)])
    with pytest.raises(RunError, match=r"lists of other data; it is not overwritten: delete it or name another file$"):
        run(table, other, file)
    assert file.read_bytes() == before


def test_another_file_is_not_overwritten(table, corpus, tmp_path):
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"something else")
    with pytest.raises(RunError, match=r"not overwritten: delete it or name another file$"):
        run(table, corpus, file)
    assert file.read_bytes() == b"something else"
    assert table.encoded == 0


def test_a_full_disk_leaves_what_was_saved_before(table, corpus, tmp_path, monkeypatch):
    whole = run(table, corpus, tmp_path / "whole.safetensors")
    file, calls, sync = tmp_path / "lists.safetensors", [], os.fsync
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0)

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(make_table(), corpus, file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists.safetensors.partial", "whole.safetensors"]
    again = make_table()
    assert_same(run(again, corpus, file), whole)
    assert again.tiles == table.tiles - 3


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_killed_in_the_middle_of_a_save(table, corpus, tmp_path, monkeypatch, kill_in_a_save):
    whole = run(table, corpus, tmp_path / "whole.safetensors")
    tiles = table.tiles
    for at in (1, 2, tiles, tiles + 1):  # the last is the save of the result
        file = tmp_path / f"killed-{at}" / "lists.safetensors"
        with monkeypatch.context() as patch:
            patch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0)
            kill_in_a_save(at, lambda file=file: run(make_table(), corpus, file))
        assert list(file.parent.glob(".*.tmp")), "it was not killed in the middle of a save"
        again = make_table()
        assert_same(run(again, corpus, file), whole)
        assert again.tiles == tiles - (at - 1)


def test_an_unreadable_image_has_no_list_and_is_in_none(corpus, tmp_path):
    table = make_table()
    table.unreadable = [4]
    lists = run(table, corpus, tmp_path / "lists.safetensors", top_texts=90, top_images=30)
    assert (lists.texts[4] == -1).all()
    assert (lists.images[12:15] == -1).all()
    assert not (lists.images == 4).any()
    assert not np.isin(lists.texts, [12, 13, 14]).any()
    assert lists.header.skipped == {"image 4": "4.jpg: broken"}
    assert lists.shortage.endswith("the shortest list has 84 texts instead of 90, 28 images instead of 30")


def test_a_score_that_is_not_a_number(table, corpus, tmp_path):
    table.scores[7, 50] = torch.nan
    with pytest.raises(ScoreError, match="image 7 and text 50: their score is not a number"):
        run(table, corpus, tmp_path / "lists.safetensors")


def test_one_group_has_no_negatives(table, tmp_path):
    one = corpus_of([1, 1], [1, 1, 1], ["text 0", "text 1", "text 2"])
    with pytest.raises(DataError, match="c: all images and texts are of one group; there are no negatives to mine"):
        run(table, one, tmp_path / "lists.safetensors")
    assert table.encoded == 0
    table.unreadable = [1]
    with pytest.raises(DataError, match="of one group"):
        run(table, corpus_of([1, 2], [1, 2], ["text 0", "text 1"]), tmp_path / "lists.safetensors")
