"""Where the engines of a model at an address come from: ONNX graphs on the CPU if there are any, and torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from typing_extensions import Unpack

from diptych.errors import DiptychError
from diptych.features.choices import Quality
from diptych.machine import device_kind
from diptych.models.address import LoadOptions, ModelFiles
from diptych.models.engines.engine import Engine
from diptych.optional import needs_train

if TYPE_CHECKING:
    from diptych.models.engines.torch_engine import TorchEngine


class ModelOptions(LoadOptions, total=False):
    """How the files of a model are found, and the quality of the images that it encodes."""

    quality: Quality


@dataclass(frozen=True)
class EngineSource:
    """The files of a model, and what they are to be run on.

    `stores` is an optional folder of feature stores to read the features of a corpus from; `quality` is that of images
    that are encoded one by one.
    """

    files: ModelFiles
    device: str = "auto"
    snapshot: str = "best"
    stores: Path | None = None
    quality: Quality = "best"

    def __post_init__(self) -> None:
        if self.quality not in get_args(Quality):
            raise DiptychError(f"quality {self.quality!r}: choose one of {', '.join(get_args(Quality))}")
        if not self._on_cpu and self.files.is_export:
            raise DiptychError(
                f"{self.files.address}: an ONNX export runs on the CPU, not on {self.device!r}; use device 'cpu'"
            )

    @classmethod
    def find(
        cls, address: str | Path, device: str, stores: Path | None, **options: Unpack[ModelOptions]
    ) -> EngineSource:
        """The source of the model at an address."""
        snapshot = options.get("snapshot", "best")
        files = ModelFiles.find(address, snapshot, download=options.get("download", False))
        return cls(files, device, snapshot, stores, options.get("quality", "best"))

    @property
    def has_graphs(self) -> bool:
        """Whether there are graphs and the device can run them."""
        return self.files.graphs is not None and self._on_cpu

    @property
    def _on_cpu(self) -> bool:
        return device_kind(self.device) in ("auto", "cpu")

    @cached_property
    def identity(self) -> str:
        """The identity of the model."""
        return self.files.identity()

    def open_graphs(self) -> Engine:
        """The engine that runs the graphs, without torch."""
        from diptych.models.engines.onnx_engine import OnnxEngine

        assert self.files.graphs is not None
        self.files.check_unchanged()
        self.files.check_graphs(self.identity)
        return OnnxEngine.open(self.files.graphs, self.files.folder, self.quality)

    def open_torch(self) -> TorchEngine:
        """The torch engine; an export has none."""
        self.files.check_is_run()
        self.files.check_unchanged()
        with needs_train(str(self.files.address)):
            from diptych.models.engines.torch_engine import TorchEngine

            return TorchEngine.open(self.files, self.device, self.snapshot, self.stores, self.quality)
