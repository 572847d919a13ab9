"""Convert fetched weights: pickles to safetensors, and adapters (LoRA) to changes of another checkpoint's weights.

Pickles are read by ``torch.load`` with ``weights_only``, which builds tensors alone.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import files
from ..core.errors import DataError, quoted

if TYPE_CHECKING:
    import torch

# ANCE's head, which transformers' RoBERTa lacks, and the prefix of the encoder's weights.
_HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
_ENCODER = "roberta."

_CONFIG = "adapter_config.json"
# Settings of PEFT under which an adapter is more than two factors for each changed layer.
_MORE = (
    *("use_dora", "lora_bias", "modules_to_save", "layer_replication", "trainable_token_indices", "use_bdlora"),
    *("rank_pattern", "alpha_pattern"),
)
# Starts from which training changes the weights of the base, too.
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_PREFIXES = ("base_model.", "model.")


def convert(folder: Path, names: list[str]) -> None:
    """Write a .safetensors file for each pickled file of a folder, and the index of several.

    Raises:
        DataError: a file is damaged or holds more than tensors.
    """
    from safetensors.torch import save_file

    for name in names:
        weights = _load(folder / name)
        if all(name in weights for name in _HEAD):
            weights = _without_head(folder, weights)
        # Tensors that share memory (tied embeddings) are written in full under each name.
        weights = {key: tensor.detach().contiguous().clone() for key, tensor in weights.items()}
        save_file(weights, folder / _converted(name), metadata={"format": "pt"})
    if (index := folder / "pytorch_model.bin.index.json").is_file():
        with files.reading(index):
            listed = {weight: _converted(name) for weight, name in files.read_json(index)["weight_map"].items()}
        files.write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": listed})


def _converted(name: str) -> str:
    """Return the name of a pickled file after its conversion."""
    return str(Path(name.replace("pytorch_model", "model")).with_suffix(".safetensors"))


def _load(path: Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a pickle by name; refuse a file with anything else."""
    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a broken file, and would advise to disable the check
        code = re.search(r"GLOBAL (\S+)", str(error))
        why = f"names {code[1]}" if code else f"{type(error).__name__}; is it whole?"
        raise DataError(f"{path.name} cannot be read as tensors alone ({why})") from None
    tensors = weights.values() if isinstance(weights, dict) else ()
    if not tensors or not all(
        isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided for tensor in tensors
    ):
        raise DataError(f"{path.name} is refused: it holds something else than plain tensors by name")
    return dict(weights)


def _without_head(folder: Path, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Write ANCE's head (a linear layer and a layer norm over the first token's vector) as modules of
    sentence-transformers; return the encoder's weights.
    """
    encoder = {name: tensor for name, tensor in weights.items() if name.startswith(_ENCODER)}
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Pooling, Transformer
    from torch.nn import Identity

    weight, bias, scale, shift = (weights[name] for name in _HEAD)
    rows, columns = weight.shape
    head = Dense(columns, rows, activation_function=Identity(), init_weight=weight, init_bias=bias)
    norm = LayerNorm(rows)
    norm.norm.load_state_dict({"weight": scale, "bias": shift})
    modules = [Transformer, *map(type, after := [Pooling(columns, "cls"), head, norm])]
    paths = ["", *(f"{number}_{type(module).__name__}" for number, module in enumerate(after, 1))]
    for path, module in zip(paths[1:], after, strict=True):
        (folder / path).mkdir()
        module.save(str(folder / path))
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": f"{kind.__module__}.{kind.__qualname__}"}
        for number, (path, kind) in enumerate(zip(paths, modules, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(entries, indent=2), encoding="utf-8")
    return encoder


def merge(adapter: Path, folder: Path) -> dict[str, Any]:
    """Add an adapter, as PEFT saves it, to the weights in its base's folder, in float32; copy its other files there.

    Returns:
        how many layers are changed, their rank and scale, and the base that the adapter names.

    Raises:
        DataError: the adapter is no plain LoRA, or does not fit the checkpoint.
    """
    from safetensors.torch import load_file, save_file

    config = _adapter_config(adapter)
    rank = int(config["r"])
    scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
    factors = _factors(adapter)
    layers = len(factors)
    if {first.shape[0] for first, _ in factors.values()} != {rank}:
        raise DataError(f"its adapter has weights of another rank than {_CONFIG} says (r: {rank})")
    for path in sorted(folder.glob("*.safetensors")):
        weights = load_file(path)
        changed = [name for name in weights if _layer(name.removesuffix(".weight")) in factors]
        for name in changed:
            first, second = factors.pop(_layer(name.removesuffix(".weight")))
            change = scale * (second.float() @ first.float())
            change = change.T if config.get("fan_in_fan_out") else change
            if change.shape != weights[name].shape:
                raise DataError(f"its adapter changes {name} as {list(change.shape)}, not {list(weights[name].shape)}")
            weights[name] = (weights[name].float() + change).to(weights[name].dtype).contiguous()
        if changed:
            save_file(weights, path, metadata={"format": "pt"})
    if factors:
        raise DataError(f"its adapter changes {quoted(min(factors))}, which the checkpoint of its base has not")
    for path in adapter.rglob("*"):
        if path.is_file() and not fnmatch(path.name, "adapter_*"):
            (copy := folder / path.relative_to(adapter)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    return {"layers": layers, "rank": rank, "scale": scale, "base": config.get("base_model_name_or_path")}


def _adapter_config(adapter: Path) -> dict[str, Any]:
    """Return the settings of an adapter; refuse what is no plain LoRA."""
    if not (adapter / _CONFIG).is_file():
        raise DataError(f"its adapter has no {_CONFIG}")
    config: dict[str, Any] = json.loads((adapter / _CONFIG).read_bytes())
    more = [f"{name}: {config[name]}" for name in _MORE if config.get(name)]
    more += [f"bias: {config['bias']}"] * (config.get("bias") not in (None, "none"))
    start = str(config.get("init_lora_weights"))
    more += [f"init_lora_weights: {start}"] * start.lower().startswith(_CHANGED_BASE)
    if config.get("peft_type") != "LORA" or more:
        raise DataError(
            f"its adapter is no plain LoRA (peft_type: {', '.join([str(config.get('peft_type')), *more])}): merge it "
            "with PEFT's merge_and_unload, save the whole model, and name its folder"
        )
    return config


def _factors(adapter: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return both factors of each changed layer, by its name."""
    from safetensors.torch import load_file

    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for path in sorted(adapter.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            layer, _, factor = name.removesuffix(".weight").rpartition(".")
            if factor not in ("lora_A", "lora_B"):
                raise DataError(f"its adapter has the weights {quoted(name)}, which are no factor of a LoRA")
            pairs.setdefault(_layer(layer), {})[factor] = tensor
    if not pairs or any(len(pair) < len(("lora_A", "lora_B")) for pair in pairs.values()):
        raise DataError("its adapter lacks weights: each layer needs lora_A and lora_B, in .safetensors")
    return {layer: (pair["lora_A"], pair["lora_B"]) for layer, pair in pairs.items()}


def _layer(name: str) -> str:
    """Return the name of a layer without the models around it: with or without a head, they are named differently."""
    while name.startswith(_PREFIXES):
        name = name.partition(".")[2]
    return name
