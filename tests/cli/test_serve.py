"""`diptych serve` as a separate process, with a fake model: a real one would take seconds to load."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock

import pytest
from PIL import Image

from diptych.cli import serve
from diptych.errors import DiptychError
from diptych.index.search import NOT_JUDGED
from diptych.models.engines import onnx_graph
from support.served_model import MODEL

SERVE = (
    MODEL
    + """
Model.load = load
from diptych.cli.main import main
try:
    main()
finally:
    print("opened", opened, "torch", "torch" in sys.modules)
"""
)

INDEX = (
    MODEL
    + """
from diptych.index.sync import sync
for name in ("first", "second"):
    sync(FakeModel(), sys.argv[1], f"{sys.argv[1]}/{name}.diptych")
"""
)


def python(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    Image.new("RGB", (20, 20), "red").save(folder / "red.png")
    code, _, err = ended(python(INDEX, folder))
    assert code == 0, err
    return [folder / "first.diptych", folder / "second.diptych"]


def get(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


def test_it_prints_its_url_answers_without_torch_and_ends_with_ctrl_c(files):
    process = python(SERVE, "serve", *files, "--port", 0, "--threads", 1)
    try:
        line = process.stdout.readline()
        address = re.fullmatch(r"serving first, second at (http://127\.0\.0\.1:\d+)\n", line).group(1)
        assert get(f"{address}/search?text=red&index=second")["hits"][0]["key"] == "red.png"
        assert [about["name"] for about in get(f"{address}/indexes")["indexes"]] == ["first", "second"]
        with urllib.request.urlopen(urllib.request.Request(f"{address}/health", method="HEAD"), timeout=30) as head:
            assert int(head.headers["content-length"]) > 0
        with pytest.raises(urllib.error.HTTPError) as refused:  # read by the server, and refused with a reason
            get(f"{address}/search?text={'a' * 100_000}")
        assert refused.value.code == 422
        assert json.load(refused.value) == {"error": "text: string should have at most 1000 characters"}
        process.send_signal(signal.SIGINT)
        code, out, err = ended(process)
    finally:
        process.kill()
    assert (code, err) == (0, f"{NOT_JUDGED}; to make one: diptych calibrate RUN DATA\nended\n")  # once for both
    assert out == "opened ['starter'] torch False\n"  # one model for both, and torch is not imported


@pytest.mark.parametrize(("said", "threads"), [("3", 3), ("2,1", 2), ("", 7), ("0", 7), ("many", 7)])
def test_an_export_computes_with_the_threads_it_is_given(monkeypatch, said, threads):
    options = mock.Mock()
    monkeypatch.setattr(onnx_graph, "import_onnxruntime", lambda: mock.Mock(SessionOptions=lambda: options))
    monkeypatch.setattr(onnx_graph, "available_cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    onnx_graph._session(Path("image.onnx"))
    assert options.intra_op_num_threads == threads


def test_errors_at_the_start_are_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DiptychError, match=rf"^port {port} of 127.0.0.1 is in use; .* --port 0 for any free one$"):
            serve.command([tmp_path / "none.diptych"], port=port)
    with pytest.raises(DiptychError, match=r"none.diptych: no such index; .*$"):
        serve.command([tmp_path / "none.diptych"], port=0)
    with pytest.raises(DiptychError, match=r"^--host no such host: not an address of this machine"):
        serve.command([tmp_path / "none.diptych"], host="no such host", port=0)
