"""A small file of claims instead of the packaged ones, and one reproduction of it that several tests read."""

import pytest

from diptych.data.open import open_corpus
from diptych.reproduction import claims
from diptych.reproduction.reproduce import ReproductionRequest, reproduce
from support.claims import DATA, claim_files_of


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory):
    return claim_files_of(tmp_path_factory.mktemp("claims"))


@pytest.fixture(autouse=True)
def tiny_claims(tiny_files, monkeypatch):
    monkeypatch.setattr(claims, "claim_files", lambda: tiny_files)
    return tiny_files


@pytest.fixture(scope="session")
def corpus():
    return open_corpus(DATA)


@pytest.fixture(scope="session")
def reproduced(tiny_files, corpus, tmp_path_factory):
    """The request for all claims, after it was carried out, and what was found."""
    folder = tmp_path_factory.mktemp("reproduced")
    request = ReproductionRequest(
        ["all"], corpus, folder / "claims", features=folder / "features", device="cpu", keep_weights=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "claim_files", lambda: tiny_files)
        return request, reproduce(request, request.plan()[0])
