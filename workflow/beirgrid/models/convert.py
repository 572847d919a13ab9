"""Convert pickled weights to safetensors, read by ``torch.load`` with ``weights_only``: it builds tensors alone."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DataError

if TYPE_CHECKING:
    import torch

# ANCE's head, which transformers' RoBERTa lacks, and the prefix of the encoder's weights.
_HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
_ENCODER = "roberta."


def convert(folder: Path, names: list[str]) -> None:
    """Write a .safetensors file beside each pickled file of a folder: one file, or the shards of an index.

    Raises:
        DataError: a file is damaged or holds more than tensors, or the index names others.
        OSError: the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    index = folder / "pytorch_model.bin.index.json"
    listed = _listed(index) if index.is_file() else {}
    single = next((name for name in names if name == "adapter_model.bin"), "pytorch_model.bin")
    expected = sorted(set(listed.values())) or [single]
    if missing := [name for name in expected if name not in names]:
        raise DataError(f"the checkpoint lacks {missing[0]}" + f", which {index.name} lists" * bool(listed))
    weight_map: dict[str, str] = {}
    heads = [name for name in names if name.endswith("_linear.pt")]  # BGE-M3's
    for name in [*expected, *heads]:
        weights = _load(folder / name)
        if _HEAD[0] in weights:
            weights = _without_head(folder, weights)
        written = Path(name.replace("pytorch_model", "model")).with_suffix(".safetensors").name
        # Tensors that share memory (tied embeddings) are written in full under each name.
        weights = {key: tensor.detach().contiguous().clone() for key, tensor in weights.items()}
        try:
            save_file(weights, folder / written, metadata={"format": "pt"})
        except SafetensorError as error:
            if os.strerror(errno.ENOSPC) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from None
            raise
        weight_map |= dict.fromkeys(weights, written) if name not in heads else {}
    if missing := sorted(set(listed) - set(weight_map)):
        raise DataError(f"{index.name} lists the weights {missing[0]}, which no file has")
    if listed:
        content = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def _listed(index: Path) -> dict[str, str]:
    """Return the file of each weight, from an index."""
    try:
        return {str(weight): str(name) for weight, name in json.loads(index.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{index.name} does not say which file has which weight; is it whole?") from None


def _load(path: Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a pickle by name; refuse a file with anything else."""
    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own message would advise to disable the check.
        found = re.search(r"GLOBAL (\S+)", str(error))
        named = f" (it names {found[1]})" if found else ""
        raise DataError(f"{path.name} is refused: it is damaged, or holds more than tensors{named}") from None
    except Exception as error:  # torch raises many types for a broken file
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"{path.name} cannot be read as weights ({type(error).__name__}: {reason}); is it whole?"
        ) from None
    if not isinstance(weights, dict) or not weights:
        raise DataError(f"{path.name} is refused: it holds a {type(weights).__name__}, not tensors by name")
    for name, value in weights.items():
        if not (isinstance(name, str) and isinstance(value, torch.Tensor) and value.layout == torch.strided):
            raise DataError(f"{path.name} is refused: {name!r} is a {type(value).__name__}, not a plain tensor")
        # Otherwise a small file could claim any amount of memory, because a tensor can repeat its elements.
        if value.is_quantized or value.is_meta or value.nbytes > value.untyped_storage().nbytes():
            raise DataError(f"{path.name} is refused: {name!r} is not stored as a plain tensor")
    return weights


def _without_head(folder: Path, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Write ANCE's head (a linear layer and a layer norm over the first token's vector) as modules of
    sentence-transformers.

    Returns the encoder's weights.
    """
    encoder = {name: tensor for name, tensor in weights.items() if name.startswith(_ENCODER)}
    missing = [name for name in _HEAD if name not in weights] + [f"{_ENCODER}*"] * (not encoder)
    if missing:
        raise DataError(f"the weights have {_HEAD[0]}, as ANCE's, but lack {missing[0]}")
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
