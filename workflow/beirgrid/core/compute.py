"""Where models run and how: the device that a process holds, the precision, and how many tokens a batch has."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from .errors import BeirgridError, DataError, say

if TYPE_CHECKING:
    from filelock import BaseFileLock

Kind = Literal["cpu", "cuda"]
Kernels = Literal["auto", "plain"]


# What the drivers of GPUs make: those of NVIDIA and AMD.
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")


def has_gpu_driver() -> bool:
    """Tell whether this machine has the driver of a GPU, without PyTorch, which takes seconds to load."""
    return any(map(os.path.exists, _DRIVERS))


class TokenBudget(NamedTuple):
    """Tokens per batch, padding included, by device. On a CPU small batches are as fast as larger ones."""

    cpu: int = 2048
    cuda: int = 65536

    def __str__(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def parse(cls, text: str) -> TokenBudget:
        """Read ``{"cpu": 2048, "cuda": 65536}``; a device that is left out keeps its default."""
        try:
            tokens = cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object such as {cls()}") from error
        if any(type(count) is not int or count < 1 for count in tokens):
            raise argparse.ArgumentTypeError(f"{text!r}: a batch has at least one token")
        return tokens


BATCH_TOKENS = TokenBudget()


@dataclass(frozen=True)
class Compute:
    """How a command runs its models. ``start`` chooses the device."""

    device: Annotated[Literal["auto", "cpu", "cuda"], "where models run; auto takes a GPU if there is one"] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "number format of matrix products; auto is float32 on a CPU and 16 bits on a GPU",
    ] = "auto"
    batch_tokens: Annotated[TokenBudget, TokenBudget.parse, "tokens per batch, padding included, by device, JSON"] = (
        BATCH_TOKENS
    )

    kernels: Annotated[Kernels, "plain: documented functions of PyTorch, transformers and faiss alone"] = "auto"
    connection: Annotated[str, "how the server of an endpoint is reached, JSON"] = ""

    def start(self) -> Runtime:
        """Choose a device and hold it until the runtime is closed or the process ends.

        Of several GPUs, the runtime takes one that no other command of this user has.

        Raises:
            DataError: the device is cuda, but PyTorch can use no GPU.
        """
        gpu = _choose_gpu() if self.device != "cpu" else None
        if self.device == "cuda" and gpu is None:
            raise DataError(
                "device is cuda, but no GPU can be used here (device: auto uses the CPU if there is no GPU)"
            )
        how = self.kernels, self.connection
        if gpu is None:
            return Runtime("cpu", self.precision, self.batch_tokens.cpu, None, *how)
        return Runtime(f"cuda:{gpu.number}", self.precision, self.batch_tokens.cuda, gpu.lock, *how)


@dataclass(frozen=True)
class Runtime:
    """A device that this process holds, and how models run on it.

    Attributes:
        device: PyTorch's name of the device: ``cpu``, ``cuda:1``, …
        precision: format of matrix products that models have if their entries name none; ``auto`` is not resolved yet.
        batch_tokens: tokens per batch, padding included.
        kernels: whether faster forms of documented functions may be used.
        lock: keeps other commands from the GPU; a CPU, or the only GPU, has none.
        connection: how the server of an endpoint is reached, JSON.
    """

    device: str
    precision: str
    batch_tokens: int
    lock: BaseFileLock | None = None
    kernels: Kernels = "auto"
    connection: str = ""

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other commands use the GPU."""
        if self.lock is not None:
            self.lock.release()

    @property
    def kind(self) -> Kind:
        """The kind of the device, as torch.autocast takes it."""
        return "cpu" if self.device == "cpu" else "cuda"

    @property
    def hardware(self) -> str:
        """The name of the GPU, or ``cpu``, for records."""
        import torch

        return torch.cuda.get_device_name(self.device) if self.kind == "cuda" else "cpu"

    def resolve(self, precision: str | None = None) -> str:
        """Return a precision, or else the runtime's own.

        For ``auto`` that is float32 on a CPU. On a GPU it is float16, for models whose numbers fit into it.
        """
        if not self.automatic(precision):
            return precision or self.precision
        # On a CPU, numbers should not depend on the machine: only some CPUs multiply bfloat16.
        return "float32" if self.kind == "cpu" else "float16"

    def resolve_training(self, precision: str | None = None) -> str:
        """Return the precision of training. For ``auto`` it is never float16, because gradients have a wide range."""
        if self.automatic(precision) and self.kind == "cuda":
            return self.wide
        return self.resolve(precision)

    def automatic(self, precision: str | None = None) -> bool:
        """Return whether neither a model's entry, which may have a precision, nor the command names one."""
        return (precision or self.precision) == "auto"

    @property
    def wide(self) -> str:
        """The fastest precision with the range of float32: bfloat16 where the hardware multiplies it, or float32."""
        return "bfloat16" if multiplies_bfloat16(self.device) else "float32"


def multiplies_bfloat16(device: str) -> bool:
    """Return whether the hardware behind PyTorch's name of a device multiplies matrices in bfloat16."""
    import torch

    if device == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported())
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


class Gpu(NamedTuple):
    """A GPU by its number among those that PyTorch sees, and the lock that keeps it, if there are several."""

    number: int
    lock: BaseFileLock | None = None


def _choose_gpu() -> Gpu | None:
    """Return a GPU for this process, or None where PyTorch has none."""
    import torch

    if (count := torch.cuda.device_count()) < 2:
        return Gpu(0) if torch.cuda.is_available() else None
    # Locks have the names of CUDA_VISIBLE_DEVICES, since processes may see different GPUs under the same number.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return take_gpu([name.strip() for name in visible.split(",")][:count])  # CUDA stops at a name that no GPU has


def take_gpu(names: list[str]) -> Gpu:
    """Take the first GPU that no other command of this user has; where all are taken, share one.

    Without locks, the jobs of a machine with several GPUs (``--resources gpu=N``) would all use the first.

    Args:
        names: the GPUs that PyTorch sees, as CUDA_VISIBLE_DEVICES names them.
    """
    from filelock import FileLock, Timeout

    folder = _runtime_folder()
    for number, name in enumerate(names):
        lock = FileLock(folder / f"gpu-{name.replace(os.sep, '--')}.lock")  # a part of a GPU is MIG-GPU-…/1/0
        try:
            lock.acquire(blocking=False)
        except (Timeout, PermissionError):  # another command has the GPU, or another user's lock stands there
            continue
        return Gpu(number, lock)
    shared = os.getpid() % len(names)
    message = f"other stages have all {len(names)} GPUs: sharing GPU {names[shared]} with one"
    say(message)
    return Gpu(shared)


def _runtime_folder() -> Path:
    """Return the folder of this user's locks, and create it if it is missing.

    Raises:
        BeirgridError: the folder is another user's, who could hold the locks for ever.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    if runtime.is_dir() and runtime.stat().st_uid == os.getuid():  # under sudo, the folder is the other user's
        folder = runtime / "beirgrid"
    else:
        folder = Path(tempfile.gettempdir()) / f"beirgrid-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise BeirgridError(f"{folder} is another user's: remove it, or set TMPDIR to a folder of your own")
    return folder
