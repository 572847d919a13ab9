"""The largest product of each term with the tokens of a text, in blocks of terms."""

from __future__ import annotations

import pytest
import torch

from beirgrid.encoders.kernels import maxima


@pytest.mark.parametrize("terms_at_a_time", [1, 7, 50, 1024])
def test_maxima_equal_those_of_all_products(monkeypatch, terms_at_a_time):
    """Padding on either side or in between, and a text without tokens, with any values in padded rows."""
    monkeypatch.setitem(maxima.TERMS, "cpu", terms_at_a_time)
    numbers = torch.Generator().manual_seed(3)
    terms, bias = torch.randn(50, 16, generator=numbers), torch.randn(50, generator=numbers)
    tokens = torch.randn(5, 9, 16, generator=numbers)
    mask = torch.ones(5, 9, dtype=torch.long)
    mask[1, 4:] = mask[2, :4] = mask[3, ::2] = mask[4] = 0
    tokens[mask == 0] *= 1000
    products = (tokens.double() @ terms.double().T + bias.double()).masked_fill((mask == 0)[:, :, None], -torch.inf)
    with torch.inference_mode():
        found = maxima.Maxima(terms, bias)(tokens, mask)
        without_bias = maxima.Maxima(terms)(tokens[:1], mask[:1])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), products.amax(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(without_bias, (tokens[0] @ terms.T).amax(0)[None], rtol=1e-5, atol=1e-5)


def test_a_number_that_is_not_finite_stays():
    """The stage can then refuse it."""
    tokens = torch.ones(2, 3, 4)
    tokens[1, 2, 0] = torch.nan
    with torch.inference_mode():
        found = maxima.Maxima(torch.ones(6, 4))(tokens, torch.ones(2, 3))
    assert found[0].isfinite().all()
    assert found[1].isnan().all()
