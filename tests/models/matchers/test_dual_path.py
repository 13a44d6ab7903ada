"""The dual-path matcher against its formulas, written out layer by layer."""

import pytest
import torch
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.features.backbone import Backbone
from diptych.models.matcher import ModelSettings
from diptych.models.matchers.dual_path import DualPathSettings
from diptych.models.tower import Tokens
from diptych.models.towers import pretrained
from diptych.models.towers.image.features import FeatureSettings
from diptych.models.towers.image.views import ViewsSettings
from diptych.models.towers.text import cnn
from diptych.models.towers.text.cnn import TextCNNSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.registry import resolve

WORDS, LENGTH, HIDDEN, JOINT = 12, 8, 7, 5
EPSILON = 1e-5  # of batch norm


class Colours(Backbone):
    """Mean and largest value of each colour of the left half of a photo, so that a mirror differs."""

    name, side, size, grid, any_side = "colours", 32, 6, (1, 6), True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / 256))

    def regions(self, pixels):
        half = (pixels.float() * self.scale)[..., : pixels.shape[-1] // 2].flatten(2)
        return torch.cat([half.mean(2), half.amax(2)], 1)[:, None]

    def forward(self, pixels):
        return self.regions(pixels)[:, 0]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(cnn, "DEPTHS", {"small": ((8, 1), (12, 1))})
    for name in ("build_backbone", "load_backbone"):
        monkeypatch.setattr(pretrained, name, lambda *_: Colours().eval())


def built(seed=0, **settings):
    """A small matcher in double precision, its batch norms with statistics and numbers of their own."""
    torch.manual_seed(seed)
    text = TextCNNSettings(depth="small", word=4, length=LENGTH)
    matcher = DualPathSettings(
        **{"text": text, "hidden": HIDDEN, "joint": JOINT, "words": WORDS, "image": ViewsSettings(), **settings}
    ).build()
    for name, tensor in matcher.state_dict().items():
        if name.endswith("running_var") or ("norm" in name and name.endswith("weight")):
            tensor.uniform_(0.5, 2)
        elif name.endswith(("running_mean", "bias")):
            tensor.normal_()
    return matcher.double()


def views(images=4, seed=1, count=2):
    return torch.randn(images, count, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(*texts):
    """Texts as word numbers between start (1) and end (2), padded with 0."""
    rows = [[1, *text, 2] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return Tokens(ids, torch.tensor([len(row) for row in rows]))


SOME = ([4, 5, 6], [7], [8, 9, 10, 11, 4], [5, 3, 6])


def formula(state, part, vectors, heads, training, side="image"):
    """fc - BN - ReLU - fc; the public text head is fc - BN, and the public image head has a BN at its end, too."""

    def fc(number, values):
        bias = state.get(f"{part}.layers.{number}.bias")
        made = values @ state[f"{part}.layers.{number}.weight"].t()
        return made if bias is None else made + bias

    def norm(number, values):
        prefix = f"{part}.norms.{number}."
        mean, variance = state[prefix + "running_mean"], state[prefix + "running_var"]
        if training:
            mean, variance = values.mean(0), values.var(0, unbiased=False)
        return (values - mean) / (variance + EPSILON).sqrt() * state[prefix + "weight"] + state[prefix + "bias"]

    if heads == "public" and side == "text":
        return norm(0, fc(0, vectors))
    made = fc(1, norm(0, fc(0, vectors)).clamp(min=0))
    return norm(1, made) if heads == "public" else made


HEADS = pytest.mark.parametrize("heads", ["paper", "public"])


@HEADS
def test_images_in_training_are_the_formula_with_the_batchs_statistics(heads):
    matcher = built(heads=heads).train()
    state = {name: tensor.clone() for name, tensor in matcher.state_dict().items()}
    same = views(count=1).expand(-1, 2, -1)  # whichever view is drawn
    expected = formula(state, "image_head", same[:, 0], heads, training=True)
    if heads == "public":
        expected = expected.clamp(min=0)
    torch.testing.assert_close(matcher.encode_images(same), normalize(expected))


@HEADS
def test_images_in_evaluation_are_the_mean_of_the_features_of_their_views(heads):
    matcher = built(heads=heads).eval()
    state, images = matcher.state_dict(), views()
    features = [formula(state, "image_head", images[:, view], heads, training=False) for view in (0, 1)]
    made = matcher.encode_images(images)
    torch.testing.assert_close(made, normalize((features[0] + features[1]) / 2))
    for other in (
        formula(state, "image_head", images.mean(1), heads, training=False),  # of the mean of the vectors
        normalize(features[0]) + normalize(features[1]),  # of features of length one
    ):
        assert (made - normalize(other)).abs().max() > 0.01
    assert torch.equal(made, matcher.encode_images(images))


@HEADS
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_texts_are_the_formula_on_what_the_text_cnn_makes(heads, training):
    matcher = built(heads=heads, text=TextCNNSettings(depth="small", word=4, length=LENGTH, alignment="left"))
    matcher.train(training)
    state = {name: tensor.clone() for name, tensor in matcher.state_dict().items()}
    expected = formula(state, "text_head", matcher.text(tokens(*SOME)), heads, training, side="text")
    if heads == "public" and training:
        expected = expected.clamp(min=0)
    matcher.load_state_dict(state)  # the running statistics have moved
    torch.testing.assert_close(matcher.encode_texts(tokens(*SOME)), normalize(expected))


def test_public_evaluation_reads_features_before_the_last_relu():
    matcher = built(heads="public").eval()
    assert (matcher.encode_images(views(30)) < 0).any()
    assert (matcher.encode_texts(tokens(*SOME)) < 0).any()
    matcher.train()
    assert (matcher.encode_images(views(30)) >= 0).all()
    assert (matcher.encode_texts(tokens(*SOME)) >= 0).all()


def test_training_draws_one_view_of_each_image_from_torchs_generator():
    matcher = built().train()
    matcher.image_head.eval()  # so that a row does not depend on the others
    images = views(40)
    alone = [normalize(matcher.image_head(images[:, view])) for view in (0, 1)]
    torch.manual_seed(3)
    first = matcher.encode_images(images)
    drawn = [(first - each).abs().amax(1) < 1e-9 for each in alone]
    assert (drawn[0] ^ drawn[1]).all()  # one or the other, no mixture
    assert drawn[0].any()
    assert drawn[1].any()
    second = matcher.encode_images(images)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, matcher.encode_images(images))
    assert torch.equal(second, matcher.encode_images(images))


def test_an_image_with_one_view_draws_it():
    matcher = built().train()
    matcher.image_head.eval()
    one = views(count=1)
    torch.testing.assert_close(matcher.encode_images(one), normalize(matcher.image_head(one[:, 0])))


@HEADS
def test_the_mean_over_shifts_is_that_of_the_features_at_each_place(heads):
    matcher = built(heads=heads, shifts="mean").eval()
    state = matcher.state_dict()
    features = []
    for text in SOME:
        known = [word for word in text if word > 3]
        places = [
            torch.tensor([[0] * before + known + [0] * (LENGTH - before - len(known))])
            for before in range(LENGTH - len(known) + 1)
        ]
        at_each = [formula(state, "text_head", matcher.text.encode(place), heads, False, "text") for place in places]
        features.append(torch.cat(at_each).mean(0))
    made = matcher.encode_texts(tokens(*SOME))
    torch.testing.assert_close(made, normalize(torch.stack(features)))
    one = built(heads=heads).eval()
    one.load_state_dict(state)
    assert (one.encode_texts(tokens(*SOME)) - made).abs().amax(1).min() > 1e-4


def test_shifts_change_nothing_in_training():
    one, mean = built().train(), built(shifts="mean").train()
    torch.manual_seed(0)
    expected = one.encode_texts(tokens(*SOME))
    torch.manual_seed(0)
    assert torch.equal(mean.encode_texts(tokens(*SOME)), expected)


@pytest.mark.parametrize("shifts", ["one", "mean"])
def test_a_text_alone_is_encoded_as_among_others(shifts):
    matcher = built(shifts=shifts).eval()
    together = matcher.encode_texts(tokens(*SOME))
    for row, text in enumerate(SOME):
        torch.testing.assert_close(matcher.encode_texts(tokens(text))[0], together[row])
    longer = Tokens(torch.cat([tokens(*SOME).ids, torch.zeros(4, 9, dtype=torch.long)], 1), tokens(*SOME).lengths)
    torch.testing.assert_close(matcher.encode_texts(longer), together)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("shifts", ["one", "mean"])
def test_texts_of_only_unknown_words_are_one_finite_vector(shifts):
    matcher = built(shifts=shifts).eval()
    made = matcher.encode_texts(tokens([3, 3, 3], [], [3], [4]))
    assert made.isfinite().all()
    torch.testing.assert_close(made[0], made[1])
    torch.testing.assert_close(made[0], made[2])
    assert (made[0] - made[3]).abs().max() > 1e-5
    matcher.train()
    assert matcher.encode_texts(tokens([3, 3], [4, 5])).isfinite().all()


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_a_classifier_reads_the_features_with_dropout(share):
    matcher = built(dropout=share, joint=200).train()
    matcher.image_head.eval()
    matcher.text_head.eval()
    same = views(count=1).expand(-1, 2, -1)
    encoded = matcher.encode_batch(same, tokens(*SOME), torch.arange(4))
    for read, unit in zip(encoded.features, (encoded.images, encoded.texts), strict=True):
        kept = read != 0
        assert kept.double().mean() == pytest.approx(1 - share, abs=0.1)
        lengths = (read[kept] * (1 - share) / unit[kept]).view(-1)  # a feature over its share of length one
        whole = (read * (1 - share) / unit).masked_fill(~kept, torch.nan)
        assert (lengths > 0).all()
        for row in whole:
            inside = row[~row.isnan()]
            torch.testing.assert_close(inside, inside[:1].expand_as(inside))
        torch.testing.assert_close(unit.norm(dim=1), torch.ones(4, dtype=torch.float64))
    image = matcher.image_head(same[:, 0])
    read = encoded.features[0]
    torch.testing.assert_close(read[read != 0] * (1 - share), image[read != 0])


def test_in_evaluation_nothing_is_dropped():
    matcher = built().eval()
    encoded = matcher.encode_batch(views(), tokens(*SOME), torch.arange(4))
    torch.testing.assert_close(encoded.images, matcher.encode_images(views()))
    torch.testing.assert_close(encoded.texts, matcher.encode_texts(tokens(*SOME)))
    for read, unit in zip(encoded.features, (encoded.images, encoded.texts), strict=True):
        torch.testing.assert_close(normalize(read), unit)


def test_in_public_training_the_classifier_reads_what_the_relu_left():
    encoded = built(heads="public").train().encode_batch(views(20), tokens(*SOME), torch.zeros(4, dtype=torch.long))
    assert all((read >= 0).all() for read in encoded.features)


def test_a_batch_of_one_image_trains():
    matcher = built().train()
    encoded = matcher.encode_batch(views(1), tokens(*SOME), torch.zeros(4, dtype=torch.long))
    sum(part.sum() for part in (encoded.images, encoded.texts, *encoded.features)).backward()
    assert encoded.images.isfinite().all()
    assert matcher.image_head.layers[0].weight.grad.isfinite().all()
    one = matcher.encode_batch(views(1), tokens([4, 5]), torch.zeros(1, dtype=torch.long))
    assert one.texts.isfinite().all()


def test_the_score_is_the_cosine_of_the_features():
    matcher = built().eval()
    images, texts = matcher.encode_images(views()), matcher.encode_texts(tokens(*SOME))
    encoded = matcher.encode_batch(views(), tokens(*SOME), torch.arange(4))
    of_images, of_texts = encoded.features
    scores = matcher.score(images, texts)
    for i in range(4):
        for j in range(4):
            cosine = of_images[i] @ of_texts[j] / (of_images[i].norm() * of_texts[j].norm())
            torch.testing.assert_close(scores[i, j], cosine)
    torch.testing.assert_close(matcher.score_pairs(images, texts), scores.diagonal())
    assert matcher.embedding_dim == JOINT


def test_pixels_and_stored_views_agree():
    matcher = built().float().eval()
    pixels = torch.randint(0, 256, (3, 2, 3, 32, 32), dtype=torch.uint8)
    stored = torch.stack([matcher.image.backbone(crops) for crops in pixels])
    torch.testing.assert_close(matcher.encode_images(pixels), matcher.encode_images(stored))


def test_a_corpus_with_own_features_has_one_vector_an_image():
    settings = DualPathSettings(hidden=HIDDEN, joint=JOINT, text=TextCNNSettings(depth="small", word=4))
    fitted = settings.for_data(WORDS, (6,))
    assert fitted.image == FeatureSettings(shape=(6,))
    matcher = fitted.build().eval()
    own = views().float()[:, 0]
    torch.testing.assert_close(matcher.encode_images(own), normalize(matcher.image_head(own)))
    matcher.train()
    assert matcher.encode_batch(own, tokens(*SOME), torch.arange(4)).features[0].shape == (4, JOINT)
    regions = settings.for_data(WORDS, (3, 6)).build().eval()
    assert regions.encode_images(torch.randn(4, 3, 6)).shape == (4, JOINT)


@HEADS
def test_the_parts_and_weights_are_those_of_an_encoder(heads):
    matcher = built(heads=heads)
    assert {name.split(".")[0] for name in matcher.state_dict()} == {"image", "image_head", "text", "text_head"}
    assert not any("classifier" in name for name in matcher.state_dict())
    head = {name for name in matcher.state_dict() if name.startswith("text_head.") and "running" not in name}
    norm = {"text_head.norms.0.weight", "text_head.norms.0.bias", "text_head.norms.0.num_batches_tracked"}
    last = set() if heads == "public" else {"text_head.layers.1.weight", "text_head.layers.1.bias"}
    assert head == {"text_head.layers.0.weight"} | norm | last


def test_the_sizes_are_the_papers_by_default():
    settings = DualPathSettings()
    assert (settings.hidden, settings.joint, settings.dropout) == (2048, 2048, 0.75)
    assert (settings.image.name, settings.image.crops, settings.text.name) == ("views", "mirrored", "cnn")
    assert (settings.heads, settings.shifts) == ("paper", "one")


def test_settings_that_are_refused():
    with pytest.raises(RecipeError, match=r"^model\.shifts = 'mean': only the text tower 'cnn'"):
        built(shifts="mean", text=GRUSettings(hidden=4, word=3))
    assert built(text=GRUSettings(hidden=4, word=3)).eval().encode_texts(tokens(*SOME)).shape == (4, JOINT)
    for change, words in (({"dropout": 1}, "dropout = 1"), ({"heads": "code"}, "heads"), ({"dropuot": 0}, "'dropout'")):
        with pytest.raises(RecipeError, match=words):
            resolve("models.matchers", {"name": "dual_path", **change}, "model", ModelSettings)
