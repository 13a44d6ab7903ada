"""Fisher vectors of a text's words under a mixture fitted to the words of the training texts (Klein et al. 2015).

Unit word vectors are transformed by an ICA, normalised again and multiplied by ten. A mixture, GMM or HGLMM, is fitted
to the words of the training texts. The Fisher vector of a text under it has 2 x centres x word entries, and is reduced
by a PCA that is also fitted to the training texts.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from diptych.errors import RecipeError
from diptych.models.layers.word_table import WordTableTower
from diptych.models.tower import TextTowerSettings, Tokens
from diptych.progress import ProgressCallback
from diptych.settings import Count, Flag
from diptych.text.features.bags import DistinctTexts, known_tokens, word_counts
from diptych.text.features.fisher import fisher_vectors, padded_fisher_vectors
from diptych.text.features.ica import fit_ica
from diptych.text.features.mixtures import CountedWords, Mixture, fit_mixture
from diptych.text.features.pca import Covariance, PrincipalComponents
from diptych.text.tokenisers.token_table import TokenTable
from diptych.text.word_vectors import WordVectors

LENGTH = 10.0  # of a word vector
TEXTS_AT_ONCE = 1024


class FisherSettings(TextTowerSettings):
    """The size of the word vectors, the mixture, and the `size` after a PCA; None for no PCA.

    ICA and mixture are fitted to the distinct words of the training texts. With `occurrences` each word counts as often
    as it occurs, and a few words that are in every text take most of the centres. EM stops after at most `iterations`;
    ICA and EM start at random, from `seed`.
    """

    name: Literal["fisher"] = "fisher"
    word: Count = 300
    mixture: Literal["hglmm", "gmm"] = "hglmm"
    centres: Count = 30
    ica: Flag = True
    occurrences: Flag = False
    size: Count | None = None
    iterations: Count = 100
    seed: int = 0

    def build(self, words: int) -> Fisher:
        """A tower that is still to be fitted."""
        whole = 2 * self.centres * self.word
        if self.size is not None and self.size > whole:
            raise RecipeError(
                f"model.text.size = {self.size}: a Fisher vector has {whole} entries (2 x centres x word); "
                f"set model.text.size = {whole} or less"
            )
        return Fisher(words, self)


class Fisher(WordTableTower):
    """Mean of the words' gradients, signed root, normalisation, PCA; a text without known words is zeros before it."""

    settings: FisherSettings
    caches_features: ClassVar[bool] = True

    weights: Tensor  # (centres,)
    locations: Tensor  # (centres, word)
    scales: Tensor  # (centres, word)
    laplacian: Tensor  # (centres, word)
    text_mean: Tensor  # (2 x centres x word,), with a PCA only
    components: Tensor  # (size, 2 x centres x word), with a PCA only

    def __init__(self, words: int, settings: FisherSettings) -> None:
        super().__init__(words, settings.word)
        self.settings = settings
        shape = settings.centres, settings.word
        entries = 2 * settings.centres * settings.word
        self.register_buffer("weights", torch.ones(settings.centres) / settings.centres)
        self.register_buffer("locations", torch.zeros(shape))
        self.register_buffer("scales", torch.ones(shape))
        self.register_buffer("laplacian", torch.zeros(shape, dtype=torch.bool))
        if settings.size is not None:
            self.register_buffer("text_mean", torch.zeros(entries))
            self.register_buffer("components", torch.zeros(settings.size, entries))
        self.size = settings.size or entries

    @torch.no_grad()
    def fit(self, texts: TokenTable, vectors: WordVectors | None, progress: ProgressCallback | None = None) -> None:
        """Fit ICA and mixture to the words of the texts, then the PCA to the texts' Fisher vectors."""
        self.fill(vectors)
        distinct = DistinctTexts.from_table(texts)
        steps = self.settings.iterations
        total = steps + (0 if self.settings.size is None else len(distinct.first))
        self._fit_words(texts, progress and (lambda done, _: progress(done, total)))
        if self.settings.size is not None:
            self._fit_texts(texts, distinct, progress and (lambda done, _: progress(steps + done, total)))

    def forward(self, tokens: Tokens) -> Tensor:
        """Encode padded texts: (texts, size)."""
        if tokens.features is not None:
            return tokens.features
        vectors = self._vectors(tokens.ids)
        return vectors if self.settings.size is None else PrincipalComponents(self.text_mean, self.components)(vectors)

    def _vectors(self, ids: Tensor) -> Tensor:
        """Fisher vectors before the PCA, (texts, 2 x centres x word)."""
        mixture = Mixture(self.weights, self.locations, self.scales, self.laplacian)
        if torch.compiler.is_compiling():  # in an export
            return padded_fisher_vectors(ids, self.found, self.table, mixture)
        return fisher_vectors(*known_tokens(ids, self.found), self.table, mixture)

    def _fit_words(self, texts: TokenTable, progress: ProgressCallback | None) -> None:
        """Transform the table's vectors, and fit the mixture to those that occur."""
        settings = self.settings
        counts = torch.from_numpy(word_counts(texts, len(self.found)))
        vectors, found = normalize(self.table.cpu().double(), dim=1), self.found.cpu()
        occur = found & (counts > 0)
        if not occur.any():
            raise RecipeError(
                "text.vectors: has no vector for any word of the training texts; use vectors of their language"
            )
        if not settings.occurrences:
            counts = counts.clamp(max=1)
        if settings.ica:
            vectors = normalize(fit_ica(vectors[occur], counts[occur], settings.seed)(vectors), dim=1)
        vectors = LENGTH * vectors * found.unsqueeze(1)
        mixture = fit_mixture(
            CountedWords.from_vectors(vectors[occur], counts[occur]),
            settings.centres,
            hybrid=settings.mixture == "hglmm",
            iterations=settings.iterations,
            seed=settings.seed,
            progress=progress,
        )
        self.table.copy_(vectors)
        for name, value in vars(mixture).items():
            getattr(self, name).copy_(value)

    def _fit_texts(self, texts: TokenTable, distinct: DistinctTexts, progress: ProgressCallback | None) -> None:
        """Fit the PCA to the Fisher vectors of the distinct texts, weighted by their counts."""
        assert self.settings.size is not None
        covariance = Covariance(len(self.text_mean))
        counts = torch.from_numpy(distinct.counts)
        done = 0
        for ids, _ in distinct.padded_batches(texts, TEXTS_AT_ONCE):
            covariance.add(self._vectors(ids.to(self.found.device)).cpu(), counts[done : done + len(ids)])
            done += len(ids)
            if progress:
                progress(done, len(counts))
        principal = covariance.principal_components(self.settings.size)
        self.text_mean.copy_(principal.mean)
        self.components.copy_(principal.components)
