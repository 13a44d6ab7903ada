"""The ranks of a job: processes that do one piece of work together, started by torchrun or by `--devices`.

Everything that ranks exchange goes through `Ranks`: rows of tensors, sums, and values as JSON. A program that was not
started as one of several ranks is a job of one, which exchanges nothing and never imports torch for it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from diptych.errors import DiptychError, RankError, one_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Value = TypeVar("Value")

# A rank that ends closes its connections, which the others notice at once. Some wait for hours while one prepares.
_TIMEOUT = timedelta(days=7)

_RELEASED = 0.5  # seconds

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun


@dataclass(frozen=True)
class Ranks:
    """This process, number `rank` of `count`. All ranks must call the methods below in the same order."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """The ranks that this process has joined, or a job of one."""
        if "WORLD_SIZE" not in os.environ:
            return ALONE
        from torch import distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return ALONE
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and reports."""
        return self.rank == 0

    def share(self, items: int, rank: int | None = None) -> slice:
        """The consecutive items of this rank, or of another one: all have as many, up to one more."""
        number = self.rank if rank is None else rank
        return slice(number * items // self.count, (number + 1) * items // self.count)

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows of each rank; their number may differ, and so may the other sizes, which zeros fill up."""
        if self.count == 1:
            return [rows]
        import torch

        shapes = self._gather_equal(torch.tensor(rows.shape, device=rows.device))
        if all(torch.equal(shape, shapes[0]) for shape in shapes):
            return self._gather_equal(rows.contiguous())
        largest = torch.stack(shapes).max(0).values.tolist()
        padded = rows.new_zeros(largest)
        padded[tuple(map(slice, rows.shape))] = rows
        return [part[: int(shape[0])] for part, shape in zip(self._gather_equal(padded), shapes, strict=True)]

    def all_rows(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, in the order of the ranks."""
        if self.count == 1:
            return rows
        import torch

        return torch.cat(self.gather(rows))

    def _gather_equal(self, tensor: Tensor) -> list[Tensor]:
        import torch
        from torch import distributed

        exchanged = tensor.to(self._device())
        parts = [torch.empty_like(exchanged) for _ in range(self.count)]
        with _lost_ranks():
            distributed.all_gather(parts, exchanged)
        return [part.to(tensor.device) for part in parts]

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks."""
        if self.count > 1:
            from torch import distributed

            exchanged = tensor.to(self._device())
            with _lost_ranks():
                distributed.all_reduce(exchanged)
            _copy(exchanged, tensor)
        return tensor

    def broadcast_(self, tensor: Tensor, rank: int = 0) -> Tensor:
        """Replace a tensor by that of one rank, by default the first."""
        if self.count > 1:
            from torch import distributed

            exchanged = tensor.to(self._device())
            with _lost_ranks():
                distributed.broadcast(exchanged, rank)
            _copy(exchanged, tensor)
        return tensor

    def gather_numbers(self, *numbers: int) -> list[list[int]]:
        """The integers of each rank, of which all have as many."""
        if self.count == 1:
            return [list(numbers)]
        import torch

        return [part.tolist() for part in self._gather_equal(torch.tensor(numbers, device=self._device()))]

    def gather_values(self, value: Any) -> list[Any]:
        """The value of each rank; values are exchanged as JSON."""
        if self.count == 1:
            return [value]
        import torch

        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        return [json.loads(part.cpu().numpy().tobytes()) for part in self.gather(text.to(self._device()))]

    def of_first(self, work: Callable[[], Value]) -> Value:
        """What the first rank has computed, as JSON can hold it; the others wait for it."""
        value: Value = self.gather_values(work() if self.is_first else None)[0]
        return value

    def _device(self) -> torch.device:
        """Where values are exchanged: nccl knows only the tensors of GPUs."""
        import torch
        from torch import distributed

        return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")

    def wait(self) -> None:
        """Wait until all ranks have come here."""
        self.gather_values(None)

    def together(self, work: Callable[[], Value]) -> Value:
        """The result of some work; if it fails on any rank, it fails on all of them, with one message."""
        with self.all_or_none():
            return work()

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """If the block fails on any rank, let it fail on all of them, with one message."""
        if self.count == 1:
            yield
            return
        try:
            yield
        except BaseException as error:
            self.gather_values(_told(error))
            raise
        errors = self.gather_values(None)
        failed = next((rank for rank, message in enumerate(errors) if message is not None), None)
        if failed is not None:
            raise RankError(f"rank {failed}: {errors[failed]}")

    def first_alone(self, work: Callable[[], Value]) -> Value:
        """Let the first rank do some work, and then all others at once, which find what it has left on disk."""
        if self.is_first:
            value = self.together(work)
            self.together(lambda: None)
            return value
        self.together(lambda: None)
        return self.together(work)

    def in_step(self, steps: Iterator[None], count: int, interrupted: threading.Event) -> None:
        """Take the steps of this rank, of which no rank has more than `count`.

        After each step the ranks tell each other whether to go on: if one has failed, the others raise a RankError, and
        if one was interrupted, all raise KeyboardInterrupt.
        """
        for _ in range(count):
            self.together(lambda: next(steps, None))
            if any(number for (number,) in self.gather_numbers(int(interrupted.is_set()))):
                raise KeyboardInterrupt

    def must_agree(self, values: dict[str, Any]) -> None:
        """Raise a RankError on all ranks that names the first of the values in which any rank differs."""
        everything = self.gather_values(values)
        for name in everything[0]:
            for rank, theirs in enumerate(everything):
                if theirs.get(name) != everything[0][name]:
                    raise RankError(
                        f"rank {rank} has {name} {theirs.get(name)}, and rank 0 has {everything[0][name]}; start all "
                        "ranks with the same command, data and version"
                    )


def _told(error: BaseException) -> str:
    """What the other ranks are told of an error."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return "interrupted"
    return str(error) if isinstance(error, DiptychError) else one_line(error)


def _copy(exchanged: Tensor, tensor: Tensor) -> None:
    if exchanged is not tensor:
        tensor.copy_(exchanged)


ALONE = Ranks()


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """Join the other ranks of this job, if torchrun or `--devices` has started several, until the block ends."""
    if not is_rank():
        yield ALONE
        return
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise RankError(f"the environment variable {missing[0]} is not set; start the ranks with torchrun or --devices")
    import torch
    from torch import distributed

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    try:
        distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=_TIMEOUT)
    except (RuntimeError, ValueError) as reason:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise RankError(f"cannot join the other ranks at {address} ({_first_line(reason)})") from None
    ranks = Ranks.current()
    try:
        yield ranks
        ranks.wait()  # a rank that leaves takes connections with it that others may still need
    finally:
        distributed.destroy_process_group()
        # gloo's threads release what was exchanged last a moment later. If Python ends in that moment, the process
        # ends with SIGABRT (pytorch/pytorch#190489).
        time.sleep(_RELEASED)


def is_rank() -> bool:
    """Whether this process was started as one of several ranks."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def local_device(device: str) -> str:
    """The device of this rank: if several ranks share a machine with GPUs, each takes one of its own."""
    local = os.environ.get("LOCAL_RANK")
    if local is None or device not in ("auto", "cuda") or not is_rank():
        return device
    import torch

    return f"cuda:{local}" if torch.cuda.is_available() else device


@contextmanager
def _lost_ranks() -> Iterator[None]:
    """Say in one line that another rank has ended, whatever the library says of the connection."""
    try:
        yield
    except RuntimeError as reason:
        why = "" if "peer" in str(reason) else f" ({_first_line(reason)})"
        raise RankError(
            f"another rank has ended{why}; what was saved is complete: "
            "run the same command again (to train: with --resume)"
        ) from None


def _first_line(reason: Exception) -> str:
    return str(reason).strip().splitlines()[0][:160] if str(reason).strip() else type(reason).__name__
