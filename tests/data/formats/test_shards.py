from diptych.data.address import Address
from diptych.data.formats.shards import recognises
from diptych.data.open import open_corpus
from diptych.data.shards.index import write_index
from support.shards import write_shard


def test_what_is_recognised(tmp_path):
    for name in (
        "a.tar",
        "s/{000..123}.tar",
        "s/*.tar",
        "s/*.tar#val=s/0.tar",
        "s3://bucket/x",
        "memory://x/{0..9}.tar",
    ):
        assert recognises(Address.parse(name)), name
    assert not recognises(Address.parse(str(tmp_path)))
    (tmp_path / "index.json").write_text("{}")
    assert not recognises(Address.parse(str(tmp_path)))
    write_index(tmp_path, [], {})
    assert recognises(Address.parse(tmp_path))
    assert recognises(Address.parse(tmp_path / "index.json"))


def test_a_pattern_is_opened_as_it_was_written(tmp_path):
    write_shard(tmp_path / "train-08.tar", 2)
    write_shard(tmp_path / "train-09.tar", 2, 2)
    assert open_corpus(f"{tmp_path}/train-{{08..09}}.tar").split_sizes() == {"train": 4}
    assert open_corpus(tmp_path / "train-08.tar").split_sizes() == {"train": 2}
