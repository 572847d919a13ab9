"""Convert pickled weights to safetensors, read by ``torch.load`` with ``weights_only``: it builds tensors alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import files
from ..core.errors import DataError

if TYPE_CHECKING:
    import torch

# ANCE's head, which transformers' RoBERTa lacks, and the prefix of the encoder's weights.
_HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
_ENCODER = "roberta."


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
    tensors = weights.items() if isinstance(weights, dict) else ()
    if not tensors or not all(isinstance(one, torch.Tensor) and one.layout == torch.strided for _, one in tensors):
        raise DataError(f"{path.name} is refused: it holds something else than plain tensors by name")
    return dict(tensors)


def _without_head(folder: Path, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Write ANCE's head (a linear layer and a layer norm over the first token's vector) as modules of
    sentence-transformers.

    Returns the encoder's weights.
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
