"""Forms with files are read as they were sent, damaged ones are refused, and /similar and /encode take both."""

import io

import httpx2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.serve import forms
from diptych.serve.errors import RequestError
from diptych.serve.forms import parse_form

NAMES = frozenset({"file", "image"})


def sent(fields, files):
    """The content type and the body of a form, as an HTTP client sends it."""
    data = {}
    for name, value in fields:
        data.setdefault(name, []).append(value)
    request = httpx2.Request("POST", "http://x", data=data, files=[(name, ("a", content)) for name, content in files])
    return request.headers["content-type"], request.read()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=9)), max_size=5).map(sorted),
    st.lists(st.tuples(st.just("file"), st.binary(max_size=40)), min_size=1, max_size=4),
)
@settings(max_examples=50, deadline=None)
def test_what_a_client_sends_is_read(fields, files):
    form = parse_form(*sent(fields, files), NAMES)
    assert (sorted(form.fields), form.files) == (sorted(fields), files)


def body(*parts, end=b"--xy--\r\n"):
    return b"".join(b"--xy\r\n" + part + b"\r\n" for part in parts) + end


def test_names_of_files_do_not_matter():
    tricky = (
        b'Content-Type: image/png\r\ncontent-disposition:form-data; filename="a; name=b\\".jpg"; name="file"\r\n\r\n1'
    )
    plain = b"Content-Disposition: form-data; name=image\r\n\r\n\r\n2\r\n"
    form = parse_form('multipart/form-data; boundary="xy"', b"preamble\r\n" + body(tricky, plain), NAMES)
    assert form == ([], [("file", b"1"), ("image", b"\r\n2\r\n")])


FIELD = b'Content-Disposition: form-data; name="k"\r\n\r\n3'
DAMAGED = {
    "no boundary": ("multipart/form-data", body(FIELD)),
    "empty boundary": ("multipart/form-data; boundary=", body(FIELD)),
    "long boundary": (f"multipart/form-data; boundary={'x' * 71}", body(FIELD)),
    "another boundary": ("multipart/form-data; boundary=xz", body(FIELD)),
    "nothing": ("multipart/form-data; boundary=xy", b""),
    "no end": ("multipart/form-data; boundary=xy", body(FIELD, end=b"")),
    "no headers": ("multipart/form-data; boundary=xy", body(b"3")),
    "no name": ("multipart/form-data; boundary=xy", body(b"Content-Disposition: form-data\r\n\r\n3")),
    "empty name": ("multipart/form-data; boundary=xy", body(b"Content-Disposition: form-data; filename=x\r\n\r\n3")),
    "another header": ("multipart/form-data; boundary=xy", body(b"X: form-data; name=k\r\n\r\n3")),
    "long headers": ("multipart/form-data; boundary=xy", body(b"X: " + bytes(9000) + b"\r\n" + FIELD)),
}


@pytest.mark.parametrize(("content_type", "content"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_form_is_refused(content_type, content):
    with pytest.raises(RequestError, match=r"^the form is damaged or incomplete") as refused:
        parse_form(content_type, content, NAMES)
    assert refused.value.status == 422


def test_what_a_form_may_not_have():
    kind = "multipart/form-data; boundary=xy"
    with pytest.raises(RequestError, match=r"^k: not UTF-8$"):
        parse_form(kind, body(FIELD + b"\xff"), NAMES)
    with pytest.raises(RequestError, match=r"^k: takes no file; send the file as file or image$"):
        parse_form(kind, body(b"Content-Disposition: form-data; name=k; filename=a.jpg\r\n\r\n3"), NAMES)
    with pytest.raises(RequestError, match="more than 127 fields") as refused:
        parse_form(kind, body(*[FIELD] * 200), NAMES)
    assert refused.value.status == 413
    assert len(parse_form(kind, body(*[FIELD] * 127), NAMES).fields) == 127


def test_a_form_finds_what_the_bytes_find(kit, client):
    photo = kit.picture("blue")
    plain = client.post("/similar?k=2&to=text", content=photo).json()
    for name in ("file", "image"):
        form = client.post("/similar", data={"k": "2", "to": "text"}, files={name: ("b.png", photo, "image/png")})
        assert kit.keys(form) == ["below/blue.jpg#0", *kit.keys(form)[1:]]
        assert form.json()["hits"] == plain["hits"]
    form = client.post("/similar?k=2", data={"to": "text"}, files={"file": photo})
    assert form.json()["hits"] == plain["hits"]
    rest = client.post("/similar", data={"k": "2", "to": "text", "cursor": plain["next"]}, files={"file": photo})
    assert len(kit.keys(rest)) == 1


WRONG = {
    "none": ({"data": {"k": "1"}, "files": {"k": (None, "1")}}, 422, "the form has 0 images; send one file, as file"),
    "two": ({"files": [("file", b"a"), ("image", b"b")]}, 422, "the form has 2 images"),
    "empty": ({"files": {"file": b""}}, 422, "the image is empty"),
    "not-an-image": ({"files": {"file": b"abc"}}, 415, "not an image in a known format"),
    "option": ({"data": {"k": "0"}, "files": {"file": b"a"}}, 422, "k: input should be greater than or equal to 1"),
    "unknown": ({"data": {"kk": "0"}, "files": {"file": b"a"}}, 422, "kk: there is no such field"),
    "index": ({"data": {"index": "other"}, "files": {"file": b"a"}}, 404, "no index 'other'"),
}


@pytest.mark.parametrize(("form", "status", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_form_is_answered_with_one_sentence(kit, client, form, status, reason):
    assert reason in kit.error_of(client.post("/similar", **form), status)


def test_a_large_form_is_not_read_to_the_end(kit, client, monkeypatch):
    monkeypatch.setattr(forms, "MAX_BYTES", 1000)
    monkeypatch.setattr(forms, "OTHER_BYTES", 500)
    refused = client.post("/similar", files={"file": bytes(1100)})
    assert kit.error_of(refused, 413).startswith("the image has more than")
    assert kit.error_of(client.post("/similar", files={"file": bytes(9100)}), 413).startswith("the image has more than")


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://127.0.0.1:8001"])
def test_forms_of_other_sites_are_refused(kit, client, origin):
    for address in ("/similar", "/encode"):
        refused = client.post(address, files={"image": kit.picture("red")}, headers={"Origin": origin})
        assert "may not use this service" in kit.error_of(refused, 403)


def test_images_are_encoded_from_a_form(kit, client):
    photos = [kit.picture("red"), kit.picture("blue")]
    files = [("images", ("x.png", io.BytesIO(photo))) for photo in photos]
    answer = client.post("/encode", data={"texts": ["red", "blue"], "index": "photos"}, files=files)
    assert answer.status_code == 200, answer.text
    assert np.allclose(answer.json()["images"], answer.json()["texts"], atol=1e-6)
    assert len(answer.json()["images"]) == 2
    many = client.post("/encode", files=[("image", b"x")] * 17)
    assert kit.error_of(many, 422) == "the form has 17 images; send at most 16"
    assert "images.1: the image is empty" in kit.error_of(
        client.post("/encode", files=[("file", photos[0]), ("file", b"")]), 422
    )
