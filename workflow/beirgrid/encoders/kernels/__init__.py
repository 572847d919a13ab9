"""Faster replacements of PyTorch and transformers functions, behind the switch ``kernels``.

Results differ from the documented functions by rounding. With ``kernels: plain`` (``Runtime.kernels``), none is used.
``docs/performance.md`` lists the gain of each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ...core.compute import Runtime

if TYPE_CHECKING:
    import torch

    from .maxima import Maxima


def fuse_layers(
    runtime: Runtime,
    transformer: Any,
    layers: list[torch.nn.Linear],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> None:
    """Store the weights of linear layers in oneDNN's layout on a CPU, and fuse the activations that follow.

    Args:
        runtime: the device and the choice of kernels.
        transformer: the model.
        layers: the layers.
        autocast: returns the autocast context.
    """
    if runtime.kernels == "plain" or runtime.kind != "cpu":
        return
    import torch

    from . import linear

    core = transformer.get_encoder() if transformer.config.is_encoder_decoder else transformer.base_model
    with torch.inference_mode(), autocast():
        linear.reorder_all(layers, lambda: core(input_ids=torch.tensor([[0, 1, 2]])))
    linear.fuse_activations(transformer)


def narrow_last_layer(
    runtime: Runtime,
    transformer: Any,
    read: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> bool:
    """Narrow the last layer to the first token of each text if nothing else is read (``last_layer``).

    Returns:
        whether the layer was narrowed.
    """
    from . import last_layer

    return runtime.kernels == "auto" and last_layer.narrow(transformer, read, autocast)


def term_maxima(runtime: Runtime, terms: torch.Tensor, bias: torch.Tensor | None = None) -> Maxima:
    """Return a function for the largest product of each term with a text's tokens, in blocks of terms (``maxima``)."""
    from .maxima import Maxima

    return Maxima(terms, bias, reorder=runtime.kernels == "auto")
