from diptych.serve.schemas.answers import Health, Indexes


def test_indexes_and_health_describe_what_is_served(client):
    (about,) = Indexes.model_validate(client.get("/indexes").json()).indexes
    assert (about.name, about.images, about.texts, about.model) == ("photos", 3, 3, "fake")
    assert (about.source_name, about.folders, about.localizes) == ("photos", ["below"], False)
    health = Health.model_validate(client.get("/health").json())
    assert (health.status, health.problems) == ("ok", [])


def test_paths_are_not_revealed(client, folder):
    for address in ("/indexes", "/health", "/metrics"):
        assert str(client.searcher.store.path.parent) not in client.get(address).text
