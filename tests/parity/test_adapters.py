"""Compare adapters merged into weights at fetch with the sum of base and adapter computed at run time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import normalised, opened, save_decoder, sides, states
from helpers import documented_models
from mteb.models.model_implementations.repllama_models import RepLLaMAModel
from safetensors.torch import load_file, save_file
from test_mteb import encoded, loaded
from transformers import AutoModel

from beirgrid.config import registry
from beirgrid.core.errors import DataError
from beirgrid.models import checkpoints
from beirgrid.models.checkpoints import CheckpointEntry

TEXTS = ["a short text", "one that is somewhat longer than the first", "numbers 1 2 3 and (brackets)"]
LAYERS = {
    "bert": ["encoder.layer.0.attention.self.query", "encoder.layer.1.output.dense"],
    "decoder": ["layers.0.self_attn.v_proj", "layers.1.mlp.down_proj"],
}


def save_adapter(folder: Path, base: Path, kind: str, *, pickled: bool = False, **settings: Any) -> Path:
    """Save a random LoRA of two layers as PEFT does."""
    torch.manual_seed(3)
    model, weights = AutoModel.from_pretrained(base), {}
    for layer in LAYERS[kind]:
        rows, columns = model.get_submodule(layer).weight.shape
        prefix = f"base_model.model.{'model.' if kind == 'decoder' else ''}{layer}"
        weights |= {f"{prefix}.lora_A.weight": torch.randn(4, columns), f"{prefix}.lora_B.weight": torch.randn(rows, 4)}
    folder.mkdir()
    save = torch.save if pickled else save_file
    save(weights, folder / f"adapter_model.{'bin' if pickled else 'safetensors'}")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "bias": "none", "target_modules": ["x"], **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def fetched(folder: Path, base: Path, adapter: Path, **keys: Any) -> dict[str, Any]:
    """Fetch a model with an adapter into a folder; return the facts about the adapter."""
    folder.mkdir()
    entry = CheckpointEntry(path=str(base), adapter={"path": str(adapter), **keys})
    return dict(checkpoints.fetch("lora", entry, folder)["adapter"])


def hooked(model: Any, adapter: Path, scale: float) -> Any:
    """Add an adapter's outputs to layers of a model, as PEFT computes them; return the model."""
    weights = load_file(adapter / "adapter_model.safetensors")
    for name in [name for name in weights if "lora_A" in name]:
        layer = name.removeprefix("base_model.model.").removeprefix("model.").removesuffix(".lora_A.weight")
        first, second = weights[name], weights[name.replace("lora_A", "lora_B")]
        model.get_submodule(layer).register_forward_hook(
            lambda _, inputs, output, a=first, b=second: output + scale * (inputs[0] @ a.T @ b.T)
        )
    return model


def summed(base: Path, adapter: Path, scale: float) -> list[np.ndarray]:
    """Return the last hidden states of the tokens of each text, from a model and an adapter."""
    return states(base, TEXTS, model=hooked(AutoModel.from_pretrained(base), adapter, scale))


@pytest.mark.parametrize("kind", ["bert", "decoder"])
@pytest.mark.parametrize(("settings", "scale"), [({}, 6 / 4), ({"use_rslora": True}, 6 / 2)])
def test_an_adapter_is_added_to_the_weights(tiny_models, tmp_path, kind, settings, scale):
    base = tiny_models[kind]
    adapter = save_adapter(tmp_path / "adapter", base, kind, **settings)
    (adapter / "README.md").write_text("card")
    facts = fetched(tmp_path / "model", base, adapter)
    assert (facts["layers"], facts["rank"], facts["scale"]) == (2, 4, scale)
    assert set(facts["files"]) == {"adapter_config.json", "adapter_model.safetensors"}
    assert not [path for path in (tmp_path / "model").rglob("*") if path.name.startswith(("adapter", "README"))]
    pooling = "mean" if kind == "bert" else "own"
    encoder = opened("dense", tmp_path / "model", {"similarity": "cosine", "pooling": pooling})
    expected = [found.mean(0) if kind == "bert" else found[-1] for found in summed(base, adapter, scale)]
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), normalised(expected), atol=1e-5)
    assert np.abs(summed(base, adapter, 0)[0] - summed(base, adapter, scale)[0]).max() > 0.1


