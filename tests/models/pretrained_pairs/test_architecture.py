from diptych.models.pretrained_pairs.architecture import PairArchitecture, Preprocessing, TextReading

IMAGE = Preprocessing(side=32, crop="centre", interpolation="bicubic", mean=(0.5, 0.5, 0.5), deviation=(1.0, 1.0, 1.0))


def test_photos_are_decoded_in_full():
    crops = IMAGE.crops()
    assert (crops.name, crops.interpolation, crops.full_size, crops.count) == ("centre", "bicubic", True, 1)
    patches = IMAGE.model_copy(update={"crop": "patches", "patch": 4, "patches": 30}).crops()
    assert (patches.name, patches.patch, patches.patches) == ("patches", 4, 30)


def test_an_architecture_survives_json():
    made = PairArchitecture(
        library="open_clip", config={"a": [1, {"b": 0.5}]}, size=3, ids=9, image=IMAGE, text=TextReading(context=5)
    )
    assert PairArchitecture.model_validate_json(made.model_dump_json()) == made
