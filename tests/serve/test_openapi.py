"""Requests that conform to the OpenAPI document, and those that do not, get a documented response, never a 5xx."""

import warnings

import pytest
from hypothesis import HealthCheck, given, settings

from diptych.serve.app import create_app

schemathesis = pytest.importorskip("schemathesis")

# A day or a split may be well-formed and still not exist.
positive_data_acceptance = schemathesis.checks.positive_data_acceptance
# A wrong search of a batch has its error among the answers, and whatever a form has in place of a text is a text.
LENIENT = {key: [schemathesis.checks.negative_data_rejection] for key in ["/search/batch", "multipart/form-data"]}
EXAMPLES = 5  # per route and method; 150 found nothing more


@pytest.fixture(scope="module")
def schema(client):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own libraries
        app = create_app({"photos": client.searcher}, hosts=["testserver"])
        return schemathesis.openapi.from_asgi("/openapi.json", app)


ROUTES = [
    "/search",
    "/search/batch",
    "/home",
    "/folders",
    "/examples",
    "/encode",
    "/similar",
    "/image/{id}",
    "/entry/{id}",
    "/original/{id}",
    "/albums",
    "/albums/{id}",
    "/albums/{id}/images",
    "/albums/{id}/remove",
    "/favourites",
    "/export",
    "/reveal",
    "/explain",
    "/localize",
    "/indexes",
    "/health",
    "/metrics",
]


def test_the_document_names_all_routes(schema):
    assert sorted(schema.raw_schema["paths"]) == sorted(ROUTES)
    search = schema.raw_schema["paths"]["/search"]
    assert set(search) == {"get", "post"}  # HEAD is not listed
    assert {parameter["name"] for parameter in search["get"]["parameters"]} == {
        *(
            "text",
            "index",
            "to",
            "k",
            "folder",
            "since",
            "until",
            "split",
            "where",
            "mode",
            "cursor",
            "album",
            "more",
            "less",
        )
    }
    assert set(search["post"]["responses"]) == {"200", "400", "403", "404", "408", "413", "415", "422", "503"}


def use_existing_names(case):
    """Name existing indexes and entries, so that not every request is refused for a made-up name."""
    for part in (case.query, case.body):
        if isinstance(part, dict):
            part.update({name: "" for name in ("index", "split") if name in part})
            if "where" in part and len(part["where"]) % 2:
                del part["where"]
            if "album" in part:
                part["album"] = 0
            if "id" in part:
                part["id"] = part["id"] % 8 + 1
    if "id" in case.path_parameters:
        case.path_parameters["id"] = str(len(case.path_parameters["id"]) % 8)


@pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("route", ROUTES)
def test_every_request_gets_a_documented_response(schema, route, mode):
    for operation in schema[route].values():
        if mode is schemathesis.GenerationMode.NEGATIVE and not operation.query and not operation.body:
            continue  # it cannot be wrong

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
        @given(operation.as_strategy(generation_mode=mode))
        def ask(case):
            if mode is schemathesis.GenerationMode.POSITIVE:
                use_existing_names(case)
            lenient = LENIENT.get(case.media_type, []) + LENIENT.get(route, [])
            case.call_and_validate(excluded_checks=[positive_data_acceptance, *lenient])

        ask()
