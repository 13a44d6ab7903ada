"""The files of a model on disk: where they are, and the digest that identifies the model.

An address is the folder of a run or of an export, `starter`, or the address of a pretrained pair. Nothing here needs
torch, except a pair, whose library does.
"""

from __future__ import annotations

import difflib
import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import diptych
from diptych.errors import RunError, did_you_mean
from diptych.files import file_hash
from diptych.models.export.exported import CARD, GRAPHS, WEIGHTS, Exported, exported_files
from diptych.models.pretrained_pairs import hub
from diptych.models.pretrained_pairs.find import find_pair, is_pair, pair_name
from diptych.models.pretrained_pairs.source import PairSource
from diptych.text.tokenisers.stored import FILES, tokeniser_file

STARTER = "starter"  # the model that comes with the package


def run_folder(address: str | Path) -> Path:
    """The folder of a run; `starter` is the package's own, unless the working directory has a run of that name."""
    folder = Path(address)
    if str(address) == STARTER and tokeniser_file(folder) is None:
        return Path(diptych.__file__).parent / STARTER
    return folder


def names_pair(address: str | Path) -> bool:
    """Whether an address is that of a pretrained pair; a folder with a run or an export in it is not."""
    folder = run_folder(address)
    return tokeniser_file(folder) is None and not (folder / CARD).is_file() and is_pair(address)


class LoadOptions(TypedDict, total=False):
    """How the files of a model are found; see `ModelFiles.find`."""

    snapshot: str
    download: bool


def address_name(address: str | Path) -> str:
    """A short name for what is at an address, for tables."""
    return pair_name(address) if names_pair(address) else Path(address).name


@dataclass(frozen=True)
class ModelFiles:
    """The folder of a run or of an export, which is checked for completeness, and the files that make up the model.

    `graphs` is the folder with ONNX graphs, if any: that of an export, or that of the weights of a run which was
    exported in place. `pair` is what was found at the address of a pretrained pair; it has no folder of a run.
    """

    address: str
    folder: Path
    paths: tuple[Path, ...]
    _stamps: tuple[tuple[int, int], ...] = field(repr=False)
    graphs: Path | None = None
    pair: PairSource | None = None

    @classmethod
    def find(cls, address: str | Path, snapshot: str = "best", *, download: bool = False) -> ModelFiles:
        """Find the files at an address; an incomplete folder is an error that says what is missing.

        With `download`, files of a pair that the user's cache does not have are fetched from the hub.
        """
        if names_pair(address):
            with hub.downloads(download):
                pair = find_pair(address)
            files = tuple(file.absolute() for file in (*pair.weights, *pair.files))
            return cls(str(address), files[0].parent, files, _stamps(files), pair=pair)
        folder = run_folder(address)
        graphs: Path | None = None
        if (folder / CARD).is_file():
            names, graphs = (*exported_files(folder), CARD), folder.absolute()
        else:
            weights = f"{snapshot}/{WEIGHTS}"
            names = (_check_run(folder, weights).name, weights)
            if (folder / snapshot / CARD).is_file():
                graphs = (folder / snapshot).absolute()
                names = (*names, *(f"{snapshot}/{name}" for name in (*GRAPHS, CARD) if (graphs / name).is_file()))
        folder = folder.absolute()  # the working directory may change before the files are opened
        paths = tuple(folder / name for name in names)
        return cls(str(address), folder, paths, _stamps(paths), graphs)

    @property
    def name(self) -> str:
        """The name of the run, the export or the pair."""
        return self.folder.resolve().name if self.pair is None else pair_name(self.address)

    @property
    def is_export(self) -> bool:
        """Whether there are only graphs, without the torch weights that they were made from."""
        return self.graphs == self.folder

    def identity(self) -> str:
        """What tells the model from every other; an export has the identity of its run."""
        self.check_unchanged()
        if self.is_export:
            return Exported.read_card(self.folder).identity
        try:
            if self.pair is not None:
                return self.pair.identity()
            tokeniser, weights = map(file_hash, self.paths[:2])
        except OSError as reason:
            raise RunError(f"{self.address}: cannot be read ({reason.strerror or reason})") from None
        return hashlib.sha256(f"{weights}\0{tokeniser}".encode("ascii")).hexdigest()

    def copy(self, into: Path) -> None:
        """Copy the files of a run or an export into a folder."""
        for file in self.paths:
            target = into / file.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)

    def check_unchanged(self) -> None:
        """Refuse files that were replaced since they were found: weights and identity would not belong together."""
        if _stamps(self.paths) != self._stamps:
            raise RunError(f"{self.address}: changed while it was opened; run the command again")

    def check_graphs(self, identity: str) -> None:
        """Refuse graphs that were made in a run whose weights, which have this identity, are other ones now."""
        if self.graphs is not None and Exported.read_card(self.graphs).identity != identity:
            raise RunError(
                f"{self.graphs / CARD}: made of other weights than those beside it; make it again: "
                f"diptych export {self.address} --onnx --in-place"
            )

    def check_is_run(self) -> None:
        """Refuse an export where torch weights are needed."""
        if self.is_export:
            raise RunError(f"{self.address}: an ONNX export has no torch weights; name the run that it was made from")


def _check_run(folder: Path, weights: str) -> Path:
    """The file of a run's tokeniser, after checking that nothing is missing."""
    if not folder.is_dir():
        hint = f"train one with `diptych train RECIPE DATA --into {folder}`"
        close = difflib.get_close_matches(str(folder), [STARTER])
        raise RunError(f"{folder}: no such run; {f'did you mean {STARTER!r}?' if close else hint}")
    tokeniser = tokeniser_file(folder)
    if tokeniser is None:
        raise RunError(f"{folder}: not a run: it has no {' or '.join(FILES)}; name a folder that `diptych train` made")
    if not (folder / "best").exists() and (folder / "last").is_dir():
        raise RunError(f"{folder}: no epoch has ended, so it has no model yet; continue its training with --resume")
    if not (folder / weights).is_file():
        if snapshots := [file.parent.name for file in folder.glob(f"*/{Path(weights).name}")]:
            snapshot = Path(weights).parent.name
            raise RunError(f"{folder}: no snapshot {snapshot!r}; {did_you_mean(snapshot, snapshots)}")
        raise RunError(f"{folder / weights}: no such file; is this the folder of a run?")
    return tokeniser


def _stamps(paths: tuple[Path, ...]) -> tuple[tuple[int, int], ...]:
    """Size and modification time of each file; (-1, -1) for one that is not there."""
    stamps = []
    for path in paths:
        try:
            status = path.stat()
            stamps.append((status.st_size, status.st_mtime_ns))
        except OSError:
            stamps.append((-1, -1))  # whoever opens it says what is wrong
    return tuple(stamps)
