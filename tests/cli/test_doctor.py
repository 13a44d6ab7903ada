def test_doctor_finds_the_installation_working(invoke):
    checked = invoke("doctor")
    assert checked.exit_code == 0
    assert "works" in checked.output
    assert "torch" in checked.output
