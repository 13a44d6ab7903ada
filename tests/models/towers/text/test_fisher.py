import numpy as np
import pytest
import torch

from diptych.errors import RecipeError
from diptych.models.tower import Tokens
from diptych.models.towers.text import fisher
from diptych.models.towers.text.fisher import FisherSettings
from diptych.text.features.fisher import fisher_vectors
from diptych.text.features.mixtures import Mixture
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.word_vectors import WordVectors

WORDS, SIZE = 60, 5
SMALL = FisherSettings(word=SIZE, centres=3, size=8, iterations=20)


def texts(count=80, seed=0):
    random = np.random.default_rng(seed)
    made = [[1, *random.integers(3, WORDS, random.integers(1, 8)), 2] for _ in range(count)]
    offsets = np.cumsum([0, *map(len, made)]).astype(np.int64)
    return TokenTable(np.concatenate(made).astype(np.int32), offsets)


def vectors(size=SIZE):
    values = np.random.default_rng(1).laplace(size=(WORDS, size)).astype(np.float32)
    found = np.arange(WORDS) >= 4
    found[10] = False
    values[~found] = 0
    return WordVectors(values, found)


def batch(table, rows):
    ids, lengths = table.batch(np.asarray(rows))
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths))


def fitted(settings=SMALL, table=None):
    tower = settings.build(WORDS)
    tower.fit(table or texts(), vectors())
    return tower


def without_pca(settings=SMALL, **changes):
    return fitted(settings.model_copy(update={"size": None, **changes}))


def test_word_vectors_are_ten_long_and_unknown_words_zero():
    lengths = fitted().table.norm(dim=1)
    torch.testing.assert_close(lengths[vectors().found], torch.full((WORDS - 5,), 10.0))
    assert not lengths[~vectors().found].any()


@pytest.mark.parametrize("mixture", ["hglmm", "gmm"])
def test_a_text_is_the_fisher_vector_of_its_known_words(mixture):
    tower = without_pca(mixture=mixture)
    assert bool(tower.laplacian.any()) is (mixture == "hglmm")
    ids = torch.tensor([[1, 7, 10, 3, 7, 20, 2]])
    values = Mixture(tower.weights, tower.locations, tower.scales, tower.laplacian)
    expected = fisher_vectors(torch.tensor([7, 7, 20]), torch.tensor([0]), tower.table, values)
    torch.testing.assert_close(tower(Tokens(ids, torch.tensor([7]))), expected)
    assert tower.size == expected.shape[1] == 2 * 3 * SIZE


def test_without_ica_the_vectors_only_get_a_length():
    table = without_pca(ica=False).table
    found = vectors().found
    given = torch.from_numpy(vectors().vectors)[found]
    torch.testing.assert_close(table[found], 10 * given / given.norm(dim=1, keepdim=True))
    assert not torch.allclose(without_pca().table, table)


def test_the_pca_is_that_of_the_training_texts():
    table, whole, reduced = texts(), without_pca(), fitted()
    rows = whole(batch(table, range(len(table))))
    made = reduced(batch(table, range(len(table))))
    _, _, directions = torch.linalg.svd((rows - rows.mean(0)).double())
    expected = (rows - rows.mean(0)).double() @ directions[:8].T
    torch.testing.assert_close(made.abs(), expected.abs().float(), atol=1e-4, rtol=1e-3)
    assert made.shape == (len(table), reduced.size) == (80, 8)


def test_each_distinct_word_counts_once_unless_occurrences_do():
    table = texts(10)
    twice = TokenTable(np.concatenate([table.flat, table.flat[:7]]), np.append(table.offsets, len(table.flat) + 7))
    once = SMALL.model_copy(update={"size": None, "ica": False})
    assert torch.equal(fitted(once, table).locations, fitted(once, twice).locations)
    counted = once.model_copy(update={"occurrences": True})
    assert not torch.equal(fitted(counted, table).weights, fitted(counted, twice).weights)


def test_padding_order_blocks_and_neighbours_change_nothing(monkeypatch):
    table, tower = texts(), fitted()
    alone = torch.cat([tower(batch(table, [row])) for row in range(6)])
    torch.testing.assert_close(tower(batch(table, range(6))), alone, atol=1e-5, rtol=1e-4)
    monkeypatch.setattr(fisher, "TEXTS_AT_ONCE", 7)
    torch.testing.assert_close(fitted().components, tower.components, atol=1e-5, rtol=1e-4)


def test_a_text_without_a_known_word_is_zeros_before_the_pca():
    tokens = Tokens(torch.tensor([[1, 3, 10, 2], [1, 4, 2, 0], [1, 2, 0, 0]]), torch.tensor([4, 3, 2]))
    tower = fitted()
    assert tower.known(tokens).tolist() == [False, True, False]
    assert without_pca()(tokens).any(1).tolist() == [False, True, False]
    torch.testing.assert_close(tower(tokens)[0], -tower.components @ tower.text_mean)


def test_given_features_are_used_as_they_are():
    features = torch.randn(1, 8)
    assert fitted()(Tokens(torch.tensor([[1, 4, 2]]), torch.tensor([3]), features)) is features


def test_all_that_is_fitted_lies_in_buffers_of_known_shapes():
    tower, other = fitted(), SMALL.build(WORDS)
    assert not list(tower.parameters())
    other.load_state_dict(tower.state_dict())
    assert torch.equal(other(batch(texts(), range(5))), tower(batch(texts(), range(5))))
    with torch.device("meta"):
        assert SMALL.build(WORDS).state_dict().keys() == tower.state_dict().keys()


def test_fits_are_the_same_every_time_and_tell_progress():
    told = []
    tower = SMALL.build(WORDS)
    tower.fit(texts(), vectors(), lambda *each: told.append(each))
    for name, value in fitted().state_dict().items():
        assert torch.equal(value, tower.state_dict()[name]), name
    total = SMALL.iterations + len(set(map(bytes, np.split(texts().flat, texts().offsets[1:-1]))))
    assert told[0] == (1, total)
    assert told[-1] == (total, total)
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({}, None, r"^text\.vectors: .*to a file of them"),
        ({}, vectors(7), r"^text\.vectors: vectors of size 7, set model\.text\.word = 7$"),
        (
            {"size": 30},
            vectors(),
            r"^model\.text\.size = 30: the 20 distinct .* only rank 1\d; set model\.text\.size = 1",
        ),
        ({"centres": 57, "size": None}, vectors(), r"^model\.text\.centres = 57: .* set model\.text\.centres = "),
    ],
    ids=["no vectors", "another size", "a PCA beyond the rank", "more centres than words"],
)
def test_what_cannot_be_fitted_is_one_line(changes, given, message):
    tower = SMALL.model_copy(update=changes).build(WORDS)
    with pytest.raises(RecipeError, match=message) as caught:
        tower.fit(texts(20), given)
    assert "\n" not in str(caught.value)


def test_vectors_of_none_of_the_words_are_refused():
    nothing = WordVectors(vectors().vectors, np.zeros(WORDS, np.bool_))
    with pytest.raises(RecipeError, match=r"text\.vectors: has no vector for any word"):
        SMALL.build(WORDS).fit(texts(), nothing)


def test_a_pca_beyond_the_entries_is_refused_before_anything_is_fitted():
    with pytest.raises(RecipeError, match=r"size = 31: a Fisher vector has 30 entries .* model.text.size = 30 or less"):
        SMALL.model_copy(update={"size": 31}).build(WORDS)
