import socket
from types import SimpleNamespace

import pytest

from diptych.errors import DiptychError
from diptych.serve import startup
from diptych.serve.startup import listen, open_indexes, url_of, warm_up


def test_a_free_port_and_its_url():
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://127.0.0.1:{port}"
        with pytest.raises(DiptychError, match=rf"^port {port} of 127.0.0.1 is in use; .* --port 0 for any free one$"):
            listen("127.0.0.1", port)


def test_an_answer_does_not_wait_for_acknowledgements():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()) as _:
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_url_of_an_ipv6_address_has_brackets():
    class Listening:
        def getsockname(self):
            return ("::1", 8000, 0, 0)

    assert url_of(Listening()) == "http://[::1]:8000"


@pytest.mark.parametrize("host", ["no such host", "203.0.113.7"])
def test_a_foreign_address_is_one_line(host):
    with pytest.raises(DiptychError, match=f"^--host {host}: not an address of this machine"):
        listen(host, 0)


def test_a_privileged_port_is_one_line_with_the_remedy(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(DiptychError, match="requires elevated privileges; choose one above 1023"):
        listen("127.0.0.1", 80)


def test_indexes_of_one_model_share_it_and_names_are_unique(kit, folder, tmp_path, monkeypatch):
    files = [tmp_path / place / "photos.diptych" for place in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        kit.searcher_of(folder, file).store.close()
    opened = []
    monkeypatch.setattr(startup, "model_of", lambda *_: opened.append(kit.FakeModel()) or opened[-1])
    searchers = open_indexes(files)
    assert list(searchers) == ["photos", "photos-2"]
    assert len(opened) == 1
    warm_up(searchers)
    assert opened[0].passes == [1, 1]
    for searcher in searchers.values():
        searcher.store.close()


def test_an_index_in_milvus_is_named_after_its_collection(monkeypatch):
    class Store:
        address, spec = "milvus://host:19530/photos?index=FLAT", SimpleNamespace(identity="fake", quality="fast")

    monkeypatch.setattr(startup, "open_store", lambda _: Store())
    monkeypatch.setattr(startup, "model_of", lambda *_: None)
    monkeypatch.setattr(startup, "Searcher", lambda store, *_, **__: store)
    assert list(open_indexes([Store.address, Store.address])) == ["photos", "photos-2"]