def test_the_documented_adapter_computes_what_mtebs_loader_does(tmp_path, monkeypatch):
    """Compared with mteb's loader, which gets PEFT's sum from ``hooked``, because PEFT is not installed."""
    base = save_decoder(tmp_path / "base", ended=False)
    adapter = save_adapter(tmp_path / "adapter", base, "decoder")
    meta = registry._meta("castorini/repllama-v1-7b-lora-passage")
    entry = documented_models("models.md")["repllama"]
    assert meta.revision == f"{entry['revision']}-{entry['adapter']['revision']}"

    def from_pretrained(model: Any, folder: str) -> Any:
        return SimpleNamespace(merge_and_unload=lambda: hooked(model, Path(folder), 6 / 4))

    peft = SimpleNamespace(PeftModel=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "peft", peft)
    arguments = meta.loader_kwargs | {"base_model_name_or_path": str(base), "device_map": "cpu"}
    arguments |= {"torch_dtype": torch.float32, "peft_model_name_or_path": str(adapter)}
    wrapper = RepLLaMAModel(**arguments)

    fetched(tmp_path / "model", base, adapter)
    (tmp_path / "model/modules.json").unlink()  # Llama's has none
    keys = ("similarity", "pooling", "special_tokens", "prompts")
    encoder = opened("dense", tmp_path / "model", {key: entry[key] for key in keys} | {"max_length": 100})
    wrapper.model.config.max_length = 100
    texts = [*TEXTS, "a long text " * 60]
    for side, encode in sides(encoder):
        np.testing.assert_allclose(encode(texts), encoded(wrapper, "NQ", side, loaded(texts)), atol=1e-5)
    assert entry["max_length"] == 512


def test_a_pickled_adapter_is_converted(tiny_models, tmp_path):
    base = tiny_models["bert"]
    plain, pickled = (save_adapter(tmp_path / f"{kind}", base, "bert", pickled=kind) for kind in (False, True))
    assert "converted" not in fetched(tmp_path / "one", base, plain)
    assert set(fetched(tmp_path / "two", base, pickled, pickled=True)["converted"]["files"]) == {"adapter_model.bin"}
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    entry = CheckpointEntry(path=str(base), adapter={"path": str(pickled), "pickled": True})
    assert {path.name for path in checkpoints.source_files(entry)} >= {"model.safetensors", "adapter_model.bin"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, r"its adapter is no plain LoRA \(peft_type: LORA, use_dora: True\)"),
        ({"modules_to_save": ["pooler"]}, "modules_to_save: "),
        ({"rank_pattern": {"query": 8}}, "rank_pattern: "),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights: pissa"),
        ({"peft_type": "IA3"}, "peft_type: IA3"),
        ({"r": 8}, r"weights of another rank than adapter_config\.json says \(r: 8\)"),
    ],
)
def test_what_is_no_plain_lora_is_refused(tiny_models, tmp_path, settings, message):
    base = tiny_models["bert"]
    with pytest.raises(DataError, match=message):
        fetched(tmp_path / "model", base, save_adapter(tmp_path / "adapter", base, "bert", **settings))


def test_an_adapter_of_another_model_is_refused_or_named(tiny_models, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(checkpoints, "warn", said.append)
    base, other = tiny_models["bert"], tiny_models["decoder"]
    with pytest.raises(DataError, match=r"changes 'layers\.0\.self_attn\.v_proj', which the checkpoint of its base"):
        fetched(tmp_path / "model", base, save_adapter(tmp_path / "adapter", other, "decoder"))
    named = save_adapter(tmp_path / "named", base, "bert", base_model_name_or_path="a/bert")
    assert fetched(tmp_path / "second", base, named)["base"] == "a/bert"
    assert said == [f"model 'lora': its adapter names the base 'a/bert', the entry {str(base)!r}"]
