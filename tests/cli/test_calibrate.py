import shutil

from diptych.models.calibration.calibration import FILE, Calibration


def test_a_run_gets_a_calibration(tiny_run, tmp_path, scenes, invoke, refused, monkeypatch):
    copied_run = shutil.copytree(tiny_run, tmp_path / "run")
    assert "too few" in refused("calibrate", str(copied_run), scenes)
    assert not (copied_run / FILE).exists()
    monkeypatch.setattr("diptych.models.calibration.fit.FEWEST", 1)
    done = invoke("calibrate", str(copied_run), scenes, "--split", "train")
    assert done.exit_code == 0, done.stderr
    assert f"wrote {copied_run / FILE}" in done.stdout
    assert Calibration.load(copied_run).figures["photos"] > 0
