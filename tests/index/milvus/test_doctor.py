from diptych.index.milvus.doctor import examine
from diptych.index.milvus.schema import WITH_VECTOR


def test_a_sound_index_has_no_faults(milvus_store):
    done = []
    assert list(examine(milvus_store, lambda *progress: done.append(progress))) == []
    assert done == [(8, 8)]


def test_each_fault_is_named(milvus_copy):
    rows = {row["key"]: row for row in milvus_copy.scan("image", WITH_VECTOR)}
    writer = milvus_copy.writer(())
    writer._delete("image", [rows["b.jpg"]["id"]])
    writer._upsert("image", [{**rows["trips/d.jpg"], "id": 17}])
    milvus_copy.forget()
    faults = sorted(examine(milvus_copy))
    assert faults == [
        "b.jpg#0: the text has no image",
        "b.jpg#1: the text has no image",
        "trips/d.jpg: its id is not that of its key",
    ]
