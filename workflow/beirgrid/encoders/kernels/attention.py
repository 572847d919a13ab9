"""Attention in bfloat16 by oneDNN's matrix products, for CPUs whose AVX-512 multiplies bfloat16 but that have no AMX.

PyTorch's own function takes as long in bfloat16 as in float32 there. Here, scores are rounded to bfloat16 before the
softmax, as in transformers' "eager" attention. One text is computed at a time, so its scores stay in the processor's
cache. The softmax is compiled by numba, because PyTorch's takes as long as both products together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.compiled import once
from ...core.environment import prepare_libraries
from .linear import reorders

if TYPE_CHECKING:
    import torch

NAME = "products_of_bfloat16"
# Tokens of a batch's longest text for which the products are clearly faster. The scores of more outgrow the cache.
_TOKENS = range(48, 1025)
_LOG2_E = 1.4426950408889634


def usable(precision: str) -> bool:
    """Tell whether the products are faster than PyTorch's attention on this CPU. With AMX, this was not measured."""
    import torch

    return precision == "bfloat16" and reorders(torch.bfloat16) and not torch.cpu._is_amx_tile_supported()


def use(transformer: Any) -> None:
    """Let a transformer call ``attend`` where it would call PyTorch's attention."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if transformer.config._attn_implementation != "sdpa" or not transformer._can_set_attn_implementation():
        return
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    transformer.set_attn_implementation(NAME)
    _softmax()  # compile it before the first batch


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as transformers does. Whatever is not an encoder's attention in bfloat16 is left to PyTorch's function.

    Args:
        module: the attention layer.
        query, key, value: [texts, heads, tokens, width]
        attention_mask: bool [texts, 1, tokens, tokens], or None
        scaling: factor of the scores.
        options: further arguments of transformers' function.

    Returns:
        [texts, tokens, heads, width], and no weights.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    lengths = _lengths(module, query, key, attention_mask, options)
    if lengths is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    softmax = _softmax()
    texts, heads, tokens, width = query.shape
    factor = np.float32(_LOG2_E * (width**-0.5 if scaling is None else scaling))
    scores = query.new_empty(heads, tokens, tokens)
    bits = scores.view(torch.int16).numpy().reshape(-1, tokens)
    result = query.new_empty(texts, tokens, heads, value.shape[-1])
    for text, length in enumerate(lengths):
        torch.bmm(query[text], key[text].transpose(1, 2), out=scores)
        softmax(bits, length, factor)
        result[text] = torch.bmm(scores, value[text]).transpose(0, 1)
    return result, None


@once
def _softmax() -> Any:
    """Compile the softmax of scores in bfloat16."""
    prepare_libraries()
    import numba

    # bfloat16 is the upper half of a float32. ``upper``, ``mantissa`` and ``sign`` are numbers of bits to shift by.
    half, upper, bias, mantissa = np.int32(0x8000), np.int32(16), np.int32(127), np.int32(23)
    sign, magnitude, lowest_order = np.int16(15), np.int16(0x7FFF), np.int16(-0x8000)
    zero, one, middle, lowest_power = np.float32(0), np.float32(1), np.float32(0.5), np.float32(-127)
    # 2^x is 1 + ax + bx² + cx³ for x from -0.5 to 0.5, with a relative error of 1e-4. bfloat16 rounds by up to 4e-3.
    a, b, c = np.float32(0.69328292), np.float32(0.24221063), np.float32(0.05500869)

    @numba.njit(
        "void(i2[:, ::1], i8, f4)", nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"}
    )
    def softmax(scores, tokens, factor):  # type: ignore[no-untyped-def]
        """Replace the first ``tokens`` scores of each row by the softmax, with base 2, of score · factor; others by 0.

        A row with NaN or infinity, or with -infinity alone, becomes NaN.

        Args:
            scores: the bits of bfloat16, [rows, columns].
            tokens: how many scores of a row count.
            factor: float32, positive.
        """
        weights = np.empty(scores.shape[1], np.float32)
        for number in range(len(scores)):
            row, largest = scores[number], lowest_order
            for at in range(tokens):  # the bits of negative numbers are in reverse order
                order = np.int16(row[at] ^ ((row[at] >> sign) & magnitude))
                largest = order if order > largest else largest
            largest = np.int16(largest ^ ((largest >> sign) & magnitude))
            most = np.int32(np.int32(largest) << upper).view(np.float32)
            total = zero
            for at in range(tokens):
                power = (np.int32(np.int32(row[at]) << upper).view(np.float32) - most) * factor
                power = lowest_power if power < lowest_power else power
                whole = np.floor(power + middle)
                rest = power - whole
                whole = whole if whole > lowest_power else lowest_power  # NaN has no integer; ``rest`` stays NaN
                scale = np.int32((np.int32(whole) + bias) << mantissa).view(np.float32)
                weights[at] = scale * (one + rest * (a + rest * (b + rest * c)))
                total += weights[at]
            for at in range(tokens):
                row[at] = np.int16((np.float32(weights[at] / total).view(np.int32) + half) >> upper)
            row[tokens:] = 0

    return softmax


def _lengths(
    module: Any, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, options: dict[str, Any]
) -> list[int] | None:
    """Return how many tokens of each text are not padding, or None if PyTorch's function must compute this attention.

    That is so for other types or numbers of tokens, shared heads, biases, causal attention, windows, and padding on the
    left.
    """
    import torch

    tokens = query.shape[2]
    if query.dtype != torch.bfloat16 or query.shape != key.shape or tokens not in _TOKENS:
        return None
    if options.get("dropout") or any(options.get(name) is not None for name in ("position_bias", "softcap")):
        return None
    if mask is None:
        causal = options.get("is_causal")
        return None if (getattr(module, "is_causal", True) if causal is None else causal) else [tokens] * len(query)
    if mask.dtype != torch.bool or mask.shape != (len(query), 1, tokens, tokens):
        return None
    counts = mask[:, :, :1].sum(-1, keepdim=True)
    if not bool((mask == (torch.arange(tokens) < counts)).all() and (counts > 0).all()):
        return None
    return [int(count) for count in counts.flatten()]
