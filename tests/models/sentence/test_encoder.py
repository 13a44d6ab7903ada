import torch
from torch import nn

from diptych.models.sentence.encoder import SentenceEncoder
from diptych.models.sentence.transformer import TransformerEncoder
from diptych.models.sentence.use import USE


def test_every_encoder_is_trained_only_by_name():
    assert {USE, TransformerEncoder} <= set(SentenceEncoder.__subclasses__())
    assert all(kind.trained_only_by_name for kind in SentenceEncoder.__subclasses__())


def test_an_encoder_is_what_encodes_ids_and_lengths():
    class Mean(SentenceEncoder):
        def __init__(self):
            super().__init__()
            self.table, self.size = nn.Embedding(5, 3), 3

        def forward(self, ids, lengths):
            return torch.stack([self.table(row[:length]).mean(0) for row, length in zip(ids, lengths, strict=True)])

        def load_pretrained(self):
            nn.init.ones_(self.table.weight)

    encoder = Mean()
    encoder.load_pretrained()
    assert torch.equal(encoder(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])), torch.ones(2, 3))
