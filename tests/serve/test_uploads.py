"""Bodies are read up to a limit, and a few images are in memory at a time."""

import asyncio
import io
import threading

import pytest
from PIL import Image
from starlette.requests import Request

from diptych.serve import uploads

MEGABYTES = 2**20


def png(size):
    out = io.BytesIO()
    Image.new("1", size).save(out, "PNG")
    return out.getvalue()


UPLOADS = {
    "nothing": (lambda: b"", 422, "empty"),
    "not-an-image": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "not an image"),
    "cut-short": (lambda: png((3000, 3000))[:60], 415, "the file"),
    "too-many-bytes": (lambda: bytes(20 * MEGABYTES + 1), 413, "20 MB"),
    "too-many-pixels": (lambda: png((10_000, 5_001)), 415, "50,000,000 pixels"),
}


@pytest.mark.parametrize(("body", "status", "reason"), UPLOADS.values(), ids=UPLOADS.keys())
def test_a_bad_upload_is_answered_with_one_sentence(kit, client, body, status, reason):
    assert reason in kit.error_of(client.post("/similar", content=body()), status)


@pytest.mark.parametrize("declared", [{}, {b"content-length": b"5"}], ids=["no length", "wrong length"])
def test_an_endless_body_is_not_read_to_the_end(declared):
    received = 0

    async def receive():
        nonlocal received
        received += 100
        return {"type": "http.request", "body": bytes(100), "more_body": True}

    request = Request({"type": "http", "headers": list(declared.items())}, receive)
    with pytest.raises(uploads.RequestError, match="too much"):
        asyncio.run(uploads.read_body(request, 1000, "too much"))
    assert received < 6000


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "TOTAL_SECONDS"])
def test_a_body_that_is_not_sent_times_out(monkeypatch, limit):
    monkeypatch.setattr(uploads, limit, 0.01)

    async def receive():
        await asyncio.Event().wait()

    with pytest.raises(uploads.RequestError, match="was not received in time") as refused:
        asyncio.run(uploads.read_body(Request({"type": "http", "headers": []}, receive), 1000, "too much"))
    assert refused.value.status == 408


def test_few_images_are_in_memory_and_one_is_decoded_at_a_time(kit, monkeypatch):
    reading, decoding = [], []

    class Noting(kit.FakeModel):
        def preprocess(self, photo):
            decoding.append(threading.current_thread().name)
            return super().preprocess(photo)

    async def story():
        service, model, may = uploads.Uploads(lambda *_: None), Noting(), asyncio.Event()

        def asked(number):
            async def receive():
                reading.append(number)
                await may.wait()
                return {"type": "http.request", "body": png((number + 1, 1)), "more_body": False}

            return Request({"type": "http", "headers": []}, receive)

        async def upload(number):
            async with service.slots:
                return await service.prepare(await uploads.read_image(asked(number)), model)

        sent = [asyncio.create_task(upload(number)) for number in range(9)]
        for _ in range(20):
            await asyncio.sleep(0)
        begun = len(reading)
        may.set()
        read = await asyncio.gather(*sent)
        service.close()
        return begun, read

    begun, read = asyncio.run(story())
    assert begun == uploads.CONCURRENT
    assert len({upload.digest for upload in read}) == len(reading) == 9
    assert len(set(decoding)) == 1


def test_the_limits_hold_whatever_length_is_declared(kit, client):
    lie = {"content-length": str(10**12)}
    assert "20 MB" in kit.error_of(client.post("/similar", content=b"x", headers=lie), 413)
    assert uploads.MAX_BYTES == 20 * MEGABYTES
    assert uploads.MAX_PIXELS == 50_000_000
