"""Attention by products equals a softmax in float64, up to rounding."""

from __future__ import annotations

import pytest
import torch

from beirgrid.encoders.kernels.attention import LONGEST, by_products, products_are_faster

TEXTS, HEADS, TOKENS, WIDTH = 3, 2, 11, 16


def in_float64(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    bias: torch.Tensor | None,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Compute attention: the values weighted by the softmax of the scores."""
    scores = query.double() @ key.double().transpose(2, 3) * scaling
    scores = scores if bias is None else scores + bias.double()
    if mask is not None:
        scores = scores.where(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.double()
    return scores.softmax(-1) @ value.double()


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


WINDOW = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs() < 3
MASKS = {
    "none": None,
    "window": WINDOW,
    "lengths": torch.arange(TOKENS) < torch.tensor([11, 1, 6])[:, None, None, None],
    "added": _normal(TEXTS, 1, 1, TOKENS),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("queries", [1, TOKENS])
@pytest.mark.parametrize("scaling", [None, 0.5, 1])
@pytest.mark.parametrize(("kind", "rounding"), [(torch.bfloat16, 0.03), (torch.float32, 1e-5)], ids=str)
def test_products_attend_as_in_float64(mask, biased, queries, scaling, kind, rounding):
    given = MASKS[mask] if queries == TOKENS or mask != "window" else WINDOW[4:5]
    query = _normal(TEXTS, HEADS, queries, WIDTH).to(kind)
    key, value = (_normal(TEXTS, HEADS, TOKENS, WIDTH).roll(shift, 2).to(kind) for shift in (0, 1))
    bias = _normal(1, HEADS, queries, TOKENS).to(kind) if biased else None
    found = by_products(query, key, value, scaling=scaling, bias=bias, mask=given)
    expected = in_float64(query, key, value, scaling or WIDTH**-0.5, bias, given)
    assert found.dtype == kind
    assert found.shape == (TEXTS, HEADS, queries, WIDTH)
    assert (found.double() - expected).abs().max() < rounding * (4 if scaling == 1 else 1)  # large scores round more


@pytest.mark.parametrize(("heads", "tokens"), [(HEADS, LONGEST + 1), (1, 5)])
def test_other_attention_is_left_to_the_kernel(heads, tokens):
    """Long texts would need much memory; keys of grouped heads need other products."""
    query, key = (torch.zeros(1, number, tokens, 4) for number in (HEADS, heads))
    assert not products_are_faster(query, key)


def test_short_texts_are_multiplied():
    text = torch.zeros(1, HEADS, LONGEST, 4)
    assert products_are_faster(text, text)
