import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.models.layers.captioner import Generation
from diptych.models.layers.region_reasoning import Layout
from diptych.models.matchers.vsrn import VSRN, VSRNSettings
from diptych.models.storage import load_matcher, save_matcher
from diptych.models.tower import Tokens
from diptych.models.towers.region.features import RegionFeatureSettings
from diptych.models.towers.text.gru import GRUSettings
from diptych.text.vocabulary import Vocabulary

JOINT, SIZE, WORDS = 5, 6, 9
TOKENS = Tokens(torch.tensor([[1, 4, 5, 2], [1, 6, 2, 0], [1, 7, 8, 2]]), torch.tensor([4, 3, 4]))


def matcher_of(**changes):
    torch.manual_seed(0)
    settings = {
        "joint": JOINT,
        "blocks": 2,
        "image": RegionFeatureSettings(shape=(4, SIZE)),
        "text": GRUSettings(hidden=JOINT, word=3),
        "generation": Generation(hidden=3, word=2, dropout=0.0),
        "words": WORDS,
        **changes,
    }
    matcher = VSRN(VSRNSettings(**settings))
    for block in matcher.reason:  # as if trained: fresh blocks change nothing
        for value in block.parameters():
            torch.nn.init.normal_(value, 0, 0.7)
        torch.nn.init.normal_(block.normalise.running_mean)
    return matcher


def regions_of(counts, most=4, seed=1):
    regions = torch.randn(len(counts), most, SIZE, generator=torch.Generator().manual_seed(seed))
    for image, count in enumerate(counts):
        regions[image, count:] = 0
    return regions


def reference(matcher, images):
    """The image side from the equations: lists of regions without padding, in evaluation; regions and encodings."""
    reasoned, encoded = [], []
    for regions in images:
        rows = [matcher.project.weight @ region + matcher.project.bias for region in regions]
        if matcher.settings.normalise_regions:
            rows = [row / row.norm() for row in rows]
        for block in matcher.reason:
            rows = reference_block(block, rows)
        rows = [row / row.norm() for row in rows]
        state = torch.zeros_like(rows[0])
        weight_input, weight_state, bias_input, bias_state = matcher.gather.parameters()
        for row in rows:
            (a, b, c), (d, e, f) = (
                (weight @ vector + bias).chunk(3)
                for weight, vector, bias in ((weight_input, row, bias_input), (weight_state, state, bias_state))
            )
            update = torch.sigmoid(b + e)
            state = (1 - update) * torch.tanh(c + torch.sigmoid(a + d) * f) + update * state
        reasoned.append(rows)
        encoded.append(state / state.norm())
    return reasoned, torch.stack(encoded)


def reference_block(block, rows):
    norm, after = block.normalise, []
    for own in rows:
        heard = sum(torch.dot(block.theta(own), block.phi(other)) / len(rows) * block.message(other) for other in rows)
        centred = (block.update(heard) - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps)
        after.append(own + centred * norm.weight + norm.bias)
    return after


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("counts", [(3, 1, 4), (4, 4)], ids=["ragged", "full"])
def test_images_follow_the_equations_in_values_and_gradients(counts, normalised):
    matcher = matcher_of(normalise_regions=normalised).double().eval()
    regions = regions_of(counts).double().requires_grad_()
    _, expected = reference(matcher, [image[:count] for image, count in zip(regions, counts, strict=True)])
    encoded = matcher.encode_images(regions)
    torch.testing.assert_close(encoded, expected, rtol=1e-9, atol=1e-9)
    inputs = [
        regions,
        *(value for part in ("project", "reason", "gather") for value in getattr(matcher, part).parameters()),
    ]
    toward = torch.randn_like(expected)
    wanted, got = (torch.autograd.grad((out * toward).sum(), inputs) for out in (expected, encoded))
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-9)


def test_dropout_is_of_regions_and_words_in_training_only():
    dropping = matcher_of(dropout=0.5, text=GRUSettings(hidden=JOINT, word=3, dropout=0.5))
    plain = matcher_of().eval()
    plain.load_state_dict(dropping.state_dict())
    regions = regions_of((3, 1, 4))
    assert torch.equal(dropping.eval().encode_images(regions), plain.encode_images(regions))
    assert torch.equal(dropping.encode_texts(TOKENS), plain.encode_texts(TOKENS))
    dropping.text.train()
    assert not torch.allclose(dropping.encode_texts(TOKENS), plain.encode_texts(TOKENS))
    dropping.training = True  # and not its batch norms
    assert not torch.allclose(dropping.encode_images(regions), plain.encode_images(regions))
    torch.manual_seed(3)
    found = dropping.encode_images(regions_of((4, 4)))
    torch.manual_seed(3)
    kept = torch.nn.functional.dropout(torch.ones(8, SIZE), 0.5).view(2, 4, SIZE)
    torch.testing.assert_close(found, plain.encode_images(regions_of((4, 4)) * kept))


