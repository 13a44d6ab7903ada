import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.nn.functional import batch_norm, conv2d, pad, relu

from diptych.errors import RecipeError
from diptych.models.tower import TextTowerSettings, Tokens
from diptych.models.towers.text.cnn import DEPTHS, TextCNN, TextCNNSettings
from diptych.registry import resolve
from diptych.text.tokenisers.token_table import END, PAD, START, UNKNOWN

WORDS = 30
TINY = ((8, 2), (12, 1), (16, 1))


def tokens(*texts):
    """Texts of these words between start and end, padded."""
    whole = [[START, *text, END] for text in texts]
    longest = max(map(len, whole))
    return Tokens(
        torch.tensor([text + [PAD] * (longest - len(text)) for text in whole]),
        torch.tensor([len(text) for text in whole]),
    )


def tiny(stages=TINY, **settings):
    torch.manual_seed(0)
    tower = TextCNN(WORDS, TextCNNSettings(**{"word": 5, "length": 8, **settings}), stages).double()
    for part in tower.modules():
        if isinstance(part, torch.nn.BatchNorm1d):  # nothing shall be so by being zero or one
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.normal_(part.bias, std=0.1)
            torch.nn.init.normal_(part.running_mean, std=0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
    return tower


def place(texts, begins, length):
    """One-hot T of the paper, (texts, words, 1, length), of each text's known words from its place on."""
    sentences = torch.zeros(len(texts), WORDS, 1, length, dtype=torch.double)
    for row, (text, begin) in enumerate(zip(texts, begins, strict=True)):
        for number, word in enumerate(known(text, length)):
            sentences[row, word, 0, begin + number] = 1
    return sentences


def known(text, length):
    return [word for word in text if word > UNKNOWN][:length]


def reference(tower, sentences):
    """The paper's network on one-hot tensors, layer by layer."""

    def norm(pictures, layer):
        running = (None, None) if tower.training else (layer.running_mean, layer.running_var)
        return batch_norm(pictures, *running, layer.weight, layer.bias, training=tower.training)

    def one(pictures, part):
        return norm(conv2d(pictures, part.product.weight[:, :, None, None]), part.norm)

    pictures = norm(conv2d(sentences, tower.words.weight.t()[:, :, None, None]), tower.norm)
    for block in tower.blocks:
        inner = relu(one(pictures, block.narrow))
        before, here = block.pair.product.weight.chunk(2, 1)
        inner = conv2d(pad(inner, (1, 0)), torch.stack([before, here], 2)[:, :, None])  # (out, in, 1, 2)
        if block.stride == 2:
            last = inner.shape[3] - 1
            chosen = [number for number in range(last + 1) if (last - number) % 2 == 0]
            inner, pictures = inner[..., chosen], pictures[..., chosen]
        made = one(relu(norm(inner, block.pair.norm)), block.widen)
        pictures = relu(made + (pictures if block.shortcut is None else one(pictures, block.shortcut)))
    return pictures.mean((2, 3)) if tower.pool == "mean" else pictures.amax((2, 3))


def draw_begins(tower, texts):
    """Where texts begin, one by one."""
    free = [tower.length - len(known(text, tower.length)) for text in texts]
    if tower.alignment == "left":
        return [0] * len(texts)
    if not tower.training:
        return [room // 2 for room in free]
    return [int(share * (room + 1)) for share, room in zip(torch.rand(len(texts)).tolist(), free, strict=True)]


TEXTS = [[5, 6, 3, 7, 5], [8], [3, 3], [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], [5, 6, 7, 5]]


# Every way with the fewest layers, which do all that more of them do; each depth with one way.
WAYS = [("small", pool, alignment) for pool in ("mean", "max") for alignment in ("shift", "left")]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    ("depth", "pool", "alignment"), [*WAYS, *((depth, "mean", "shift") for depth in DEPTHS if depth != "small")]
)
def test_it_is_the_network_of_the_paper_in_value_and_gradient(depth, pool, alignment, training):
    stages = tuple((8 * 2**number, blocks) for number, (_, blocks) in enumerate(DEPTHS[depth]))
    tower = tiny(stages, pool=pool, alignment=alignment, length=16).train(training)
    torch.manual_seed(3)
    vectors = tower(tokens(*TEXTS))
    torch.manual_seed(3)
    expected = reference(tower, place(TEXTS, draw_begins(tower, TEXTS), tower.length))
    torch.testing.assert_close(vectors, expected, atol=1e-8, rtol=1e-5)
    direction = torch.randn_like(vectors)
    ours = torch.autograd.grad((vectors * direction).sum(), list(tower.parameters()))
    theirs = torch.autograd.grad((expected * direction).sum(), list(tower.parameters()))
    largest = max(gradient.abs().max().item() for gradient in theirs)
    assert largest > 1e-3
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8 * largest, rtol=1e-5)


texts_of_words = st.lists(
    st.lists(st.integers(UNKNOWN, WORDS - 1), max_size=14),
    min_size=1,
    max_size=4,
)


@hypothesis_settings(max_examples=25)
@given(texts_of_words, st.integers(8, 13), st.sampled_from(["shift", "left"]), st.booleans(), st.integers(0, 99))
def test_any_texts_and_any_length(texts, length, alignment, training, seed):
    tower = tiny(length=length, alignment=alignment).train(training)
    torch.manual_seed(seed)
    vectors = tower(tokens(*texts))
    torch.manual_seed(seed)
    expected = reference(tower, place(texts, draw_begins(tower, texts), length))
    torch.testing.assert_close(vectors, expected, atol=1e-6, rtol=1e-5)


