"""Examples of queries over HTTP."""

from diptych.serve.schemas.answers import ExamplesAnswer


def test_examples_are_those_of_the_index(kit, tmp_path):
    kit.fill(tmp_path / "photos")
    searcher = kit.searcher_of(tmp_path / "photos", tmp_path / "photos.diptych")
    with kit.served({"photos": searcher}) as client:
        none = ExamplesAnswer.model_validate(client.get("/examples").raise_for_status().json())
        assert (none.index, none.examples) == ("photos", [])  # its model has no calibration
        searcher.examples = lambda: ("a dog", "a cat")
        assert client.get("/examples?index=photos").json()["examples"] == ["a dog", "a cat"]
        assert "no index" in kit.error_of(client.get("/examples?index=other"), 404)
    searcher.store.close()
