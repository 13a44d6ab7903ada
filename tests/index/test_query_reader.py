from types import SimpleNamespace

import numpy as np

from diptych.index.query_reader import QueryReader
from diptych.index.sqlite.store import Store


def model(*known, pieces=False):
    return SimpleNamespace(known_words=lambda words: np.array([pieces or word in known for word in words], bool))


def test_words_of_captions_and_names_are_known(kit, store):
    kit.put(store, ["zorbing"], ["a vizsla"])
    reader = QueryReader(store, model(pieces=True))
    assert reader.read("zorbing").is_searchable
    assert reader.read("zorbign").suggestion == "zorbing"
    assert reader.read("red vizlsa").suggestion == "red vizsla"


def test_a_changed_index_is_read_again(kit, store):
    with Store.open(store.path).database.reading():
        pass
    reader = QueryReader(store, model(pieces=True))
    assert not reader.read("beuach").is_searchable
    kit.put(store, ["beuach"])
    assert reader.read("beuach").is_searchable
    assert reader.read("zorbign").suggestion is None
    kit.put(store, ["zorbing"])
    assert reader.read("zorbign").suggestion == "zorbing"


def test_a_model_of_whole_words_knows_its_words(store):
    assert QueryReader(store, model("dgo")).read("dgo").suggestion is None
    assert QueryReader(store, model("dgo", pieces=True)).read("dgo").suggestion == "dog"


def test_an_index_without_words_has_the_list_alone():
    store = SimpleNamespace(generation=1)
    assert QueryReader(store, model()).read("dgo on teh beech").suggestion == "dog on the beach"
