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


def test_data_shard(tmp_path, invoke):
    folder = tmp_path / "shards"
    command = ("data", "shard", "scenes:train=25,val=4,test=3", "--into", str(folder), "--samples", "10")
    first = invoke(*command)
    assert "5 shards, " in first.output
    assert "(images: train 25, val 4, test 3; 160 texts)" in first.output
    assert "boxes and phrases of the data are left out" in first.output
    assert "5 of them written before" in invoke(*command).output
    assert "another folder" in str(invoke(*command[:-1], "7").exception)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "table.csv").write_text("image,text\na.png,one\nb.png,two\n")
    written = invoke("data", "shard", str(tmp_path / "table.csv"), "--into", str(tmp_path / "own"))
    assert "b.png: an empty file" in written.output
    assert "has no splits of its own" in written.output
    assert "1 shard, " in written.output
