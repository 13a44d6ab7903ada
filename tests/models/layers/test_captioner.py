import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from diptych.models.layers.captioner import Captioner, Generation
from diptych.models.layers.region_reasoning import Layout
from diptych.models.tower import Tokens
from diptych.text.tokenisers.token_table import END, PAD, START

SIZE, WORDS = 4, 9


def captioner_of(dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return Captioner(Generation(hidden=3, word=2, dropout=dropout), SIZE, WORDS).double()


def regions_of(counts, most, seed=0):
    torch.manual_seed(seed)
    regions = torch.randn(len(counts), most, SIZE, dtype=torch.float64)
    for image, count in enumerate(counts):
        regions[image, count:] = 0
    return regions


def tokens_of(texts, length=None):
    texts = [[START, *words, END] for words in texts]
    length = length or max(map(len, texts))
    return Tokens(
        torch.tensor([[*text, *[PAD] * (length - len(text))] for text in texts]), torch.tensor([*map(len, texts)])
    )


def gru_step(given, state, weight_input, weight_state, bias_input, bias_state):
    inputs, states = weight_input @ given + bias_input, weight_state @ state + bias_state
    (reset_in, update_in, new_in), (reset_state, update_state, new_state) = inputs.chunk(3), states.chunk(3)
    reset, update = torch.sigmoid(reset_in + reset_state), torch.sigmoid(update_in + update_state)
    return (1 - update) * torch.tanh(new_in + reset * new_state) + update * state


def reference(captioner, images, texts, image_of):
    """The equations, one image, one caption and one word at a time; texts without padding."""
    memories = []
    for regions in images:
        state, memory = torch.zeros(3, dtype=torch.float64), []
        for region in regions:
            read = captioner.read.weight @ region + captioner.read.bias
            state = gru_step(read, state, *captioner.memory.parameters())
            memory.append(state)
        memories.append(memory)
    lost = 0
    for text, image in zip(texts, image_of, strict=True):
        memory, words = memories[image], [START, *text, END]
        state = memory[-1]
        for word, following in pairwise(words):
            scores = [
                captioner.weigh.weight[0]
                @ torch.tanh(captioner.attend.weight @ torch.cat([own, state]) + captioner.attend.bias)
                for own in memory
            ]
            total = sum(torch.exp(score) for score in scores)
            context = sum(torch.exp(score) / total * own for score, own in zip(scores, memory, strict=True))
            state = gru_step(
                torch.cat([captioner.words.weight[word], context]),
                state,
                captioner.cell.weight_ih,
                captioner.cell.weight_hh,
                captioner.cell.bias_ih,
                captioner.cell.bias_hh,
            )
            chances = torch.softmax(captioner.output.weight @ state + captioner.output.bias, 0)
            lost = lost - torch.log(chances[following])
    return lost / len(texts)


@pytest.mark.parametrize(
    ("counts", "texts", "image_of"),
    [
        ((3, 1, 2), [[5], [4, 8, 6], [7, 7], []], [2, 0, 1, 0]),
        ((2, 2), [[5, 4], [6, 3]], [0, 1]),
    ],
    ids=["ragged", "full"],
)
def test_the_loss_follows_the_equations_in_value_and_gradients(counts, texts, image_of):
    captioner, regions = captioner_of(), regions_of(counts, 3).requires_grad_()
    images = [image[:count] for image, count in zip(regions, counts, strict=True)]
    expected = reference(captioner, images, texts, image_of)
    inputs = [regions, *captioner.parameters()]
    wanted = torch.autograd.grad(expected, inputs)
    rows, layout = Layout.from_regions(regions)
    loss = captioner(rows, layout, tokens_of(texts), torch.tensor(image_of))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    got = torch.autograd.grad(loss, inputs)
    for name, own, other in zip(["regions", *dict(captioner.named_parameters())], got, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(3, WORDS - 1), max_size=4)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_padding_of_regions_and_words_changes_nothing(drawn, more_regions, more_words):
    counts, texts = [count for count, _ in drawn], [text for _, text in drawn]
    captioner, image_of = captioner_of(), torch.arange(len(drawn))
    tight = regions_of(counts, max(counts))
    loose = torch.cat([tight, tight.new_zeros(len(counts), more_regions, SIZE)], 1)
    longest = max(map(len, texts)) + 2
    plain = captioner(*Layout.from_regions(tight), tokens_of(texts), image_of)
    padded = captioner(*Layout.from_regions(loose), tokens_of(texts, longest + more_words), image_of)
    torch.testing.assert_close(padded, plain)
    # A mean over captions of what each has alone.
    alone = [
        captioner(*Layout.from_regions(tight[k : k + 1]), tokens_of([text]), image_of[:1])
        for k, text in enumerate(texts)
    ]
    torch.testing.assert_close(plain, sum(alone) / len(alone))


def test_dropout_acts_in_training_only():
    captioner, regions = captioner_of(dropout=0.5), regions_of((3, 3), 3)
    texts, image_of = tokens_of([[5, 6], [7]]), torch.tensor([0, 1])
    losses = [captioner(*Layout.from_regions(regions), texts, image_of).item() for _ in range(2)]
    assert losses[0] != losses[1]
    plain = captioner_of()
    expected = plain(*Layout.from_regions(regions), texts, image_of).item()
    assert captioner.eval()(*Layout.from_regions(regions), texts, image_of).item() == pytest.approx(expected)


def test_it_learns_captions_by_heart():
    captioner, regions = captioner_of(), regions_of((2, 2), 2)
    texts, image_of = tokens_of([[5, 6], [7, 8, 4]]), torch.tensor([0, 1])
    optimiser = torch.optim.Adam(captioner.parameters(), 0.05)
    chance = math.log(WORDS) * 3.5  # 3.5 words a caption, the end among them
    for _ in range(120):
        optimiser.zero_grad()
        loss = captioner(*Layout.from_regions(regions), texts, image_of)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1 * chance


def test_settings_are_those_of_the_public_code_and_a_weight_cannot_be_negative():
    assert Generation().model_dump() == {"weight": 1.0, "hidden": 512, "word": 300, "dropout": 0.2}
    assert Generation(weight=0).weight == 0
    with pytest.raises(ValidationError):
        Generation(weight=-1.0)
