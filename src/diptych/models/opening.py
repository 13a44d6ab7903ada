"""Opens the matcher and the tokeniser that were found at an address: those of a run, or those of a pretrained pair."""

from __future__ import annotations

from diptych.models.address import ModelFiles
from diptych.models.matcher import Matcher
from diptych.models.matchers.pair import PairSettings
from diptych.models.storage import load_matcher
from diptych.text.tokenisers.stored import load_tokeniser
from diptych.text.tokenisers.tokeniser import Tokeniser


def open_matcher(files: ModelFiles, snapshot: str = "best") -> tuple[Matcher, Tokeniser]:
    """The matcher with its weights, and its tokeniser. A pair has no snapshots."""
    if files.pair is None:
        tokeniser = load_tokeniser(files.folder)
        return load_matcher(files.folder / snapshot / "weights.safetensors", tokeniser), tokeniser
    own = files.pair.tokeniser()
    settings = PairSettings(model=files.address, architecture=files.pair.architecture)
    matcher = settings.for_data(len(own), None).build()
    matcher.load_weights(files.pair)
    return matcher, own
