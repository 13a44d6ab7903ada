from diptych.index.sources.corpus import CorpusSource
from diptych.index.sources.open import open_source
from support.photos import draw


def test_a_folder_with_a_table_is_a_corpus(tmp_path):
    draw(tmp_path / "images/a.png")
    (tmp_path / "captions.csv").write_text("image,text,year\na.png,a dog,1999\n")
    source = open_source(str(tmp_path))
    assert isinstance(source, CorpusSource)
    assert list(source.listing().files) == ["a.png"]
    info = source.info("a.png")
    assert (info.texts, dict(info.columns)) == (["a dog"], {"year": "1999"})
    assert source.root == str(tmp_path / "images")
    before = source.listing().files["a.png"]
    (tmp_path / "captions.csv").write_text("image,text,year\na.png,a cat,1999\n")
    after = open_source(str(tmp_path)).listing().files["a.png"]
    assert (before[:2] == after[:2], before[2] == after[2]) == (True, False)


def test_a_table_whose_images_are_elsewhere_keeps_its_columns(tmp_path):
    draw(tmp_path / "photos/a.jpg")
    (tmp_path / "t.csv").write_text("image,text,year\na.jpg,a dog,1999\n")
    source = open_source(f"{tmp_path}/t.csv#{tmp_path}/photos")
    info = source.info("a.jpg")
    assert (info.path, info.texts, dict(info.columns)) == ("a.jpg", ["a dog"], {"year": "1999"})
