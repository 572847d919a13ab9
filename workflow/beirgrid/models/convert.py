"""Convert pickled weights to safetensors, in a separate process in which a pickle can do little harm.

``python -P convert.py FOLDER FILE...`` writes a .safetensors file beside each pickled FILE of FOLDER, and prints as
JSON whether the kernel isolates the process from the network. It imports nothing of beirgrid. If it refuses a file, the
last line on standard error gives the reason.
"""

from __future__ import annotations

import ctypes
import json
import pickle
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # linux/sched.h
# ANCE's head, which transformers' RoBERTa lacks, and the prefix of the encoder's weights.
_HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
_ENCODER = "roberta."


def isolate() -> str:
    """Move this process to a network namespace without devices; return the outcome as text.

    The kernel or a container may deny this. Call it before any thread starts.
    """
    unshare = getattr(ctypes.CDLL(None), "unshare", None)  # Linux only
    if unshare and any(unshare(flags) == 0 for flags in (_NEW_NETWORK, _NEW_NETWORK | _NEW_USER)):
        return "cut off by the kernel"
    return "not cut off: the kernel refuses a network namespace; weights_only alone protects"


def main(folder: Path, names: list[str]) -> None:
    """Convert the named files of a folder."""
    network = isolate()
    for place in sorted({(folder / name).parent for name in names}):
        _convert(place, sorted((folder / name).name for name in names if (folder / name).parent == place))
    print(json.dumps({"network": network}))


def _convert(folder: Path, names: list[str]) -> None:
    """Convert the weights of a folder, one file or several shards."""
    index = folder / "pytorch_model.bin.index.json"
    listed = _listed(index) if index.is_file() else {}
    single = next((name for name in names if name == "adapter_model.bin"), "pytorch_model.bin")
    expected = sorted(set(listed.values())) or [single]
    if missing := [name for name in expected if name not in names]:
        raise SystemExit(f"the checkpoint lacks {missing[0]}" + f", which {index.name} lists" * bool(listed))
    from safetensors.torch import save_file

    weight_map: dict[str, str] = {}
    heads = [name for name in names if name.endswith("_linear.pt")]  # BGE-M3's
    for name in [*expected, *heads]:
        weights = _load(folder / name)
        if _HEAD[0] in weights:
            weights = _without_head(folder, weights)
        written = Path(name.replace("pytorch_model", "model")).with_suffix(".safetensors").name
        # Tensors that share memory (tied embeddings) are written in full under each name.
        weights = {key: tensor.detach().contiguous().clone() for key, tensor in weights.items()}
        save_file(weights, folder / written, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(weights, written) if name not in heads else {}
    if missing := sorted(set(listed) - set(weight_map)):
        raise SystemExit(f"{index.name} lists the weights {missing[0]}, which no file has")
    if listed:
        content = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def _listed(index: Path) -> dict[str, str]:
    """Return the file of each weight, from an index."""
    try:
        return {str(weight): str(name) for weight, name in json.loads(index.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SystemExit(f"{index.name} does not say which file has which weight; is it whole?") from None


def _load(path: Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a pickle by name; refuse a file with anything else."""
    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own message would advise to disable the check.
        found = re.search(r"GLOBAL (\S+)", str(error))
        named = f" (it names {found[1]})" if found else ""
        raise SystemExit(f"{path.name} is refused: it is damaged, or holds more than tensors{named}") from None
    except Exception as error:  # torch raises many types for a broken file
        reason = (str(error).splitlines() or [""])[0]
        raise SystemExit(
            f"{path.name} cannot be read as weights ({type(error).__name__}: {reason}); is it whole?"
        ) from None
    if not isinstance(weights, dict) or not weights:
        raise SystemExit(f"{path.name} is refused: it holds a {type(weights).__name__}, not tensors by name")
    for name, value in weights.items():
        if not (isinstance(name, str) and isinstance(value, torch.Tensor) and value.layout == torch.strided):
            raise SystemExit(f"{path.name} is refused: {name!r} is a {type(value).__name__}, not a plain tensor")
        # Otherwise a small file could claim any amount of memory, because a tensor can repeat its elements.
        if value.is_quantized or value.is_meta or value.nbytes > value.untyped_storage().nbytes():
            raise SystemExit(f"{path.name} is refused: {name!r} is not stored as a plain tensor")
    return weights


def _without_head(folder: Path, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Write ANCE's head (a linear layer and a layer norm over the first token's vector) as modules of
    sentence-transformers.

    Returns the encoder's weights.
    """
    encoder = {name: tensor for name, tensor in weights.items() if name.startswith(_ENCODER)}
    missing = [name for name in _HEAD if name not in weights] + [f"{_ENCODER}*"] * (not encoder)
    if missing:
        raise SystemExit(f"the weights have {_HEAD[0]}, as ANCE's, but lack {missing[0]}")
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
