"""Attention by products of bfloat16, beside PyTorch's own and float64; what it must leave to PyTorch's."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from checkpoints import save_dense
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from beirgrid.config.models import DenseModel
from beirgrid.core.compute import Runtime
from beirgrid.encoders import open_encoder
from beirgrid.encoders.kernels import attention

ENCODER = SimpleNamespace(is_causal=False)
TEXTS, HEADS, WIDTH = 3, 4, 16


def _inputs(tokens: int, kind: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    numbers = torch.Generator().manual_seed(tokens)
    parts = torch.randn(3, TEXTS, tokens, HEADS, WIDTH, generator=numbers).to(kind)
    return list(parts.transpose(2, 3))


def _padding(tokens: int, *lengths: int) -> torch.Tensor:
    kept = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    return kept[:, None, None].expand(-1, 1, tokens, -1)


@pytest.mark.parametrize("scaling", [None, 0.5])
@pytest.mark.parametrize("tokens", [48, 49, 64, 250, 1024])
def test_results_are_those_of_float64(tokens, scaling):
    given = _inputs(tokens)
    for mask in (None, _padding(tokens, tokens, 1, tokens - 5)):
        found, weights = attention.attend(ENCODER, *given, mask, scaling=scaling)
        exact, _ = sdpa_attention_forward(ENCODER, *(part.double() for part in given), mask, scaling=scaling)
        assert weights is None
        assert found.dtype == torch.bfloat16
        assert found.shape == exact.shape == (TEXTS, tokens, HEADS, WIDTH)
        assert (found - exact).abs().max() <= 2.0**-6 * exact.abs().max()
        assert not torch.equal(found, sdpa_attention_forward(ENCODER, *given, mask, scaling=scaling)[0])


def _softmax(scores: torch.Tensor, tokens: int, factor: float) -> torch.Tensor:
    found = scores.bfloat16().clone()
    attention._softmax()(found.view(torch.int16).numpy(), tokens, factor)
    return found


@pytest.mark.parametrize("size", [0.01, 1, 40, 1e4, 1e30])
def test_the_softmax_is_that_of_float64_rounded(size):
    scores = (torch.randn(50, 77, generator=torch.Generator().manual_seed(1)) * size).bfloat16()
    found = _softmax(scores, 70, 0.3)
    exact = torch.softmax(scores[:, :70].double() * 0.3 * math.log(2), -1)
    torch.testing.assert_close(found[:, :70].double(), exact, rtol=2.0**-7, atol=2.0**-120)
    assert (found[:, 70:] == 0).all()


def test_the_softmax_of_scores_that_are_not_finite():
    infinity, nan = math.inf, math.nan
    rows = [[1, nan, 2], [1, nan, 2], [1, infinity, 2], [-infinity] * 3, [1, -infinity, 1], [-0.0, 0.0, -infinity]]
    scores = torch.tensor(rows).bfloat16()
    scores.view(torch.int16)[:2, 1] = torch.tensor([0x7FC0, -0x40])  # NaN of both signs
    found = _softmax(scores, 3, 1.0).tolist()
    for row in found[:4]:
        assert all(map(math.isnan, row))
    assert found[4:] == [[0.5, 0, 0.5], [0.5, 0.5, 0]]


def _window(tokens: int) -> torch.Tensor:
    place = torch.arange(tokens)
    return ((place - place[:, None]).abs() < 9).expand(TEXTS, 1, -1, -1)


@pytest.mark.parametrize(
    ("tokens", "mask", "options"),
    [
        (60, _window(60), {}),
        (60, torch.ones(60, 60, dtype=torch.bool).tril().expand(TEXTS, 1, -1, -1), {}),
        (60, _padding(60, 60, 0, 3), {}),
        (60, _padding(60, 60, 59, 3).flip(-1), {}),
        (60, torch.zeros(TEXTS, 1, 60, 60, dtype=torch.bfloat16), {}),
        (60, _padding(60, 60, 59, 3).repeat(1, HEADS, 1, 1), {}),
        (60, _padding(60, 60), {}),
        (60, None, {"is_causal": True}),
        (60, None, {"position_bias": torch.randn(1, HEADS, 60, 60, dtype=torch.bfloat16)}),
        (47, None, {}),
        (1025, None, {}),
    ],
    ids=["window", "causal", "empty", "left", "float", "heads", "shared", "is_causal", "bias", "short", "long"],
)
def test_other_attention_is_that_of_pytorch(tokens, mask, options):
    given = _inputs(tokens)
    expected, _ = sdpa_attention_forward(ENCODER, *given, mask, **options)
    found, _ = attention.attend(ENCODER, *given, mask, **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_other_types_decoders_and_shared_heads_are_those_of_pytorch():
    decoder = SimpleNamespace(is_causal=True, num_key_value_groups=1)
    shared = SimpleNamespace(is_causal=False, num_key_value_groups=HEADS)
    query, key, value = _inputs(60)
    for module, given in (
        (ENCODER, _inputs(60, torch.float32)),
        (decoder, (query, key, value)),
        (shared, (query, key[:, :1], value[:, :1])),
        (ENCODER, (query[:, :, :1], key, value)),
    ):
        expected, _ = sdpa_attention_forward(module, *given, None)
        assert torch.equal(attention.attend(module, *given, None)[0], expected)


@pytest.mark.parametrize(
    ("precision", "choice", "amx", "called"),
    [
        ("bfloat16", "auto", False, True),
        ("bfloat16", "auto", True, False),
        ("bfloat16", "plain", False, False),
        ("float32", "auto", False, False),
    ],
)
def test_encoders_use_it_in_bfloat16_without_amx(tmp_path, monkeypatch, precision, choice, amx, called):
    monkeypatch.setattr(attention, "reorders", lambda _: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    runtime = Runtime("cpu", precision, 300, kernels=choice)
    encoder = open_encoder(save_dense(tmp_path), DenseModel(family="dense", similarity="cosine"), runtime)
    assert (encoder.transformer.config._attn_implementation == attention.NAME) == called
