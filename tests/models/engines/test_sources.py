import pytest

from diptych.errors import DiptychError, RunError
from diptych.models.address import ModelFiles
from diptych.models.engines.sources import EngineSource


def files(tmp_path, *names):
    folder = tmp_path / "run"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return ModelFiles.find(folder)


RUN = ("vocabulary.json", "best/weights.safetensors")
GRAPHS = ("best/image.onnx", "best/text.onnx", "best/export.json")
EXPORT = ("vocabulary.json", "image.onnx", "text.onnx", "export.json")


@pytest.mark.parametrize(
    ("names", "device", "has_graphs"),
    [
        (RUN, "auto", False),
        ((*RUN, *GRAPHS), "auto", True),
        ((*RUN, *GRAPHS), "cpu", True),
        ((*RUN, *GRAPHS), "cuda:1", False),  # which is asked for because it is faster
        (EXPORT, "auto", True),
    ],
)
def test_graphs_run_on_the_cpu(tmp_path, names, device, has_graphs):
    assert EngineSource(files(tmp_path, *names), device).has_graphs is has_graphs


def test_a_quality_is_one_of_two(tmp_path):
    found = files(tmp_path, *RUN)
    assert EngineSource(found, quality="fast").quality == "fast"
    with pytest.raises(DiptychError, match=r"^quality 'good': choose one of fast, best$"):
        EngineSource(found, quality="good")


def test_options_are_those_of_the_files_and_the_quality(tmp_path):
    folder = files(tmp_path, *RUN).folder
    source = EngineSource.find(folder, "cpu", tmp_path, snapshot="best", quality="fast")
    assert (source.files.folder, source.snapshot, source.stores, source.quality) == (folder, "best", tmp_path, "fast")
    assert EngineSource.find(folder, "auto", None).quality == "best"


def test_an_export_has_no_torch_engine_and_no_other_device(tmp_path):
    found = files(tmp_path, *EXPORT)
    with pytest.raises(RunError, match="an ONNX export has no torch weights"):
        EngineSource(found).open_torch()
    with pytest.raises(DiptychError, match="run: an ONNX export runs on the CPU, not on 'mps'"):
        EngineSource(found, "mps")
    with pytest.raises(DiptychError, match="device 'gpu': not one of"):
        EngineSource(files(tmp_path / "other", *RUN), "gpu")