@hypothesis_settings(max_examples=20)
@given(texts_of_words)
def test_everywhere_is_each_placement_by_hand(texts):
    tower = tiny().eval()
    vectors, owner = tower.encode_at_all_positions(tokens(*texts))
    begins = [(row, begin) for row, text in enumerate(texts) for begin in placements(text, tower.length)]
    assert owner.tolist() == [row for row, _ in begins]
    expected = reference(tower, place([texts[row] for row, _ in begins], [begin for _, begin in begins], tower.length))
    torch.testing.assert_close(vectors, expected)


def placements(text, length):
    words = known(text, length)
    return range(length - len(words) + 1) if words else [0]


def test_everywhere_does_not_depend_on_how_many_are_computed_at_once(monkeypatch):
    tower = tiny().eval()
    whole, _ = tower.encode_at_all_positions(tokens(*TEXTS))
    monkeypatch.setattr("diptych.models.towers.text.cnn.PLACEMENTS_AT_ONCE", 3)
    torch.testing.assert_close(tower.encode_at_all_positions(tokens(*TEXTS))[0], whole)


def test_in_evaluation_a_text_depends_neither_on_other_texts_nor_on_padding():
    tower = tiny().eval()
    together = tower(tokens(*TEXTS))
    for text, vector in zip(TEXTS, together, strict=True):
        torch.testing.assert_close(tower(tokens(text))[0], vector)
    padded = Tokens(pad(tokens(*TEXTS).ids, (0, 5), value=PAD), tokens(*TEXTS).lengths)
    torch.testing.assert_close(tower(padded), together)


@pytest.mark.parametrize("alignment", ["shift", "left"])
def test_texts_without_known_words_are_all_the_same_empty_row(alignment):
    tower = tiny(alignment=alignment).eval()
    vectors = tower(tokens([], [3], [3] * 12, [5, 6]))
    assert vectors.isfinite().all()
    assert torch.equal(vectors[0], vectors[1])
    assert torch.equal(vectors[0], vectors[2])
    assert not torch.allclose(vectors[0], vectors[3])
    torch.testing.assert_close(tower(tokens([3, 3]))[0], vectors[0])
    assert tower.train()(tokens([3], [5, 6])).isfinite().all()


def test_a_long_text_loses_its_last_words():
    tower = tiny().eval()
    first = [7, 8, 9, 10, 11, 12, 13, 14]
    cut, other, whole = tower(tokens([*first, 20, 21], [*first, 22], first))
    assert torch.equal(cut, whole)
    assert torch.equal(other, whole)
    assert not torch.allclose(tower(tokens([*first[:-1], 20]))[0], whole)  # the last place counts


def test_unknown_words_start_and_end_take_no_place():
    tower = tiny().eval()
    with_unknown, without = tower(tokens([5, 3, 6, 3], [5, 6]))
    assert torch.equal(with_unknown, without)


def test_training_shifts_a_text_to_every_place_alike(monkeypatch):
    tower = tiny(length=10).train()
    seen = []
    monkeypatch.setattr(tower, "encode", seen.append)
    torch.manual_seed(0)
    tower(tokens(*[[5, 6, 7]] * 4000))
    begins = (seen[0] == 5).int().argmax(1)
    assert torch.equal(seen[0].gather(1, begins[:, None] + torch.arange(3)), torch.tensor([[5, 6, 7]]).expand(4000, 3))
    counts = begins.bincount(minlength=8)
    assert len(counts) == 8
    assert ((counts - 500.0).square() / 500).sum() < 24.3  # chi-square of 7 degrees: one in a thousand is beyond
    torch.manual_seed(0)
    tower(tokens(*[[5, 6, 7]] * 4000))
    tower(tokens(*[[5, 6, 7]] * 4000))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_a_text_is_never_shifted_out_of_its_row(monkeypatch):
    tower = tiny().train()
    monkeypatch.setattr(torch, "rand", lambda *shape, device: torch.full(shape, 1.0, device=device))
    torch.testing.assert_close(tower(tokens([5, 6])), reference(tower, place([[5, 6]], [6], 8)), atol=1e-6, rtol=1e-5)


def test_one_text_of_few_places_trains():
    tower = tiny(((8, 1), (8, 1), (8, 1), (8, 1))).train()
    assert tower(tokens([5, 6])).isfinite().all()


def test_an_empty_place_is_a_zero_vector_and_stays_one():
    tower = tiny().train()
    assert not tower.words.weight[PAD].any()
    tower(tokens(*TEXTS)).sum().backward()
    assert not tower.words.weight.grad[PAD].any()
    assert tower.words.weight.grad[5].any()


def test_words_start_from_vectors_where_they_are_found():
    tower = tiny().float()
    before = tower.words.weight.detach().clone()
    vectors = torch.randn(WORDS, 5)
    found = torch.zeros(WORDS, dtype=torch.bool)
    found[[4, 9]] = True
    tower.load_word_vectors(vectors, found)
    assert torch.equal(tower.words.weight[found], vectors[found])
    assert torch.equal(tower.words.weight[~found], before[~found])
    with pytest.raises(RecipeError, match=r"set model\.text\.word = 7"):
        tower.load_word_vectors(torch.randn(WORDS, 7), found)


@pytest.mark.parametrize(
    ("depth", "size"), [("resnet50", 2048), ("public", 2048), ("resnet152", 2048), ("small", 1024)]
)
def test_a_recipe_names_it_and_its_size_is_the_last_width(depth, size):
    settings = resolve("models.towers.text", {"name": "cnn", "depth": depth}, "model.text", TextTowerSettings)
    with torch.device("meta"):
        assert settings.build(WORDS).size == size


def test_a_row_is_at_least_as_long_as_the_strides_need():
    with pytest.raises(RecipeError, match=r"length = 7: .*greater than or equal to 8"):
        resolve("models.towers.text", {"name": "cnn", "length": 7}, "model.text", TextTowerSettings)
