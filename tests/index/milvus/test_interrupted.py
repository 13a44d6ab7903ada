"""A sync continues after its server, or itself, was killed: nothing is lost, and nothing is there twice."""

import time

import pytest

from diptych.errors import IndexFileError
from diptych.index.backend import locate
from diptych.index.milvus import client
from diptych.index.search import open_store
from diptych.index.sync import sync
from diptych.index.update import Update
from support import milvus_server
from support.photo_folders import put as put_file

COUNT = 40


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    for number in range(COUNT):
        put_file(folder / f"{number}.png", number)
        put_file(folder / f"{number}.txt", f"photo {number}\na dog\n".encode())
    return folder


def check_is_complete(address):
    store = open_store(address)
    try:
        assert store.counts() == {"image": COUNT, "text": 2 * COUNT}
        ids = store.vectors("image")[0]
        entries = {entry.key: entry for entry in store.entries(ids)}
        assert entries.keys() == {f"{number}.png" for number in range(COUNT)}
        captions = store.captions(ids)
        assert all(captions[entry.id] == [f"photo {key[:-4]}", "a dog"] for key, entry in entries.items())
        assert not store.meta("unfinished")
    finally:
        store.close()
    assert list(locate(address).examine()) == []


@pytest.mark.long
def test_the_server_is_killed_in_the_middle(folder, tmp_path, milvus_binaries, kit, monkeypatch):
    monkeypatch.setattr(client, "PATIENCE", 1.0)
    monkeypatch.setattr("diptych.index.update.IMAGES_PER_TRANSACTION", 8)
    server = milvus_server.MilvusProcess(tmp_path / "server", milvus_binaries)
    address = f"milvus://127.0.0.1:{server.port}/photos?index=FLAT"
    written, write = [], Update._write

    def write_and_die(self):
        write(self)
        written.append(len(written))
        if len(written) == 3:
            server.kill()

    try:
        monkeypatch.setattr(Update, "_write", write_and_die)
        with pytest.raises(IndexFileError) as raised:
            sync(kit.UnitModel(), str(folder), address, workers=0)
        assert str(raised.value).startswith(f"{address}: no Milvus answers at 127.0.0.1:{server.port} (")
        assert str(raised.value).endswith("then run the command again; finished work is kept")
        assert "\n" not in str(raised.value)
        monkeypatch.setattr(Update, "_write", write)
        monkeypatch.setattr(client, "PATIENCE", 60.0)
        server = server.again()
        result = sync(kit.UnitModel(), str(folder), address, workers=0)
        assert 0 < result.encoded <= COUNT - 16  # two transactions were complete
        check_is_complete(address)
        again = sync(kit.UnitModel(), str(folder), address, workers=0)
        assert (again.encoded, again.kept, again.removed) == (0, COUNT, 0)
    finally:
        server.kill()


def test_an_unreachable_server_is_named(folder, kit, monkeypatch):
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    address = f"milvus://127.0.0.1:{milvus_server.free_port()}/photos"
    begin = time.monotonic()
    with pytest.raises(
        IndexFileError, match=r"no Milvus answers at 127\.0\.0\.1:\d+ \(.*\); start it or check the addr"
    ):
        sync(kit.UnitModel(), str(folder), address, workers=0)
    assert time.monotonic() - begin < 30
