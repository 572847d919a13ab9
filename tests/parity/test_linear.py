"""Compare linear layers with weights in oneDNN's order with PyTorch's own, in float64 and across batches."""

from __future__ import annotations

import pytest
import torch
from checkpoints import opened
from transformers import BertConfig, DistilBertConfig, T5Config
from transformers.models.bert.modeling_bert import BertIntermediate
from transformers.models.distilbert.modeling_distilbert import FFN
from transformers.models.t5.modeling_t5 import T5DenseActDense

from beirgrid.encoders.kernels import linear

# Largest rounding error of a product of n terms, relative to the sum of the terms' absolute values.
ROUNDING = {torch.float32: 2.0**-20, torch.bfloat16: 2.0**-8}


def _need(kind: torch.dtype) -> None:
    if not linear.reorders(kind):
        pytest.skip(f"this machine does not multiply {kind} by oneDNN")


def _layer(inputs: int, outputs: int, bias: bool, kind: torch.dtype) -> torch.nn.Linear:
    _need(kind)
    torch.manual_seed(0)
    layer = torch.nn.Linear(inputs, outputs, bias=bias)
    layer.weight.data *= torch.logspace(-3, 3, outputs)[:, None]
    return layer.to(kind)


@pytest.mark.parametrize("kind", ROUNDING, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 2), (3, 5), (17, 33), (384, 1536), (1000, 7)])
def test_products_are_those_of_float64(inputs, outputs, bias, kind):
    layer = _layer(inputs, outputs, bias, kind)
    weight, added = layer.weight.detach().double(), layer.bias.detach().double() if bias else 0
    linear.reorder(layer)
    assert layer.weight.layout == torch._mkldnn
    assert sum(weight.numel() for weight in layer.parameters()) == (inputs + bias) * outputs  # each is held once
    for shape in [(1,), (2, 3), (1, 300), (2, 0), (5000,)]:
        given = torch.randn(*shape, inputs).to(kind)
        with torch.inference_mode():
            found = layer(given)
        exact = given.double() @ weight.T + added
        most = given.double().abs() @ weight.T.abs() + abs(added)
        assert found.dtype == kind
        assert found.shape == exact.shape
        assert ((found.double() - exact).abs() <= ROUNDING[kind] * most).all()


@pytest.mark.parametrize("kind", ROUNDING, ids=str)
def test_a_row_has_the_same_product_in_any_batch(kind):
    layer = _layer(384, 1536, True, kind)
    linear.reorder(layer)
    given = torch.randn(2048, 384).to(kind)
    with torch.inference_mode():
        whole = layer(given)
        for rows in (1, 7, 100, 1024):
            spread = (layer(given[:rows]) - whole[:rows]).abs().max() / whole.abs().max()
            assert spread <= ROUNDING[kind]


def test_inputs_that_are_not_contiguous_or_of_another_type_are_multiplied():
    layer = _layer(16, 8, True, torch.float32)
    plain = torch.nn.functional.linear(given := torch.randn(16, 4).T, layer.weight, layer.bias)
    linear.reorder(layer)
    with torch.inference_mode():
        assert torch.allclose(layer(given), plain, rtol=1e-5, atol=1e-4)
        assert layer(given.double()).dtype == torch.float32


def test_a_model_that_reads_its_weights_computes_as_before():
    model = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval()
    given = torch.randn(2, 7, 32)
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    with torch.inference_mode():
        plain = model(given)
        linear.reorder_all(layers, lambda: model(given))
        assert torch.equal(model(given), plain)
    assert {layer.weight.layout for layer in layers} == {torch.strided}


def _followed(family: str) -> tuple[torch.nn.Module, torch.nn.Linear]:
    """Return a module of transformers whose output is the GELU of a layer, and that layer."""
    torch.manual_seed(0)
    if family == "BERT":
        module = BertIntermediate(BertConfig(hidden_size=48, intermediate_size=200))
        return module.eval(), module.dense
    module = FFN(DistilBertConfig(dim=48, hidden_dim=200)).eval()
    module.lin2 = torch.nn.Identity()  # so that the module returns the values of GELU
    return module, module.lin1


@pytest.mark.parametrize("kind", ROUNDING, ids=str)
@pytest.mark.parametrize("family", ["BERT", "DistilBERT"])
def test_a_layer_computes_the_gelu_that_follows_it(family, kind):
    _need(kind)
    module, layer = _followed(family)
    layer.weight.data *= torch.logspace(-2, 2, 200)[:, None]
    module.to(kind)
    weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
    linear.reorder(layer)
    linear.fuse_activations(module)
    assert [type(part).__name__ for part in module.modules()].count("GELUActivation") == 0
    given = torch.randn(3, 100, 48).to(kind)
    with torch.inference_mode():
        found = module(given)
    sums = given.double() @ weight.T + bias
    most = given.double().abs() @ weight.T.abs() + abs(bias)
    exact = sums * 0.5 * (1 + torch.erf(sums * 0.5**0.5))
    assert found.dtype == kind
    # The slope of GELU is 1.13 at most.
    assert ((found.double() - exact).abs() <= 1.13 * ROUNDING[kind] * most).all()


def test_a_module_of_a_checkpoints_own_keeps_its_activation():
    """Such a module may compute something between the layer and the activation."""

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            module, self.dense = _followed("BERT")
            self.intermediate_act_fn, self.norm = module.intermediate_act_fn, torch.nn.LayerNorm(200)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.intermediate_act_fn(self.norm(self.dense(given)))

    module, given = Own().eval(), torch.randn(7, 48)
    with torch.inference_mode():
        plain = module(given)
        linear.reorder(module.dense)
        linear.fuse_activations(module)
        assert torch.allclose(module(given), plain, atol=1e-5)


def test_another_activation_stays():
    module, layer = _followed("BERT")
    module.intermediate_act_fn = torch.nn.Tanh()
    linear.reorder(layer)
    linear.fuse_activations(module)
    with torch.inference_mode():
        assert module(1000 * torch.randn(50, 48)).abs().max() == 1


def test_a_layer_of_t5_computes_the_relu_that_follows_it():
    _need(torch.float32)
    module = T5DenseActDense(T5Config(d_model=48, d_ff=200, feed_forward_proj="relu", dropout_rate=0)).eval()
    given = torch.randn(7, 48)
    with torch.inference_mode():
        plain = module(given)
        linear.reorder(module.wi)
        linear.fuse_activations(module)
        assert isinstance(module.act, torch.nn.Identity)
        assert module.wi(given).min() == 0
        assert torch.allclose(module(given), plain, atol=1e-5)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_an_encoder_gives_the_same_vectors_with_and_without(tiny_models, monkeypatch, machine):
    monkeypatch.setattr("platform.machine", lambda: machine)
    encoder = opened("dense", tiny_models["dense"], {"similarity": "cosine"})
    layers = [layer for layer in encoder.transformer.modules() if isinstance(layer, torch.nn.Linear)]
    reordered = machine == "x86_64" and linear.reorders(torch.float32)
    assert {layer.weight.layout for layer in layers} == {torch._mkldnn if reordered else torch.strided}
    texts = ["a short text", "another one, which is longer than the first", ""]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    plain = opened("dense", tiny_models["dense"], {"similarity": "cosine"})
    assert abs(encoder.encode_documents(texts) - plain.encode_documents(texts)).max() < 1e-6
