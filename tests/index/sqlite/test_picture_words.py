import pytest

from diptych.errors import IndexFileError
from diptych.index.sqlite import picture_words
from diptych.index.sqlite.store import Store


@pytest.fixture
def store(kit, tmp_path):
    store = Store.create(tmp_path / "x.diptych", kit.spec())
    yield store
    store.close()


def test_words_are_found_once_they_are_read(kit, store):
    kit.put(store, ["n0", "n1", "n2"])
    unread = picture_words.unread(store.database)
    assert [key for _, key, _ in unread] == ["a/0-n0", "a/1-n1", "a/2-n2"]
    assert not store.has_descriptions()
    store.add_picture_words([(unread[0][0], ""), (unread[1][0], "RECEIPT\nPizza 9.50")])
    assert store.has_descriptions()
    assert store.unread_pictures() == unread[2:]
    (second,) = store.by_words("pizza receipt", every=True)[0].tolist()
    assert store.entries([second])[0].key == "a/1-n1"
    assert store.has_word("pizza")
    kit.put(store, ["n0"], ["a dog"])
    assert len(store.by_words("dog pizza", every=False)[0]) == 2


def test_copies_of_a_picture_share_its_words(kit, store):
    kit.put(store, ["n", "n"])
    ((content, key, _),) = store.unread_pictures()
    assert key == "a/0-n"
    store.add_picture_words([(content, "exit")])
    assert len(store.by_words("exit", every=True)[0]) == 2


def test_a_new_image_of_a_known_content_has_its_words(kit, store):
    kit.put(store, ["n"])
    store.add_picture_words([(store.unread_pictures()[0][0], "exit")])
    kit.put(store, ["n"], folder="b")
    assert len(store.by_words("exit", every=True)[0]) == 2


def test_nothing_is_written_if_it_fails(kit, store):
    kit.put(store, ["n"])
    generation = store.generation
    with pytest.raises(IndexFileError, match="NOT NULL"):
        store.add_picture_words([(store.unread_pictures()[0][0], "exit"), (9, None)])
    assert (store.generation, store.has_descriptions()) == (generation, False)
