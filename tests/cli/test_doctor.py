from support.plugins import LOSS


def test_doctor_finds_the_installation_working(invoke):
    checked = invoke("doctor")
    assert checked.exit_code == 0
    assert "works" in checked.output
    assert "torch" in checked.output


def test_doctor_lists_plugins_and_finds_those_that_do_not_work(invoke, own_modules, monkeypatch):
    monkeypatch.setattr("diptych.cli.doctor._self_test", list)
    own_modules.write("my_losses", LOSS)
    own_modules.register("objectives", "exponential", "my_losses:Exponential")
    own_modules.register("objectives", "hinge", "my_losses:Exponential")
    checked = invoke("doctor")
    assert checked.exit_code == 0
    assert "plug-in objectives: exponential" in checked.output
    assert "never used: its name is built in" in " ".join(checked.output.split())
    assert "my_losses:Exponential" in checked.output
    own_modules.register("matchers", "broken", "no_such_module:Loss[x]")
    checked = invoke("doctor")
    assert checked.exit_code == 1
    assert "the plug-in 'broken' of an unknown package cannot be loaded" in " ".join(checked.output.split())
