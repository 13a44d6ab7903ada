import huggingface_hub
import pytest
from huggingface_hub import errors

from diptych.errors import DiptychError
from diptych.models.pretrained_pairs import hub

ADDRESS = "open_clip:ViT-B-32/openai"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The files in the cache, and those that are downloaded; all others do not exist."""
    cached, remote, asked = {"a.json": str(tmp_path / "a.json")}, {}, []

    def download(repository, name):
        asked.append(name)
        if isinstance(remote.get(name), Exception):
            raise remote[name]
        return remote[name]

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repository, name: cached.get(name))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return remote, asked


def test_without_permission_only_the_cache_is_read(cache, tmp_path):
    assert hub.hub_file(ADDRESS, "some/where", "a.json") == tmp_path / "a.json"
    assert hub.hub_file(ADDRESS, "some/where", "b.json") is None
    assert cache[1] == []
    message = str(hub.not_in_cache(ADDRESS, "b.json", "some/where"))
    assert message.startswith(f"{ADDRESS}: the b.json of some/where is not in the cache (")
    assert "add --download to fetch it from the hub (download=True in Python), or name a folder" in message


def test_with_permission_what_the_cache_lacks_is_downloaded(cache, tmp_path):
    remote, asked = cache
    remote["b.json"] = str(tmp_path / "b.json")
    with hub.downloads(True):
        assert hub.hub_file(ADDRESS, "some/where", "a.json") == tmp_path / "a.json"
        assert hub.hub_file(ADDRESS, "some/where", "b.json") == tmp_path / "b.json"
        with hub.downloads(False):
            assert hub.are_downloads_allowed()
        with hub.only_from_cache():
            assert hub.hub_file(ADDRESS, "some/where", "b.json") is None
    assert asked == ["b.json"]
    assert not hub.are_downloads_allowed()


def test_a_hub_that_cannot_be_reached_is_one_sentence(cache):
    remote, _ = cache
    remote["b.json"] = errors.LocalEntryNotFoundError("no\nconnection")
    remote["c.json"] = OSError("no space left")
    remote["d.json"] = errors.EntryNotFoundError("no such file")
    with hub.downloads(True):
        with pytest.raises(
            DiptychError, match=rf"^{ADDRESS}: some/where cannot be downloaded from the hub \(.*no connec"
        ):
            hub.hub_file(ADDRESS, "some/where", "b.json")
        with pytest.raises(
            DiptychError, match=r"no space left\); check the connection, or copy the model from another"
        ):
            hub.hub_file(ADDRESS, "some/where", "c.json")
        assert hub.hub_file(ADDRESS, "some/where", "d.json") is None
        assert "some/where on the hub has no d.json; name a folder" in str(
            hub.not_in_cache(ADDRESS, "d.json", "some/where")
        )


def test_downloads_can_be_allowed_for_good(cache):
    with hub.only_from_cache():  # which restores what was allowed before
        hub.allow_downloads()
        assert hub.are_downloads_allowed()
    assert not hub.are_downloads_allowed()
