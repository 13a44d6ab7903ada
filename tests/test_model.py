"""Model: one object for a run, an export and a matcher in memory, opened when it is first needed."""

import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.formats.scenes import make_scenes
from diptych.data.images import PictureFile
from diptych.errors import DataError, DiptychError, ImageError, RunError, ScoreError
from diptych.model import EncodedImages, Model, load
from diptych.models.export.onnx import export_in_place, export_onnx
from diptych.models.matchers.scan import SCANSettings
from diptych.models.matchers.vse import VSESettings
from diptych.models.storage import save_matcher, save_tensors
from diptych.models.towers import pretrained
from diptych.models.towers.image.cnn import CNNSettings
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.region.backbone import RegionBackboneSettings
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary
from support.localisation import Tiny
from support.own_engine import model_from

WORDS = "a red circle and two small blue stars"
TEXTS = ["a red circle", "two stars", "blue"]
PHOTOS = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.from_texts([WORDS], 1)


@pytest.fixture(scope="module")
def matcher(vocabulary):
    torch.manual_seed(0)
    towers = {"image": CNNSettings(pixels=16, width=2), "text": GRUSettings(word=4, hidden=8)}
    return VSESettings(joint=8, words=len(vocabulary), **towers).build().eval()


@pytest.fixture(scope="module")
def run(matcher, vocabulary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "run"
    save_matcher(folder / "best/weights.safetensors", matcher, vocabulary, {})
    vocabulary.save(folder)
    return folder


@pytest.fixture(scope="module")
def export(run):
    export_onnx(run, run.with_name("export"))
    return run.with_name("export")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Files of several sizes and modes."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    paths = []
    for number in range(9):
        pixels = random.integers(0, 256, (20 + number, 30, 3), np.uint8)
        image = Image.fromarray(pixels).convert(("RGB", "L", "RGBA")[number % 3])
        paths.append(folder / f"{number}.png")
        image.save(paths[-1])
    return paths


@pytest.fixture(params=["run", "export"])
def model(request):
    """The model of a run, and of its export."""
    return load(request.getfixturevalue(request.param), "cpu")


@pytest.fixture
def sets(vocabulary, monkeypatch):
    """A SCAN model that sees photos as the 16 cells of a tiny backbone."""
    monkeypatch.setattr(pretrained, "build_backbone", lambda name: Tiny())
    torch.manual_seed(0)
    settings = SCANSettings(joint=5, image=RegionBackboneSettings(), words=len(vocabulary))
    return Model.from_matcher(settings.build().eval(), vocabulary)


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


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


def test_a_model_is_shown_by_its_address(run, matcher, vocabulary):
    assert repr(load("starter")) == "Model(starter)"
    assert repr(load(run)) == f"Model({run})"
    assert repr(Model.from_matcher(matcher, vocabulary)) == "Model(in memory)"


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


def test_an_unknown_device_is_refused_at_once(run):
    with pytest.raises(DiptychError, match="device 'gpu': not one of auto, cpu, cuda, mps"):
        load(run, "gpu")


def test_an_export_runs_on_the_cpu(export):
    with pytest.raises(DiptychError, match="export: an ONNX export runs on the CPU, not on 'cuda'"):
        load(export, "cuda")


def test_nothing_is_opened_before_it_is_needed_and_then_once():
    opened = []
    slow = threading.Barrier(4)

    class Engine:
        embedding_dim = 3

    def open_engine():
        opened.append(threading.current_thread())
        return Engine()

    model = model_from(open_engine, "here", lambda: "identity")
    assert (model.address, model.identity) == ("here", "identity")
    assert not opened

    def ask():
        slow.wait()
        assert model.embedding_dim == 3

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1


def test_loading_reads_no_weights_and_imports_no_torch(run, export):
    program = """if True:
        import sys
        import diptych
        for address in sys.argv[1:]:
            model = diptych.Model.load(address)
            assert len(model.identity) == 64
        assert "torch" not in sys.modules
        import numpy as np
        images = model.encode_images([np.zeros((20, 30, 3), np.uint8)])
        model.score(images, model.encode_texts(["a red circle"], normalize=True))
        model.explain(images[0], "a red circle")
        assert "torch" not in sys.modules
        print("fine")
    """
    done = subprocess.run([sys.executable, "-c", program, run, export], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_an_incomplete_run_is_refused_at_once(copy, tmp_path):
    with pytest.raises(RunError, match=r"none: no such run; train one with `diptych train"):
        Model.load(tmp_path / "none")
    with pytest.raises(RunError, match=r"strter: no such run; did you mean 'starter'\?"):
        load("strter")
    with pytest.raises(RunError, match=r"starter: no snapshot 'first'; known: best$"):
        load("starter", snapshot="first")
    (copy / "best/weights.safetensors").unlink()
    with pytest.raises(RunError, match=r"weights\.safetensors: no such file; is this the folder of a run\?"):
        Model.load(copy)
    (copy / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json"):
        Model.load(copy)


def test_a_model_that_changes_before_it_is_opened_is_refused(copy):
    models = [Model.load(copy, "cpu") for _ in range(3)]
    first = models[0].identity
    models[1].encode_texts(TEXTS)
    with (copy / "best/weights.safetensors").open("ab") as file:
        file.write(b" ")
    for changed in (lambda: models[0].encode_texts(TEXTS), lambda: models[2].identity):
        with pytest.raises(RunError, match="copy: changed while it was opened; run the command again"):
            changed()
    assert models[0].identity == first
    assert Model.load(copy).identity != first


def test_a_relative_address_is_found_after_the_working_directory_changed(copy, tmp_path, monkeypatch):
    monkeypatch.chdir(copy.parent)
    model = Model.load("copy", "cpu")
    monkeypatch.chdir(tmp_path.parent)
    assert model.address == "copy"
    assert len(model.encode_texts(TEXTS)) == 3


def test_an_export_has_no_matcher(export):
    model = Model.load(export)
    for needs_torch in ("matcher", "device", "stores", "torch_engine"):
        with pytest.raises(RunError, match="export: an ONNX export has no torch weights; name the run") as refused:
            getattr(model, needs_torch)
        assert "\n" not in str(refused.value)


def test_a_corpus_is_encoded_with_the_matcher(matcher, vocabulary):
    corpus = make_scenes(train=1, val=1, test=4, texts=2).split("test")
    encoded = Model.from_matcher(matcher, vocabulary).encode_corpus(corpus, 0)
    assert encoded.matcher() is matcher
    assert (len(encoded.images), len(encoded.texts)) == (4, 8)


def test_a_model_in_memory_is_saved_and_loaded(matcher, vocabulary, tmp_path):
    model = Model.from_matcher(matcher, vocabulary)
    for unknown in ("address", "identity"):
        with pytest.raises(RunError, match=rf"a model in memory has no {unknown}; save it with model\.save\(FOLDER\)"):
            getattr(model, unknown)
    model.save(tmp_path / "saved")
    again = Model.load(tmp_path / "saved", "cpu")
    np.testing.assert_array_equal(again.encode_texts(TEXTS), model.encode_texts(TEXTS))
    with pytest.raises(RunError, match="exists already"):
        model.save(tmp_path / "saved")


def test_a_saved_export_is_a_copy_of_it(export, tmp_path):
    Model.load(export).save(tmp_path / "saved")
    assert Model.load(tmp_path / "saved").identity == Model.load(export).identity
    assert {file.name for file in (tmp_path / "saved").iterdir()} == {file.name for file in export.iterdir()}
    assert len(Model.load(tmp_path / "saved").encode_texts(TEXTS)) == 3


@pytest.fixture(scope="module")
def light(run):
    """The run with graphs beside its weights."""
    folder = run.with_name("light")
    shutil.copytree(run, folder)
    export_in_place(folder)
    return folder


def test_a_run_with_graphs_is_the_run_and_uses_torch_once_it_is_asked_for(run, light):
    model, own = load(light), load(run, "cpu")
    assert model.identity == own.identity
    assert model.engine is not model.torch_engine
    vectors = load(light).encode_texts(TEXTS)
    np.testing.assert_allclose(vectors, own.encode_texts(TEXTS), atol=1e-5)
    with torch.no_grad():
        model.matcher.text.words.weight.zero_()  # the caller has the module now, and may train it
    assert model.engine is model.torch_engine
    assert np.abs(model.encode_texts(TEXTS) - vectors).max() > 1e-3


def test_a_run_with_graphs_needs_no_torch_until_its_module_is_asked_for(light, tmp_path):
    program = """if True:
        import sys
        sys.modules["torch"] = None
        from PIL import Image
        import diptych
        model = diptych.load(sys.argv[1])
        images = model.encode_images([Image.new("RGB", (40, 30), "red")])
        print(model.score(images, model.encode_texts(["a red circle"])).shape)
        print(len(model.explain(images[0], "a red circle").words))
        model.save(sys.argv[2])
        print(diptych.load(sys.argv[2]).identity == model.identity)
        try:
            model.matcher
        except diptych.DiptychError as reason:
            print(reason)
    """
    words = [sys.executable, "-c", program, light, tmp_path / "saved"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[:3] == ["(1, 1)", "3", "True"]
    assert said[3] == f"{light} needs torch, which is not installed; run: pip install 'diptych[train]'"
    assert Model.load(tmp_path / "saved").torch_engine  # it is still a run


def test_graphs_of_other_weights_are_refused_and_removed_by_training(light, matcher, vocabulary, tmp_path):
    folder = shutil.copytree(light, tmp_path / "run")
    card = folder / "best" / "export.json"
    card.write_text(card.read_text().replace(load(light).identity, "0" * 64))
    with pytest.raises(RunError, match=r"export\.json: made of other weights .* diptych export .* --onnx --in-place"):
        load(folder).encode_texts(TEXTS)
    save_matcher(folder / "best" / "weights.safetensors", matcher, vocabulary, {})
    assert {file.name for file in (folder / "best").iterdir()} == {"weights.safetensors"}
    assert len(load(folder, "cpu").encode_texts(TEXTS)) == 3


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


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: torch.save({"weights": torch.ones(2)}, path), "pickled checkpoint"),
        (lambda path: path.write_bytes(b"\x80\x04\x95rest"), "pickled checkpoint"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "damaged or truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:20]), "damaged or truncated"),
        (lambda path: path.write_bytes(b""), "damaged or truncated"),
        (lambda path: path.unlink(), "no such file"),
        (lambda path: save_tensors(path, {"a": torch.ones(1)}, {}), "another tokeniser"),
    ],
)
def test_weights_that_are_damaged_or_missing_are_refused(damage, words, copy):
    path = copy / "best" / "weights.safetensors"
    damage(path)
    with pytest.raises(RunError) as raised:
        _ = Model.load(copy).matcher
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_weights_of_another_shape_or_tokeniser_are_refused(copy):
    trained = Model.load(copy, "cpu")
    path = copy / "best" / "weights.safetensors"
    about = {"model": trained.matcher.settings.model_dump(mode="json"), "vocabulary": trained.vocabulary.digest}
    weights = trained.matcher.state_dict()
    save_tensors(path, {**weights, "project.bias": torch.zeros(3)}, about)
    with pytest.raises(RunError, match=r"project\.bias is \(3,\) in the file, \(8,\) in the model"):
        _ = Model.load(copy).matcher
    save_tensors(path, {name: value for name, value in weights.items() if name != "project.bias"}, about)
    with pytest.raises(RunError, match=r"the model has project\.bias, the file has not"):
        _ = Model.load(copy).matcher
    save_tensors(path, {**weights, "extra": torch.zeros(1)}, about)
    with pytest.raises(RunError, match="the file has extra, the model has not"):
        _ = Model.load(copy).matcher
    save_tensors(path, weights, about)
    vocabulary = json.loads((copy / "vocabulary.json").read_text())
    vocabulary["words"][0] = "other"
    (copy / "vocabulary.json").write_text(json.dumps(vocabulary))
    with pytest.raises(RunError, match="another tokeniser"):
        _ = Model.load(copy).matcher
    (copy / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"not a run: it has no vocabulary\.json"):
        _ = Model.load(copy).matcher
