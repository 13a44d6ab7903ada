import pytest

from diptych.errors import IndexFileError
from diptych.index.backend import locate
from diptych.index.milvus.address import MilvusAddress


def test_an_address_with_everything():
    text = (
        "milvus://host:1234/photos?index=ivf_sq8&shards=2&replicas=3&thumbnails=s3://b/t&consistency=strong&secure=true"
    )
    found = MilvusAddress.parse(text)
    assert (found.host, found.port, found.collection, found.text) == ("host", 1234, "photos", text)
    assert (found.index, found.shards, found.replicas, found.thumbnails) == ("IVF_SQ8", 2, 3, "s3://b/t")
    assert (found.consistency, found.uri) == ("Strong", "https://host:1234")


def test_the_defaults():
    found = MilvusAddress.parse("milvus://[::1]/photos")
    assert (found.server, found.index, found.consistency, found.uri) == (
        "[::1]:19530", "HNSW", "Bounded", "http://[::1]:19530",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("milvus://host", "write milvus://HOST:19530/COLLECTION"),
        ("milvus:///photos", "write milvus://HOST:19530/COLLECTION"),
        ("milvus://host/my-photos", "'my-photos' cannot be the name of a collection"),
        ("milvus://host/a/b", "'a/b' cannot be the name of a collection"),
        ("milvus://host/photos__new", "names that end in __new or __NUMBER are those of parts of an index"),
        ("milvus://host/photos__1", "names that end in __new or __NUMBER are those of parts of an index"),
        ("milvus://host:port/a", "Port could not be cast to integer"),
        ("milvus://root:secret@host/a", "MILVUS_TOKEN=user:password"),
        ("milvus://host/a?indx=FLAT", "no option 'indx'; did you mean 'index'?"),
        ("milvus://host/a?index=TREE", "index=TREE: choose one of FLAT, IVF_FLAT, IVF_SQ8, HNSW"),
        ("milvus://host/a?shards=0", "shards=0: a number from 1 to 16"),
        ("milvus://host/a?replicas=x", "replicas=x: a number from 1 to 64"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(address, told):
    with pytest.raises(IndexFileError) as raised:
        locate(address)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_password_is_not_repeated():
    with pytest.raises(IndexFileError) as raised:
        locate("milvus://root:secret@host/a")
    assert "secret" not in str(raised.value)
