"""Choose a process's device, precision and tokens per batch."""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TextIO

from annotated_types import Ge

from .errors import DataError, say

Kind = Literal["cpu", "cuda"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Kernels = Literal["auto", "plain"]
GpuSearch = Literal["torch", "faiss"]
# Device files of the NVIDIA and AMD drivers.
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")


def has_gpu_driver() -> bool:
    """Tell whether a GPU driver is installed, without importing PyTorch, which takes seconds."""
    return any(map(os.path.exists, _DRIVERS))


@cache
def cpu_name() -> str:
    """Return the name of the processor, as Linux has it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.processor() or platform.machine())


class TokenBudget(NamedTuple):
    """Tokens per batch, padding included, by device."""

    cpu: Annotated[int, Ge(1)] = 2048
    cuda: Annotated[int, Ge(1)] = 65536


@dataclass(frozen=True)
class Compute:
    """Arguments of all stages that run a model. ``start`` chooses the device."""

    device: Annotated[Device, "where models run; auto takes a GPU if there is one"] = "auto"
    precision: Annotated[Precision, "number format of matrix products; auto: float32, or 16 bits on a GPU"] = "auto"
    batch_tokens: Annotated[TokenBudget, "tokens per batch, padding included, by device"] = field(
        default_factory=TokenBudget
    )
    kernels: Annotated[Kernels, "plain: only documented functions of PyTorch, transformers and faiss"] = "auto"
    gpu_search: Annotated[GpuSearch, "what multiplies vectors of queries and documents on a GPU"] = "torch"
    connection: Annotated[str, "connection settings of an endpoint's server, JSON"] = ""

    def start(self) -> Runtime:
        """Choose a device (``own_gpu``); raise DataError if it is to be cuda, and PyTorch can use no GPU."""
        number = None if self.device == "cpu" else own_gpu()[0]
        if self.device == "cuda" and number is None:
            raise DataError("device is cuda, but no GPU can be used here (auto uses the CPU if there is no GPU)")
        device = "cpu" if number is None else f"cuda:{number}"
        tokens = self.batch_tokens.cpu if number is None else self.batch_tokens.cuda
        return Runtime(device, self.precision, tokens, self.kernels, self.connection, self.gpu_search)


@dataclass(frozen=True)
class Runtime:
    """A device, with the settings for models on it.

    Attributes:
        device: PyTorch's device name: ``cpu``, ``cuda:1``, …
        precision: default format of matrix products for models whose entries name none; may be the unresolved ``auto``.
        batch_tokens: tokens per batch, padding included.
        kernels: ``plain`` rules out faster replacements of documented functions.
        connection: connection settings of an endpoint's server, JSON.
        gpu_search: library of the first pass of exact search on a GPU.
    """

    device: str
    precision: str
    batch_tokens: int
    kernels: Kernels = "auto"
    connection: str = ""
    gpu_search: GpuSearch = "torch"

    @property
    def kind(self) -> Kind:
        """The kind of the device, as torch.autocast takes it."""
        return "cpu" if self.device == "cpu" else "cuda"

    @property
    def hardware(self) -> str:
        """The name of the GPU, or ``cpu``, for records."""
        import torch

        return torch.cuda.get_device_name(self.device) if self.kind == "cuda" else "cpu"

    def resolve(self, precision: str | None = None, wide: bool = False) -> str:
        """Return ``precision``, or the runtime's default without one.

        On a GPU, ``auto`` means float16, or the range of float32 (``wide``) for models that overflow float16, for
        gradients and for writing texts.
        """
        if (asked := precision or self.precision) != "auto":
            return asked
        if self.kind == "cpu":  # only some CPUs multiply bfloat16, and results should not depend on the machine
            return "float32"
        return self.wide if wide else "float16"

    @property
    def wide(self) -> str:
        """The fastest precision with float32's range: bfloat16 where the hardware multiplies it, else float32."""
        return "bfloat16" if multiplies_bfloat16(self.device) else "float32"


def multiplies_bfloat16(device: str) -> bool:
    """Tell whether a device multiplies matrices in bfloat16 in hardware."""
    import torch

    if device == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported())
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


@cache
def own_gpu() -> tuple[int | None, TextIO | None]:
    """Lock the first GPU that no other command of this user holds until this process ends; share one if all are taken.

    Without locks, all jobs on a machine with several GPUs (``--resources gpu=N``) would use the first. Locks are named
    after CUDA_VISIBLE_DEVICES, because one index may mean different GPUs in different processes.

    Returns:
        PyTorch's index of the GPU, None without a GPU; and, of several GPUs, the locked file.

    Raises:
        DataError: the folder of the locks belongs to another user.
    """
    import torch

    if (count := torch.cuda.device_count()) < 2:
        return (0 if torch.cuda.is_available() else None), None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    names = [name.strip() for name in visible.split(",")][:count]  # CUDA stops at an unknown name
    folder = Path(tempfile.gettempdir(), f"beirgrid-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise DataError(f"{folder}, for locks of GPUs, belongs to another user: set TMPDIR to a folder of your own")
    for number, name in enumerate(names):
        lock = (folder / f"gpu-{name.replace('/', '--')}.lock").open("a")  # a MIG slice is named MIG-GPU-…/1/0
        with suppress(BlockingIOError):  # another command holds it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number, lock
    shared = os.getpid() % len(names)
    say(f"other stages hold all {len(names)} GPUs: sharing GPU {names[shared]} with one")
    return shared, None
