"""Decide whether a model can run in float16, whose largest number is 65,504.

float16 rounds eight times finer than bfloat16, which has float32's range. If no precision is configured, a GPU computes
in float16 if the model's activations fit. ``fits`` decides this from fixed probe texts when the model is opened, so all
shards of a corpus and its queries get the same precision. A text that overflows nevertheless is computed again in
bfloat16 (``LoadedModel.compute``).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..core.errors import warn

if TYPE_CHECKING:
    import torch

LARGEST = 65504.0
# Headroom: activations of other texts may be this many times larger than those of the probes.
HEADROOM = 4.0
# Tokens of the longest probe.
LENGTH = 256
PROBES = (
    "a",
    "What does the thyroid gland regulate?",
    "In 1969, Apollo 11 (NASA) landed on the Moon: 21.6 kg of rocks, 384,400 km from home; see https://a.org/b?c=1. "
    * 9,
    "0 1 2 3 4 5 6 7 8 9 % & * ( ) [ ] { } < > = + - _ / | ~ # @ ! ? « » é ü ß 中 文 д ж ا ب " * 4,
)


def fits(transformer: Any, tokenizer: Any, kind: str) -> bool:
    """Tell whether all float16 activations of a transformer leave headroom on the probes.

    Sequence-to-sequence models and T5 encoders never fit: T5 overflows on texts that no short probe represents.

    Args:
        transformer: a model of transformers, in evaluation mode; its weights are float32.
        tokenizer: the model's tokenizer.
        kind: the device, as torch.autocast takes it.
    """
    import torch

    config = transformer.config
    if config.is_encoder_decoder or "t5" in config.model_type:
        return False
    device = next(transformer.parameters()).device
    layers = [layer for layer in transformer.modules() if not any(layer.children())]
    largest = [layer.weight.detach().abs().amax() for layer in layers if isinstance(layer, torch.nn.Linear)]

    def look(layer: Any, inputs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            largest.append(output.abs().amax())

    hooks = [layer.register_forward_hook(look) for layer in layers]
    length = min(
        LENGTH, (getattr(config, "max_position_embeddings", None) or LENGTH) - 2
    )  # RoBERTa's positions start at 2
    try:
        with torch.inference_mode(), torch.autocast(kind, dtype=torch.float16):
            for probe in PROBES:
                ids = tokenizer(probe, truncation=True, max_length=length, verbose=False)["input_ids"]
                found = transformer(input_ids=torch.tensor([ids], device=device))
                largest.append(found[0].abs().amax())
    finally:
        for hook in hooks:
            hook.remove()
    # The comparison is written so that NaN does not fit.
    return bool(torch.stack([number.float() for number in largest]).max() * HEADROOM <= LARGEST)


class Overflows:
    """Counts the texts that overflow float16.

    Attributes:
        texts: number of such texts.
    """

    def __init__(self) -> None:
        self.texts = 0
        self._lock = threading.Lock()

    def add(self, texts: int) -> None:
        """Count texts, and log the first time."""
        with self._lock:
            if not self.texts:
                warn(
                    "some activations of the model overflow float16: these texts are computed in bfloat16 (to "
                    "compute all texts in bfloat16, set precision: bfloat16 in the model's entry)"
                )
            self.texts += texts


def finite_rows(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Tell for each text whether its results are finite: bool [texts]."""
    import torch

    finite = [result.flatten(1).isfinite().all(1) if result.ndim > 1 else result.isfinite() for result in results]
    return torch.stack(finite).all(0)
