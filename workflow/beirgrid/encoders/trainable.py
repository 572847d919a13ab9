"""Set up trainers: one GPU (the libraries would use all visible ones), and progress in the log."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from transformers import TrainerCallback

from ..core.compute import Runtime
from ..core.progress import Progress


def arguments(kind: Any, runtime: Runtime, precision: str, **options: Any) -> Any:
    """Build the arguments of a trainer on the runtime's device.

    Args:
        kind: a subclass of transformers' TrainingArguments.
        precision: format of matrix products, not ``auto``.
    """

    class OnOneDevice(kind):  # type: ignore[misc]
        @cached_property
        def _setup_devices(self) -> Any:
            device = super()._setup_devices
            if runtime.kind == "cuda":
                # The library would use cuda:0 and spread batches over all visible GPUs.
                device, self._n_gpu = torch.device(runtime.device), 1
                torch.cuda.set_device(device)
            return device

    return OnOneDevice(
        bf16=precision == "bfloat16",
        fp16=precision == "float16",
        use_cpu=runtime.kind == "cpu",
        report_to="none",
        disable_tqdm=True,
        **options,
    )


class TrainingSteps(TrainerCallback):  # type: ignore[misc]
    """A callback of trainers that logs the progress of their steps."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start to count."""
        self.progress = Progress("train", state.max_steps - state.global_step, "steps")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step."""
        self.progress.add(1)
