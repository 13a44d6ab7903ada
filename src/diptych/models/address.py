"""The files of a model on disk: where they are, and the digest that identifies the model. Nothing here needs torch."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import diptych
from diptych.errors import RunError, did_you_mean
from diptych.files import file_hash
from diptych.models.export.exported import CARD, Exported, exported_files
from diptych.text.tokenisers.stored import FILES, tokeniser_file

STARTER = "starter"  # the model that comes with the package


def run_folder(address: str | Path) -> Path:
    """The folder of a run; `starter` is the package's own, unless the working directory has a run of that name."""
    folder = Path(address)
    if str(address) == STARTER and tokeniser_file(folder) is None:
        return Path(diptych.__file__).parent / STARTER
    return folder


@dataclass(frozen=True)
class ModelFiles:
    """The folder of a run or of an export, which is checked for completeness, and the files that make up the model."""

    address: str
    folder: Path
    paths: tuple[Path, ...]
    is_export: bool
    _stamps: tuple[tuple[int, int], ...] = field(repr=False)

    @classmethod
    def find(cls, address: str | Path, snapshot: str = "best") -> ModelFiles:
        """Find the files at an address; an incomplete folder is an error that says what is missing."""
        folder = run_folder(address)
        if (folder / CARD).is_file():
            names: tuple[str, ...] = (*exported_files(folder), CARD)
        else:
            weights = f"{snapshot}/weights.safetensors"
            names = (_check_run(folder, weights).name, weights)
        folder = folder.absolute()  # the working directory may change before the files are opened
        paths = tuple(folder / name for name in names)
        return cls(str(address), folder, paths, names[-1] == CARD, _stamps(paths))

    def identity(self) -> str:
        """What tells the model from every other; an export has the identity of its run."""
        self.check_unchanged()
        if self.is_export:
            return Exported.read_card(self.folder).identity
        try:
            tokeniser, weights = map(file_hash, self.paths)
        except OSError as reason:
            raise RunError(f"{self.address}: cannot be read ({reason.strerror or reason})") from None
        return hashlib.sha256(f"{weights}\0{tokeniser}".encode("ascii")).hexdigest()

    def check_unchanged(self) -> None:
        """Refuse files that were replaced since they were found: weights and identity would not belong together."""
        if _stamps(self.paths) != self._stamps:
            raise RunError(f"{self.address}: changed while it was opened; run the command again")

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
