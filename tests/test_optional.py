import logging
import sys
import warnings

import pytest

from diptych.errors import DiptychError
from diptych.optional import import_optional, quiet, why_broken


def test_a_missing_package_names_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(DiptychError, match=r"^timm is not installed; run: pip install 'diptych\[timm\]'$"):
        import_optional("timm", "pip install 'diptych[timm]'")


def broken(name, line, folder, monkeypatch):
    (folder / f"{name}.py").write_text(line)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_torchvision_for_another_torch_is_one_line(tmp_path, monkeypatch):
    line = "raise RuntimeError('operator torchvision::nms does not exist\\nand more')"
    broken("broken_source", line, tmp_path, monkeypatch)
    with pytest.raises(
        DiptychError, match=r"install the torchvision that was built for this torch, or use lite0$"
    ) as error:
        import_optional("broken_source", "")
    assert "torchvision::nms does not exist and more" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_first_cause_of_a_failure_is_named():
    with pytest.raises(ModuleNotFoundError) as error:
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as reason:
            raise ModuleNotFoundError("Could not import module 'BertModel'") from reason
    cause = "(RuntimeError: operator torchvision::nms does not exist)"
    assert why_broken(error.value) == f"{cause}; install the torchvision that was built for this torch"


def test_a_missing_dependency_of_a_package_is_named(tmp_path, monkeypatch):
    broken("hollow_source", "import no_such_package_at_all", tmp_path, monkeypatch)
    with pytest.raises(DiptychError, match=r"hollow_source needs no_such_package_at_all.*run: pip install it"):
        import_optional("hollow_source", "pip install it")


def test_quiet_suppresses_logs_and_warnings_and_ends(capfd, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])  # logging.error() then installs one
    level = logging.root.manager.disable
    with quiet():
        warnings.warn("not seen", stacklevel=1)
        logging.error("not seen")
    assert capfd.readouterr() == ("", "")
    assert (logging.root.handlers, logging.root.manager.disable) == ([], level)
    with pytest.warns(UserWarning, match="seen again"):
        warnings.warn("seen again", stacklevel=1)
