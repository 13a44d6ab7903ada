"""A model encodes, scores and explains pictures and texts, whatever they come as."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.formats.scenes import make_scenes
from diptych.data.images import PictureFile
from diptych.errors import DataError, ImageError, RunError, ScoreError
from diptych.model import EncodedImages, Model, load
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings

TEXTS = ["a red circle", "two stars", "blue"]
PHOTOS = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]


def test_a_run_its_export_and_its_matcher_agree(run, export, matcher, vocabulary):
    loaded, exported = Model.load(run, "cpu"), Model.load(export)
    in_memory = Model.from_matcher(matcher, vocabulary)
    assert loaded.identity == exported.identity
    assert (loaded.address, exported.address) == (str(run), str(export))
    of_images, of_texts = in_memory.encode_images(PHOTOS, as_tensor=True), in_memory.encode_texts(TEXTS, as_tensor=True)
    wanted = matcher.score(of_images, of_texts).detach()
    for model in (loaded, exported, in_memory):
        assert (model.embedding_dim, model.is_inner_product, model.localises) == (8, True, False)
        images, texts = model.encode_images(PHOTOS), model.encode_texts(TEXTS)
        np.testing.assert_allclose(model.score(images, texts), wanted, atol=1e-4)
        tokens = model.engine.encode_tokens([text.split() for text in TEXTS])
        np.testing.assert_allclose(tokens.vectors, texts, atol=1e-5)
        assert model.known_words(["red", "zebra"]).tolist() == [True, False]
        assert model.known_texts(["a zebra", "zebra", ""]).tolist() == [True, False, False]
        assert model.unknown_words("a zebra, a red zebra") == ["zebra", ","]


def test_images_are_encoded_as_they_are_preprocessed(run):
    model = Model.load(run, "cpu")
    preprocessed = [model.engine.preprocess(photo) for photo in PHOTOS]
    encodings = model.engine.encode_preprocessed(preprocessed)
    np.testing.assert_array_equal(encodings.vectors, model.encode_images(PHOTOS))


def test_files_images_and_arrays_have_the_same_embeddings(model, photos):
    embeddings = model.encode_images(photos)
    assert (embeddings.shape, embeddings.dtype) == ((9, 8), np.float32)
    loaded = [Image.open(path) for path in photos]
    np.testing.assert_array_equal(model.encode_images(loaded), embeddings)
    arrays = [np.asarray(image.convert("RGB")) for image in loaded[:2]]
    np.testing.assert_allclose(model.encode_images([str(photos[0]), *arrays])[1:], embeddings[:2], atol=1e-6)
    seen = []
    batched = model.encode_images(photos, batch_size=4, workers=0, progress=lambda *numbers: seen.append(numbers))
    np.testing.assert_allclose(batched, embeddings, atol=1e-6)
    assert seen == [(4, 9), (8, 9), (9, 9)]


def test_files_are_read_as_a_corpus_is(matcher, vocabulary, photos):
    corpus = make_scenes(train=1, val=1, test=9, texts=2).split("test")
    corpus = replace(corpus, pictures=[PictureFile(path) for path in photos])
    model = Model.from_matcher(matcher, vocabulary)
    encoded = model.encode_corpus(corpus, 0)
    np.testing.assert_allclose(model.encode_images(photos), encoded.images, atol=1e-6)
    np.testing.assert_allclose(model.encode_texts(corpus.texts), encoded.texts, atol=1e-6)


def test_tensors_and_rows_of_length_one(model, photos):
    for encode, items in ((model.encode_images, photos), (model.encode_texts, TEXTS)):
        array, tensor = encode(items), encode(items, as_tensor=True)
        assert (tensor.dtype, tensor.device.type) == (torch.float32, "cpu")
        np.testing.assert_array_equal(tensor, array)
        scaled = encode([*items], normalize=True)
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(scaled, array / np.linalg.norm(array, axis=1, keepdims=True), atol=1e-6)
        assert encode([]).shape == (0, 8)


def test_an_image_that_cannot_be_read_is_named_or_skipped(model, photos, tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    mixed = [tmp_path / "bad.jpg", photos[0], "none.jpg", photos[1], Image.new("F", (2, 2))]
    with pytest.raises(ImageError, match=r"bad\.jpg: not an image in a known format"):
        model.encode_images(mixed)
    with pytest.raises(ImageError, match=r"images\[1\]: floating-point pixels"):
        model.encode_images([photos[0], mixed[4]])
    embeddings, kept, skipped = model.encode_images(mixed, errors="skip")
    np.testing.assert_allclose(embeddings, model.encode_images(photos[:2]), atol=1e-6)
    assert (kept, sorted(skipped)) == ([1, 3], [0, 2, 4])
    assert skipped[2] == "none.jpg: no such file"
    nothing = model.encode_images(mixed[:1], errors="skip", as_tensor=True)
    assert isinstance(nothing, EncodedImages)
    assert (nothing.embeddings.shape, nothing.kept) == ((0, 8), [])


def test_what_is_not_an_image_is_refused_or_skipped(model, photos):
    mixed = [None, photos[0], "https://a/b.jpg", np.zeros((4, 4, 3)), photos[1]]
    with pytest.raises(DataError, match=r"images\[0\]: no image"):
        model.encode_images(mixed)
    found = model.encode_images(mixed, errors="skip")
    np.testing.assert_allclose(found.embeddings, model.encode_images(photos[:2]), atol=1e-6)
    assert (found.kept, sorted(found.skipped)) == ([1, 4], [0, 2, 3])
    assert found.skipped[0] == "images[0]: no image"
    assert found.skipped[2].startswith("images[2]: 'https://a/b.jpg' is a URL, and Diptych never downloads")
    with pytest.raises(
        DataError, match=r"images: what encode_images returned with errors='skip'; pass its .embeddings"
    ):
        model.score(found, TEXTS)


def test_tensors_without_values_are_refused(run):
    model = load(run, "cpu")
    images, texts = (torch.empty(2, model.embedding_dim, device="meta") for _ in range(2))
    with pytest.raises(ScoreError, match="texts: on the device 'meta', where tensors have no values"):
        model.score(images, texts)


def test_scores_of_embeddings_and_of_what_they_come_from(model, photos):
    images, texts = model.encode_images(photos), model.encode_texts(TEXTS)
    wanted = images @ texts.T
    as_tensors = torch.from_numpy(images), torch.from_numpy(texts).double()
    for pair in ((images, texts), (photos, TEXTS), (images.astype(np.float64), TEXTS), (photos, texts), as_tensors):
        scores = model.score(*pair)
        assert (scores.shape, scores.dtype) == ((9, 3), np.float32)
        np.testing.assert_allclose(scores, wanted, atol=1e-5)
    assert model.score([], TEXTS).shape == (0, 3)
    for wrong in (images[:, :3], images[0], images.astype(np.int64), images * np.nan):
        with pytest.raises(ScoreError, match=r"^images: "):
            model.score(wrong, texts)
    with pytest.raises(ScoreError, match=r"texts: an array of shape \(3, 1, 8\)"):
        model.score(images, texts[:, None])
    with pytest.raises(ScoreError, match="images are on cpu and texts on meta"):
        model.score(as_tensors[0], as_tensors[1].to("meta"))
    with pytest.raises(DataError, match="texts: one string"):
        model.score(images, "a red circle")
    with pytest.raises(DataError, match="images: one image"):
        model.score(photos[0], TEXTS)


def test_words_are_explained_for_an_image_or_its_embedding(model, photos):
    wanted = model.explain(photos[0], "a red zebra circle")
    assert [word.word for word in wanted.words] == ["a", "red", "zebra", "circle"]
    assert wanted.unknown == ["zebra"]
    assert wanted.score == pytest.approx(float(model.score(photos[:1], ["a red zebra circle"])[0, 0]), abs=1e-6)
    embeddings = model.encode_images(photos)
    for image in (embeddings[0], embeddings[:1], torch.from_numpy(embeddings[0]), Image.open(photos[0])):
        found = model.explain(image, "a red zebra circle")
        np.testing.assert_allclose(
            [word.importance for word in found.by_importance],
            [word.importance for word in wanted.by_importance],
            atol=1e-6,
        )
    with pytest.raises(ScoreError, match="images: 9 rows; pass the embedding of one image"):
        model.explain(embeddings, "red")
    with pytest.raises(DataError, match="text: None is not a string"):
        model.explain(photos[0], None)
    with pytest.raises(ImageError, match="the image: floating-point"):
        model.explain(Image.new("F", (2, 2)), "red")
    with pytest.raises(DataError, match="the image: the image is of type int"):
        model.explain(3, "red")


def test_models_that_see_whole_images_localise_nothing(run, export, matcher, vocabulary, photos):
    for model, name in ((load(run, "cpu"), str(run)), (Model.from_matcher(matcher, vocabulary), "the model")):
        with pytest.raises(RunError, match=f"^{name}: the model scores whole images"):
            model.localize(photos[0], ["red"])
    with pytest.raises(RunError, match="an ONNX export has no torch weights"):
        load(export).localize(photos[0], ["red"])


def test_sets_are_padded_with_zeros(sets, photos):
    images = sets.encode_images(photos, batch_size=4)
    texts = sets.encode_texts(TEXTS)
    assert (images.shape, texts.shape) == ((9, 16, 5), (3, 5, 5))
    assert texts.any(2).sum(1).tolist() == [5, 4, 3]  # with <start> and <end>
    np.testing.assert_allclose(np.linalg.norm(images, axis=2), 1, atol=1e-5)
    np.testing.assert_allclose(sets.encode_texts(TEXTS, normalize=True), texts, atol=1e-5)
    with torch.inference_mode():
        wanted = sets.matcher.score(torch.from_numpy(images), torch.from_numpy(texts))
    np.testing.assert_allclose(sets.score(images, texts), wanted, atol=1e-6)
    np.testing.assert_allclose(sets.score(photos, TEXTS), wanted, atol=1e-6)
    whole, row = sets.explain(photos[1], "a red circle"), sets.explain(images[1], "a red circle")
    assert row.score == pytest.approx(whole.score, abs=1e-6)
    assert row.score == pytest.approx(float(wanted[1, 0]), abs=1e-6)
    assert (sets.encode_images([]).shape[::2], sets.encode_texts([]).shape[::2]) == ((0, 5), (0, 5))


@pytest.mark.parametrize("kind", ["run", "export", "sets"])
def test_threads_share_a_model(kind, photos, request):
    known = request.getfixturevalue(kind)
    fresh = known if kind == "sets" else load(known, "cpu")  # not opened yet: the threads race to open it
    model = known if kind == "sets" else load(known, "cpu")
    wanted = model.encode_images(photos), model.encode_texts(TEXTS), model.score(photos, TEXTS)
    opened = [Image.open(path) for path in photos]  # shared, and decoded by whoever comes first

    def work(number):
        source = opened if number % 2 else photos
        found = fresh.encode_images(source, batch_size=1 + number), fresh.encode_texts(TEXTS), fresh.score(*wanted[:2])
        return [np.allclose(one, other, atol=1e-5) for one, other in zip(found, wanted, strict=True)]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(12))) == [[True] * 3] * 12


def test_a_bar_is_shown_only_on_a_terminal(run, capsys):
    model = load(run, "cpu")
    np.testing.assert_array_equal(model.encode_texts(TEXTS, progress=True), model.encode_texts(TEXTS, progress=False))
    assert len(model.encode_images(PHOTOS, progress=True)) == 2
    assert capsys.readouterr() == ("", "")


def test_a_corpus_is_encoded_with_the_matcher(matcher, vocabulary):
    corpus = make_scenes(train=1, val=1, test=4, texts=2).split("test")
    encoded = Model.from_matcher(matcher, vocabulary).encode_corpus(corpus, 0)
    assert encoded.matcher() is matcher
    assert (len(encoded.images), len(encoded.texts)) == (4, 8)


def test_a_model_that_reads_features_cannot_read_pictures(vocabulary, run, tmp_path):
    text = GRUSettings(hidden=4, word=3)
    matcher = VSESettings(joint=4, image=FeatureSettings(shape=(4,)), text=text, words=len(vocabulary)).build()
    save_matcher(tmp_path / "features" / "best" / "weights.safetensors", matcher, vocabulary, {})
    vocabulary.save(tmp_path / "features")
    with pytest.raises(DataError, match="features: the run reads features that came with its data"):
        load(tmp_path / "features").check_reads_pictures()
    in_memory = Model.from_matcher(matcher, vocabulary)
    for ask in (lambda: in_memory.encode_images(PHOTOS), lambda: in_memory.explain(PHOTOS[0], "red")):
        with pytest.raises(DataError, match="the model: the run reads features that came with its data"):
            ask()
    Model.load(run, "cpu").check_reads_pictures()


def test_sets_are_searched_by_their_mean_and_scored_by_the_model(vocabulary):
    torch.manual_seed(0)
    settings = SCANSettings(joint=5, image=RegionFeatureSettings(shape=(3, 4)), words=len(vocabulary))
    matcher = settings.build().eval()
    model = Model.from_matcher(matcher, vocabulary)
    assert (model.embedding_dim, model.is_inner_product) == (5, False)
    texts = model.engine.encode_texts(TEXTS)
    assert [len(words) for words in texts.sets] == [5, 4, 3]  # with <start> and <end>
    for vector, words in zip(texts.vectors, texts.sets, strict=True):
        mean = words.sum(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    images = model.engine.encode_preprocessed(list(np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)))
    alone = model.engine.score(images.take([1]), texts.take([2]))
    np.testing.assert_allclose(model.engine.score(images, texts)[1, 2], alone[0, 0], atol=1e-6)
