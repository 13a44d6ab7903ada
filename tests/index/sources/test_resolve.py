import pytest

from diptych.errors import DataError
from diptych.index.sources.corpus import CorpusSource
from diptych.index.sources.folder import FolderSource
from diptych.index.sources.resolve import SourceRequest
from diptych.index.sources.selection import Selection
from diptych.index.spec import IndexSpec


@pytest.fixture
def folders(tmp_path):
    paths = [str(tmp_path / name) for name in ("Pictures", "DCIM", "Scans")]
    for path in paths:
        (tmp_path / path).mkdir()
    return paths


def spec(source):
    root = source.root if isinstance(source, FolderSource | CorpusSource) else None
    return IndexSpec("m", "i", 4, False, "float32", source.address, root, "0", source.folders, source.selection)


def resolve(*sources, before=None, **options):
    return SourceRequest(sources, **options).resolve(before)


def test_one_folder_is_what_it_always_was(folders):
    source = resolve(folders[0])
    assert isinstance(source, FolderSource)
    assert (source.address, source.root, source.folders) == (folders[0], folders[0], ())
    again = resolve(before=spec(source))
    assert (again.address, again.folders) == (folders[0], ())


def test_folders_are_added_and_removed(folders):
    pictures, dcim, scans = folders
    both = resolve(pictures, dcim, before=spec(resolve(pictures)))
    assert both.folders == (("Pictures", pictures), ("DCIM", dcim))
    three = resolve(dcim, scans, before=spec(both))
    assert [name for name, _ in three.folders] == ["Pictures", "DCIM", "Scans"]
    assert resolve(before=spec(three)).folders == three.folders
    one = resolve(before=spec(both), remove=(pictures,))
    assert one.folders == (("DCIM", dcim),)  # keys stay as they are
    assert resolve(dcim, before=spec(one)).folders == one.folders
    other = resolve(scans, before=spec(both))  # which the index refuses
    assert (other.address, other.folders) == (scans, ())


def test_patterns_and_links_stay_as_they_are_until_they_are_changed(folders):
    first = resolve(folders[0], ignored=("*.gif",), follow_links=True)
    assert first.selection == Selection(("*.gif",), follow_links=True)
    assert resolve(before=spec(first)).selection == first.selection
    assert resolve(before=spec(first), ignored=()).selection == Selection((), follow_links=True)
    assert resolve(before=spec(first), follow_links=False).selection == Selection(("*.gif",))


def test_what_is_refused(folders, tmp_path):
    both = spec(resolve(*folders[:2]))
    (tmp_path / "captions.csv").write_text("image,text\n")
    for said, options in [
        ("not a folder of this index; known: ", {"remove": ("/elsewhere",)}),
        ("cannot be removed from it; delete the file of the index", {"remove": tuple(folders[:2])}),
        ("is to be removed and indexed at once", {"sources": (folders[0],), "remove": (folders[0],)}),
        ("several sources must be folders of photos", {"sources": (folders[0], str(tmp_path))}),
        ("nowhere: no such file or folder", {"sources": (folders[0], str(tmp_path / "nowhere"))}),
        ("several sources must be folders of photos", {"sources": (folders[0], "scenes")}),
        ("--ignore '/': matches nothing", {"ignored": ("/",)}),
    ]:
        with pytest.raises(DataError) as error:
            SourceRequest(**options).resolve(both)
        assert said in str(error.value)
    with pytest.raises(DataError, match="no source is named"):
        resolve()
    with pytest.raises(DataError, match="patterns and links are for folders of photos"):
        resolve("scenes", ignored=("*.gif",))
    corpus = resolve("scenes:train=1,val=1,test=1")
    assert isinstance(resolve(before=spec(corpus)), CorpusSource)
