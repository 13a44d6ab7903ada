"""The fixtures of `support.localisation`."""

from support.localisation import broken, colour_matcher, corpus, model, proposed, two_colours

__all__ = ["broken", "colour_matcher", "corpus", "model", "proposed", "two_colours"]
