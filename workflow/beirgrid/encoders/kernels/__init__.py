"""Faster forms of what PyTorch and transformers compute: encoders get them from here alone.

Numbers differ from those of the documented functions by rounding. With ``kernels: plain`` (``Runtime.kernels``), none
of these forms is used. ``docs/performance.md`` has what each one gains.
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
    """Store the weights of linear layers as oneDNN reads them on a CPU, and fuse the activations that follow them.

    Args:
        runtime: the device and the choice of kernels.
        transformer: the model.
        layers: the layers.
        autocast: returns the context in which the model computes.
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
    """Narrow the last layer to the first token of each text, where nothing else is read (``last_layer``).

    Returns:
        Whether the layer does.
    """
    from . import last_layer

    return runtime.kernels == "auto" and last_layer.narrow(transformer, read, autocast)


def term_maxima(runtime: Runtime, terms: torch.Tensor, bias: torch.Tensor | None = None) -> Maxima:
    """Return what finds the largest product of each term with a text's tokens, in blocks of terms (``maxima``)."""
    from .maxima import Maxima

    return Maxima(terms, bias, reorder=runtime.kernels == "auto")
