import pytest

from diptych.errors import RunError
from diptych.models.package_weights import PackageWeights


def test_other_weights_are_refused_with_the_version_to_install(tmp_path):
    installed = PackageWeights("some-package", "1.2", "abc")
    installed.check("abc", "1.0", tmp_path)  # the same weights in another version
    with pytest.raises(
        RunError, match=r"needs the weights of some-package==0\.9, .* 1\.2 has others; run: pip install"
    ):
        installed.check("def", "0.9", tmp_path)
    with pytest.raises(RunError, match=r"run: pip install 'some-package'$"):
        installed.check(None, None, tmp_path)
