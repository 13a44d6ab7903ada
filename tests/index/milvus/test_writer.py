"""What is written is what is read, also when it is written again, renamed, moved or removed."""

from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import DataError, IndexFileError
from diptych.index.sources.listing import ImageInfo


def facts(store):
    ids = store.vectors("image")[0]
    captions = store.captions(ids)
    found = {entry.key: (entry.folder, captions[entry.id]) for entry in store.entries(ids)}
    return found, store.counts(), store.problems()


def vectors(store):
    ids, found = store.vectors("image")
    return {entry.key: row for entry, row in zip(store.entries(ids), found, strict=True)}


def test_writing_the_same_again_changes_nothing(milvus_copy, four):
    before, ids = facts(milvus_copy), milvus_copy.vectors("text")[0]
    generation = milvus_copy.generation
    four.fill(milvus_copy)
    assert facts(milvus_copy) == before
    assert np.array_equal(milvus_copy.vectors("text")[0], ids)
    assert milvus_copy.generation > generation


def test_after_an_error_nothing_is_written(milvus_copy, four):
    before, generation = facts(milvus_copy), milvus_copy.generation
    writer = milvus_copy.writer({"b.jpg"})
    with pytest.raises(ZeroDivisionError), writer.transaction():
        four.put(writer, "new.jpg", "new")
        writer.finish({}, ())
        _ = 1 / 0
    assert (facts(milvus_copy), milvus_copy.generation) == (before, generation)


def test_renamed_removed_and_other_texts(milvus_copy, four):
    writer = milvus_copy.writer({"b.jpg", "trips/d.jpg"})
    with writer.transaction():
        four.put(writer, "moved/b.jpg", "b.jpg", texts=["a cat", "a bird"])
    with writer.transaction():
        assert writer.finish({"*.mov": "1 file: no"}, ()) == 1
    assert writer.renamed == 1
    found, counts, problems = facts(milvus_copy)
    assert found["moved/b.jpg"] == ("moved", ["a cat", "a bird"])
    assert found.keys() == {"moved/b.jpg", "trip/a.jpg", "trip/sea_%/c.jpg"}
    assert (counts, problems) == ({"image": 3, "text": 3}, [("*.mov", "1 file: no")])
    assert milvus_copy.folders() == ["moved", "trip", "trip/sea_%"]


def test_a_copy_is_no_renamed_image(milvus_copy, four):
    writer = milvus_copy.writer(())
    with writer.transaction():
        four.put(writer, "copy.jpg", "b.jpg")
    assert (writer.renamed, milvus_copy.counts()["image"]) == (0, 5)
    contents = {entry.key: entry.id for entry in milvus_copy.entries(milvus_copy.vectors("image")[0])}
    one, other = milvus_copy.contents_of([contents["b.jpg"], contents["copy.jpg"]])
    assert one == other


def test_two_files_that_are_swapped_keep_their_vectors(milvus_copy, four):
    writer = milvus_copy.writer(())
    for key, name in (("b.jpg", "trips/d.jpg"), ("trips/d.jpg", "b.jpg")):
        with writer.transaction():  # after the first, no row has the content that the second needs
            four.put(writer, key, name, stamp=(2, four.DAY, None))
    found = vectors(milvus_copy)
    assert np.array_equal(found["b.jpg"], four.vector("trips/d.jpg"))
    assert np.array_equal(found["trips/d.jpg"], four.vector("b.jpg"))


def test_problems_come_and_go(milvus_copy, four):
    writer = milvus_copy.writer(())
    with writer.transaction():
        writer.put_problem("x.jpg", (3, 4, None), "cut short", permanent=True)
        writer.put_problem("y.jpg", (3, 4, None), "busy", permanent=False)
        four.put(writer, "z.jpg", "z", problems={"z.txt": "not UTF-8"})
    records = {problem.key: problem for problem in milvus_copy.problem_records()}
    assert (records["x.jpg"].modified, records["y.jpg"].modified, records["z.txt"].reason) == (4, -1, "not UTF-8")
    with writer.transaction():
        four.put(writer, "x.jpg", "x")
    with writer.transaction():
        writer.finish({}, ["y.jpg"])
    assert milvus_copy.problems() == [("z.txt", "not UTF-8")]


def test_an_index_of_one_folder_becomes_one_of_several(milvus_copy):
    writer = milvus_copy.writer(())
    with writer.transaction():
        writer.put_problem("x.jpg", (3, 4, None), "cut short", permanent=True)
    before = facts(milvus_copy)[0]
    with writer.transaction():
        writer.move_into("Photos")
    found, counts, problems = facts(milvus_copy)
    assert found == {
        f"Photos/{key}": (f"Photos/{folder}".rstrip("/"), texts) for key, (folder, texts) in before.items()
    }
    assert (counts, problems) == ({"image": 4, "text": 4}, [("Photos/x.jpg", "cut short")])


def test_frames_of_a_video(milvus_copy, four):
    writer = milvus_copy.writer(())
    video = four.digest("film")
    with writer.transaction():
        for second in (0, 10):
            hashed = video + second.to_bytes(4, "big")
            number = writer.add(replace(four.content("image", f"frame {second}"), hash=hashed))
            writer.put_image(
                f"film.mp4#{second / 10}", number, (9, four.DAY, None), ImageInfo("film.mp4", (), moment=second / 10)
            )
    assert writer.frames(video) == [video + second.to_bytes(4, "big") for second in (0, 10)]
    assert milvus_copy.image_stamps()["film.mp4"] == (9, four.DAY, None)
    writer = milvus_copy.writer({"film.mp4"})
    with writer.transaction():
        assert writer.finish({}, ()) == 2
    assert milvus_copy.counts()["image"] == 4


def test_texts_without_an_image_that_an_interruption_left_are_removed(milvus_copy, four):
    writer = milvus_copy.writer(())
    writer.begin(four.SPEC)
    upsert = writer._upsert
    writer._upsert = lambda partition, rows: upsert(partition, rows) if partition == "text" else 1 / 0
    with pytest.raises(ZeroDivisionError), writer.transaction():
        four.put(writer, "lost.jpg", "lost", texts=["a lost text"])
    assert milvus_copy.counts() == {"image": 4, "text": 5}
    writer = milvus_copy.writer(())
    writer.begin(four.SPEC)
    with writer.transaction():
        writer.finish({}, ())
    assert milvus_copy.counts() == {"image": 4, "text": 4}


def test_what_milvus_cannot_hold_is_refused(milvus_copy, four):
    writer = milvus_copy.writer(())
    with pytest.raises(IndexFileError, match="compares sets of vectors"), writer.transaction():
        writer.add(four.content("image", "x", vector_set=b"set"))
    with (
        pytest.raises(DataError, match="its text has 70,000 bytes, and Milvus holds at most 65,535"),
        writer.transaction(),
    ):
        four.put(writer, "x.jpg", "x", texts=["x" * 70_000])
    with (
        pytest.raises(DataError, match="is not a file of its own, and Milvus keeps no thumbnails"),
        writer.transaction(),
    ):
        writer.put_image("drawn", writer.add(four.content("image", "x")), (0, 0, None), ImageInfo(None, ()))
    assert milvus_copy.counts() == {"image": 4, "text": 4}
