import json

from PIL import Image


def test_data_check(tmp_path, invoke, scenes):
    assert "train" in invoke("data", "check", scenes).output
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "table.csv").write_text("image,text,split\na.png,one,train\nb.png,two,test\nc.png,three,test\n")
    checked = invoke("data", "check", str(tmp_path / "table.csv"), "--json")
    assert checked.exit_code == 1
    problems = "\n".join(map(str, json.loads(checked.stdout)["problems"]))
    assert "b.png" in problems
    assert "c.png" in problems
