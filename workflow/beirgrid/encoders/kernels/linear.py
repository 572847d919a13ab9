"""Linear layers for CPUs, with weights stored in oneDNN's blocked layout.

PyTorch's own layers reorder the weights for each product. A GELU or ReLU after a layer is fused into it, while the sums
are in the processor's cache.

``torch.compile`` calls the same operations, but PyTorch does not document them. So the lock file pins PyTorch, and a
test compares their products with float64.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import torch
from transformers.activations import GELUActivation

from ...core.compute import multiplies_bfloat16

# Number of rows for which the layout is chosen; other numbers work as well.
_ROWS = 2048
# Attributes of transformers' modules: a layer, and the activation of its outputs.
_FOLLOWED = (("dense", "intermediate_act_fn"), ("lin1", "activation"), ("wi", "act"))


def reorders(dtype: torch.dtype) -> bool:
    """Tell whether oneDNN has its own layout for weights of this type on this machine."""
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and multiplies_bfloat16("cpu"))


def reorder_all(layers: list[torch.nn.Linear], compute: Callable[[], object]) -> None:
    """Reorder the weights of a model's layers, unless the model accesses them directly
    (``torch.nn.MultiheadAttention``).

    Args:
        compute: runs the model on a text. If it fails, all weights are restored.
    """
    if not (reordered := [layer for layer in layers if reorders(layer.weight.dtype)]):
        return
    for layer in reordered:
        reorder(layer)
    try:
        compute()
    except Exception:  # any other error is raised again by the first batch
        for layer in reordered:
            restore(layer)


def restore(layer: torch.nn.Linear) -> None:
    """Put the weights of a layer back into PyTorch's order."""
    layer.weight = torch.nn.Parameter(layer.weight.detach().to_dense(), requires_grad=False)
    del layer.forward


def reorder(layer: torch.nn.Linear) -> None:
    """Replace a layer's weights by a copy in oneDNN's layout."""
    if not reorders(layer.weight.dtype):
        return
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.forward = _product(layer, "none")  # type: ignore[assignment,method-assign]


def _product(layer: torch.nn.Linear, activation: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the forward function of a reordered layer with an activation: "none", "gelu" or "relu"."""
    weight = layer.weight.detach()
    bias = None if layer.bias is None else layer.bias.detach()
    multiply = torch.ops.mkldnn._linear_pointwise

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = multiply(inputs.to(weight.dtype), weight, bias, activation, [], "none")
        return result

    return forward


def fuse_activations(model: torch.nn.Module) -> None:
    """Fuse GELU or ReLU into the reordered layers before them, replacing transformers' activations.

    A checkpoint's own modules may compute something between layer and activation, so they are left unchanged.
    """
    for module in model.modules():
        if not type(module).__module__.startswith("transformers."):
            continue
        for name, activation_name in _FOLLOWED:
            layer = getattr(module, name, None)
            activation = _fused(getattr(module, activation_name, None))
            if activation and isinstance(layer, torch.nn.Linear) and layer.weight.is_mkldnn:
                layer.forward = _product(layer, activation)  # type: ignore[assignment,method-assign]
                setattr(module, activation_name, torch.nn.Identity())


def _fused(activation: Any) -> str | None:
    """Return oneDNN's name of an activation, or None if it has no equal one."""
    if type(activation) is GELUActivation and activation.act is torch.nn.functional.gelu:
        return "gelu"
    return "relu" if type(activation) is torch.nn.ReLU else None