def test_memory_is_where_the_gru_over_regions_begins():
    plain, made = matcher_of(), matcher_of(memory=20)
    changed = {
        name
        for name, value in made.named_parameters()
        if name.startswith(("project", "gather")) and not torch.equal(value, plain.get_parameter(name))
    }
    assert changed == {"gather.bias_ih_l0", "gather.bias_hh_l0"}
    gate = made.gather.bias_hh_l0[JOINT : 2 * JOINT].exp()
    assert gate.min() >= 1
    assert gate.max() <= 19
    with pytest.raises(RecipeError, match="memory"):
        VSRNSettings(memory=1)


def test_texts_and_scores_are_those_of_an_embedding_model():
    matcher = matcher_of().eval()
    images, texts = matcher.encode_images(regions_of((3, 4, 2))), matcher.encode_texts(TOKENS)
    torch.testing.assert_close(texts, normalize(matcher.text.plain(TOKENS)))
    scores = matcher.score(images, texts)
    for i in range(3):
        for j in range(3):
            assert scores[i, j].item() == pytest.approx(torch.dot(images[i], texts[j]).item(), abs=1e-6)
    torch.testing.assert_close(matcher.score_pairs(images, texts), scores.diagonal())
    assert matcher.embedding_dim == JOINT


@settings(max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 9))
def test_an_encoding_depends_neither_on_padding_nor_on_neighbours(counts, more, seed):
    matcher, regions = matcher_of().eval(), regions_of(counts, seed=seed)
    encoded = matcher.encode_images(regions)
    padded = torch.cat([regions, torch.zeros(len(counts), more, SIZE)], 1)
    torch.testing.assert_close(matcher.encode_images(padded), encoded, rtol=1e-5, atol=1e-5)
    alone = [matcher.encode_images(regions[image : image + 1]) for image in range(len(counts))]
    torch.testing.assert_close(torch.cat(alone), encoded, rtol=1e-5, atol=1e-5)


def test_padding_does_not_reach_training_either():
    regions = regions_of((3, 1, 4))
    padded = torch.cat([regions, torch.zeros(3, 2, SIZE)], 1)
    results = []
    for given_regions in (regions, padded):
        matcher = matcher_of().train()
        batch = matcher.encode_batch(given_regions, TOKENS, torch.arange(3))
        (batch.images[:, 0].sum() + batch.terms["generation"]).backward()
        results.append(
            [batch.images, *(value.grad for value in matcher.parameters()), *matcher.reason.state_dict().values()]
        )
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_a_batch_is_both_encodings_and_the_captions_of_its_pairs():
    matcher, regions = (
        matcher_of(generation=Generation(weight=0.5, hidden=3, word=2, dropout=0.0)).eval(),
        regions_of((3, 4)),
    )
    image_of = torch.tensor([1, 0])  # the third text is a negative that nobody captions
    batch = matcher.encode_batch(regions, TOKENS, image_of)
    torch.testing.assert_close(batch.images, matcher.encode_images(regions))
    torch.testing.assert_close(batch.texts, matcher.encode_texts(TOKENS))
    reasoned, _ = reference(matcher, [regions[0, :3], regions[1]])
    rows, layout = Layout.from_regions(
        torch.nn.utils.rnn.pad_sequence([torch.stack(rows) for rows in reasoned], batch_first=True)
    )
    expected = 0.5 * matcher.captioner(rows, layout, Tokens(TOKENS.ids[:2], TOKENS.lengths[:2]), image_of)
    torch.testing.assert_close(batch.terms, {"generation": expected})


@pytest.mark.parametrize("counts", [(3, 4, 2), (4, 4, 4)], ids=["ragged", "full"])
def test_nobody_captions_the_images_of_negatives(counts):
    matcher, regions, read = matcher_of().eval(), regions_of(counts), []
    matcher.captioner.memory.register_forward_hook(lambda memory, given, made: read.append(len(given[0])))
    image_of, tokens = torch.tensor([1, 0]), Tokens(TOKENS.ids[:2], TOKENS.lengths[:2])
    more = matcher.encode_batch(regions, tokens, image_of)
    own = matcher.encode_batch(regions[:2], tokens, image_of)
    torch.testing.assert_close(more.terms, own.terms)
    assert read == [2, 2]


