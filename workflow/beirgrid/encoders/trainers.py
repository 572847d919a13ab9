"""What training a cross-encoder and adapting a dense model share: arguments of trainers, and progress in the log."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from ..core.compute import Runtime
from ..core.progress import Progress


def arguments(trainer: Any, folder: Path, recipe: Any, runtime: Runtime, precision: str, **options: Any) -> Any:
    """Build the arguments of a trainer on the runtime's device alone: the library would use all GPUs that it sees.

    Args:
        trainer: class of the trainer.
        recipe: has ``epochs``, ``batch``, ``learning_rate`` and ``seed``.
        precision: format of matrix products, not ``auto``.
    """

    class OnOneDevice(trainer.training_args_class):  # type: ignore[misc]
        @cached_property
        def _setup_devices(self) -> Any:
            device = super()._setup_devices
            if runtime.kind == "cuda":
                device = torch.device(runtime.device)
                self._n_gpu = 1
                torch.cuda.set_device(device)
            return device

    return OnOneDevice(
        output_dir=str(folder),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch,
        learning_rate=recipe.learning_rate,
        seed=recipe.seed,
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
