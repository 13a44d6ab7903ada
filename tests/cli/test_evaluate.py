import json
import re
import shutil

import numpy as np


def test_reports_have_map_if_a_text_has_several_images_or_on_demand(tiny_run, tmp_path, invoke, scenes):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    report = folder / "report.html"
    for data, options, shown in (
        (scenes, (), False),
        (scenes, ("--map",), True),
        (f"{scenes},images=2", (), True),
    ):
        told = invoke("evaluate", str(folder), data, "--report", "--json", *options)
        assert told.exit_code == 0, told.output
        metrics = json.loads(told.stdout)["metrics"]
        assert ("t2i_map" in metrics) == shown
        page = report.read_text()
        assert ('<th scope="col">mAP</th>' in page) == shown
        if shown:
            cells = re.findall(r'<td data-label="mAP">\s*<span class="value">([^<]*)<', page)
            assert cells == [f"{metrics[name]:.1f}" for name in ("i2t_map", "t2i_map")]


def test_evaluate_a_run(tiny_run, tmp_path, invoke, scenes):
    printed = invoke("evaluate", tiny_run, scenes, "--into", str(tmp_path / "result.json"))
    assert printed.exit_code == 0
    assert "R@1" in printed.output
    assert "6 images" in printed.output
    saved = json.loads((tmp_path / "result.json").read_text())
    again = json.loads(invoke("evaluate", tiny_run, scenes, "--json").stdout)
    assert again == saved
    assert set(saved["metrics"]) >= {"i2t_r1", "t2i_r10", "rsum"}


def test_evaluate_saved_encodings_and_ensembles_of_them(tiny_run, tmp_path, invoke, refused, scenes):
    file = tmp_path / "test.safetensors"
    assert invoke("encode", tiny_run, scenes, "--into", str(file)).exit_code == 0
    of_run = json.loads(invoke("evaluate", tiny_run, scenes, "--json").stdout)
    assert json.loads(invoke("evaluate", str(file), "--json").stdout) == of_run
    # a run averaged with itself is itself, however it is given
    assert json.loads(invoke("evaluate", tiny_run, tiny_run, scenes, "--json").stdout)["metrics"] == of_run["metrics"]
    assert json.loads(invoke("evaluate", str(file), str(file), "--json").stdout)["metrics"] == of_run["metrics"]
    other = tmp_path / "val.safetensors"
    assert invoke("encode", tiny_run, scenes, "--split", "val", "--into", str(other)).exit_code == 0
    assert "differ in their corpus" in refused("evaluate", str(file), str(other))


def test_evaluate_a_score_matrix(tmp_path, invoke, refused, scenes):
    scores = np.full((6, 12), -1.0, np.float32)
    scores[np.arange(12) // 2, np.arange(12)] = 1  # the scenes' texts follow their images
    np.save(tmp_path / "scores.npy", scores)
    found = json.loads(invoke("evaluate", str(tmp_path / "scores.npy"), scenes, "--json").stdout)
    assert found["metrics"]["rsum"] == 600
    np.save(tmp_path / "small.npy", scores[:5])
    assert "5 images and 12 texts" in refused("evaluate", str(tmp_path / "small.npy"), scenes)
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    assert "objects.npy" in refused("evaluate", str(tmp_path / "objects.npy"), scenes)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "scores.npy").read_bytes()[:100])
    assert "cut.npy: not a complete .npy file" in refused("evaluate", str(tmp_path / "cut.npy"), scenes)
    scores[1, 3] = np.nan
    np.save(tmp_path / "nan.npy", scores)
    assert "nan.npy: image 1 and text 3" in refused("evaluate", str(tmp_path / "nan.npy"), scenes)


def test_odd_score_matrices_are_one_line(tmp_path, refused, scenes):
    scores = np.zeros((6, 12), ">f4")
    np.save(tmp_path / "big.npy", scores)
    assert "big.npy" in refused("evaluate", str(tmp_path / "big.npy"), scenes)
    np.savez(tmp_path / "many.npz", a=scores)
    (tmp_path / "many.npz").rename(tmp_path / "many.npy")
    assert "an archive of arrays" in refused("evaluate", str(tmp_path / "many.npy"), scenes)