def test_a_negative_text_that_is_longer_changes_nothing_for_the_captions():
    matcher, regions = matcher_of().eval(), regions_of((3, 4))
    longer = Tokens(torch.cat([TOKENS.ids, torch.tensor([[4], [0], [2]])], 1)[[1, 1, 2]], torch.tensor([3, 3, 5]))
    own = matcher.encode_batch(regions, Tokens(TOKENS.ids[[1, 1]], torch.tensor([3, 3])), torch.arange(2))
    more = matcher.encode_batch(regions, longer, torch.arange(2))
    torch.testing.assert_close(more.terms, own.terms)


def test_without_a_weight_there_is_no_decoder():
    matcher = matcher_of(generation=Generation(weight=0))
    assert matcher.captioner is None
    assert not any(name.startswith("captioner") for name in matcher.state_dict())
    assert matcher.encode_batch(regions_of((3, 4)), TOKENS, torch.tensor([0, 1, 1])).terms == {}


def test_generation_reaches_the_regions_but_neither_gathering_nor_the_text():
    matcher = matcher_of().train()
    matcher.encode_batch(regions_of((3, 4, 4)), TOKENS, torch.arange(3)).terms["generation"].backward()
    reached = {name.partition(".")[0] for name, value in matcher.named_parameters() if value.grad is not None}
    assert reached == {"project", "reason", "captioner"}


def test_training_lowers_both_losses():
    torch.manual_seed(0)
    settings = VSRNSettings(
        joint=16,
        image=RegionFeatureSettings(shape=(4, SIZE)),
        text=GRUSettings(hidden=16, word=8),
        generation=Generation(hidden=16, word=8),
        words=WORDS,
    )
    matcher, regions = settings.build().train(), regions_of((4, 3, 4))
    optimiser = torch.optim.Adam(matcher.parameters(), 0.01)
    history = []
    for _ in range(40):
        batch = matcher.encode_batch(regions, TOKENS, torch.arange(3))
        scores = matcher.score(batch.images, batch.texts)
        ranking = (0.5 + scores - scores.diagonal()[:, None]).clamp(min=0).sum()
        history.append((ranking.item(), batch.terms["generation"].item()))
        optimiser.zero_grad()
        (ranking + batch.terms["generation"]).backward()
        optimiser.step()
    assert history[-1][0] < 0.6 * history[0][0]
    assert history[-1][1] < 0.5 * history[0][1]


def test_a_stored_matcher_comes_back(tmp_path):
    vocabulary = Vocabulary.from_texts(["one two three four five"], threshold=1)
    assert len(vocabulary) == WORDS
    matcher = matcher_of().eval()
    save_matcher(tmp_path / "vsrn.safetensors", matcher, vocabulary, {})
    again = load_matcher(tmp_path / "vsrn.safetensors", vocabulary).eval()
    assert again.settings == matcher.settings
    regions = regions_of((3, 4))
    assert torch.equal(again.encode_images(regions), matcher.encode_images(regions))
    assert torch.equal(again.encode_texts(TOKENS), matcher.encode_texts(TOKENS))


def test_settings_are_the_papers_and_sizes_must_agree():
    settings = VSRNSettings().for_data(100, (36, 2048))
    assert (settings.joint, settings.text.hidden, settings.blocks, settings.words) == (2048, 2048, 4, 100)
    assert settings.image.shape == (36, 2048)
    with pytest.raises(RecipeError, match="make them equal"):
        matcher_of(text=GRUSettings(hidden=7, word=3))


def test_initial_weights_are_the_originals():
    matcher = VSRNSettings(
        joint=JOINT, image=RegionFeatureSettings(shape=(4, SIZE)), text=GRUSettings(hidden=JOINT), words=WORDS
    ).build()
    assert matcher.project.weight.abs().max() <= (6 / (JOINT + SIZE)) ** 0.5
    assert (matcher.project.bias == 0).all()
    assert all((block.normalise.weight == 0).all() and (block.normalise.bias == 0).all() for block in matcher.reason)


def test_word_vectors_start_the_text_tower():
    matcher = matcher_of()
    found = torch.tensor([False] * 4 + [True] * 2 + [False] * 3)
    matcher.load_word_vectors(torch.full((WORDS, 3), 7.0), found)
    assert (matcher.text.words.weight[found] == 7).all()
    assert not (matcher.text.words.weight[~found] == 7).any()
