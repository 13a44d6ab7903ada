"""What `pip install diptych` brings: searching works without torch, and everything else says what to install."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command

import diptych
from diptych.cli.main import app
from diptych.data.formats.scenes import make_scenes
from support.light import ROOT, light_python, run_light

MOST_BYTES = 25e6
EXTRA = "run: pip install 'diptych[train]'"

# Arguments of every command, by whether it works without torch.
WORKS = [
    "data check scenes:train=4,val=4,test=4",
    "doctor",
    "explain starter photo.png circle",
    "index starter photos --into photos.diptych",
    "index doctor photos.diptych",
    "index rebuild photos.diptych",
    "index status photos.diptych",
    "album list photos.diptych",
    "recipes list",
    "reproduce --list",
    "search photos.diptych red circle",
]
NEEDS_TORCH = [
    "calibrate starter scenes:train=4,val=4,test=4",
    "compare starter starter scenes:train=4,val=4,test=4",
    "demo --into demo",
    "encode starter scenes:train=4,val=4,test=4 --into encodings.safetensors",
    "evaluate starter scenes:train=4,val=4,test=4",
    "export starter --onnx",
    "export starter --float16",
    "features scenes:train=4,val=4,test=4",
    "fuse starter starter scenes:train=4,val=4,test=4 --into fused",
    "localize starter photo.png circle",
    "make classes --into classes",
    "mine starter scenes:train=4,val=4,test=4 --into mined",
    "recipes find --paper vsepp",
    "recipes show scenes",
    "reproduce all --data scenes:train=4,val=4,test=4",
    "search photos.diptych red circle --device cuda",
    "sweep scenes scenes:train=4,val=4,test=4 --over seed=1,2",
    "train scenes scenes:train=4,val=4,test=4 --into run",
]
RUNS_UNTIL_IT_IS_ENDED = {"open", "serve", "watch"}  # `serve` is tested with the wheel, and they share its parts

PROGRAM = """
import contextlib, io, json, sys
from diptych.cli.main import main

assert "torch" not in sys.modules
for line in json.loads(sys.argv[1]):
    sys.argv = ["diptych", *line.split()]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            code = main()
    except SystemExit as ended:
        code = ended.code
    print(json.dumps([line, code or 0]), flush=True)
    print("end of", line, file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    made = light_python(tmp_path_factory.mktemp("light"))
    found = run_light(
        made, "-c", "import importlib.util as i; print(i.find_spec('torch'), i.find_spec('numpy') is None)"
    )
    assert found.stdout == "None False\n", found.stderr  # or the tests below would say nothing
    return made


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """20 drawn photos."""
    folder = tmp_path_factory.mktemp("drawn") / "photos"
    folder.mkdir()
    scenes = make_scenes(train=20, val=0, test=0)
    for number in range(20):
        scenes.pictures[number].load().save(folder / f"{number}.png")
    return folder


def test_the_wheel_indexes_searches_and_serves_without_torch(python, photos, tmp_path):
    program = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, tmp_path], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < MOST_BYTES
    install = ["pip", "--quiet", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", *install], check=True)
    command = python.with_name("diptych")
    where = run_light(python, "-c", "import diptych; print(diptych.__file__)", cwd=tmp_path).stdout
    assert Path(where.strip()).is_relative_to(python.parents[1])

    indexed = run_light(command, "index", "starter", photos, "--into", "photos.diptych", cwd=tmp_path)
    assert indexed.returncode == 0, indexed.stderr
    assert "encoded 20" in indexed.stdout
    found = run_light(command, "search", "photos.diptych", "red", "circle", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert len(json.loads(found.stdout)["hits"]) == 10

    serve = [command, "serve", "photos.diptych", "--port", "0"]
    with subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = re.search(r"http://\S+", process.stdout.readline()).group()
            with urllib.request.urlopen(f"{address}/search?text=red+circle&k=3", timeout=30) as answer:
                served = json.load(answer)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    same = [hit["key"] for hit in json.loads(found.stdout)["hits"][:3]]
    assert [hit["key"] for hit in served["hits"]] == same


def test_every_command_works_without_torch_or_says_what_to_install(python, photos, tmp_path):
    Image.open(photos / "0.png").save(tmp_path / "photo.png")
    (tmp_path / "photos").mkdir()
    for number in range(3):
        shutil.copy(photos / f"{number}.png", tmp_path / "photos")
    lines = [*WORKS, *NEEDS_TORCH]
    ran = run_light(python, "-c", PROGRAM, json.dumps(lines), cwd=tmp_path, source=ROOT / "src")
    codes = dict(json.loads(line) for line in ran.stdout.splitlines())
    errors = dict(zip(lines, re.split(r"end of .*\n", ran.stderr), strict=False))
    assert {line: codes.get(line) for line in lines} == dict.fromkeys(WORKS, 0) | dict.fromkeys(NEEDS_TORCH, 1), errors
    for line in NEEDS_TORCH:
        (error,) = errors[line].splitlines()
        assert error.startswith("diptych: "), line
        assert error.endswith(EXTRA), line


def test_every_command_is_tried():
    known = {name for name in get_command(app).commands if not get_command(app).commands[name].hidden}
    assert known == {line.split()[0] for line in [*WORKS, *NEEDS_TORCH]} | RUNS_UNTIL_IT_IS_ENDED


def test_every_public_name_is_there_or_says_what_to_install(python):
    program = """if True:
        import sys
        import diptych
        for module in (diptych, diptych.objectives):
            for name in dir(module):
                try:
                    getattr(module, name)
                except diptych.DiptychError as reason:
                    print(name, reason, sep=": ")
        print("torch" in sys.modules)
    """
    ran = run_light(python, "-c", program, source=ROOT / "src")
    assert ran.returncode == 0, ran.stderr
    *missing, imported = ran.stdout.splitlines()
    assert imported == "False"
    assert all(line.endswith(EXTRA) for line in missing)
    without = {line.split(":")[0] for line in missing}
    assert {"train", "evaluate", "fuse", "Hinge"} <= without
    assert not without & {
        "Model",
        "load",
        "sync",
        "open_index",
        "Searcher",
        "create_app",
        "open_corpus",
        "DiptychError",
    }
    assert without < {*diptych.__all__, *diptych.objectives.__all__}
