"""Checkpoints of models: fetched from a folder, a package or the hub, and verified by hash."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from . import files
from .config import resolve_path
from .errors import DataError

# Weights in pickle form can run code when they are loaded, so they are neither fetched nor opened.
_REFUSED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.py")

# Files that hold a tokenizer's vocabulary.
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")


def fetch(name: str, entry: dict[str, Any], target: Path) -> None:
    """Copy or download the checkpoint of registry entry ``entry`` into the folder ``target``."""
    if "path" in entry:
        folder = resolve_path(entry["path"])
        if not folder.is_dir() and "checkpoint" in entry:
            raise DataError(
                f"model {name!r}: there is no folder {folder}: put {entry['checkpoint']} there, its weights as "
                ".safetensors (docs/models.md, Converting pickled weights)"
            )
        _copy(name, folder, target, _left(entry))
    elif "package" in entry:
        _copy(name, _package_folder(name, entry["package"]), target, _left(entry))
    else:
        _download(name, entry, target)
    if not any(target.glob("**/*.safetensors")):
        raise DataError(
            f"model {name!r}: no .safetensors weights; only that format is loaded, as others can run code. Convert "
            f"them yourself (docs/models.md, Converting pickled weights) and set models.{name}.path to the folder"
        )
    if not any(any(target.rglob(pattern)) for pattern in _TOKENIZERS):
        # transformers would make up a tokenizer that knows no word.
        raise DataError(f"model {name!r}: the checkpoint has no tokenizer (one of {', '.join(_TOKENIZERS)})")


def _refused(entry: dict[str, Any]) -> list[str]:
    return [pattern for pattern in _REFUSED if not (pattern == "*.py" and entry.get("trust_remote_code"))]


def _left(entry: dict[str, Any]) -> list[str]:
    """Return the patterns of what is not copied from a folder."""
    return [*_refused(entry), ".git*", "README*"]


def copied(entry: dict[str, Any]) -> list[Path]:
    """Return the files that ``fetch`` copies from the folder of an entry that has a path."""
    found = []
    for folder, folders, names in os.walk(resolve_path(entry["path"]), followlinks=True):
        ignored = shutil.ignore_patterns(*_left(entry))(folder, [*folders, *names])
        folders[:] = [name for name in folders if name not in ignored]
        found += [Path(folder, name) for name in names if name not in ignored]
    return found


def _copy(name: str, folder: Path, target: Path, left: list[str]) -> None:
    if not folder.is_dir():
        raise DataError(f"model {name!r}: there is no folder {folder}")
    try:
        shutil.copytree(folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*left))
    except shutil.Error as error:  # one error made of those of each file: tell the first
        source, destination, reason = error.args[0][0]
        if os.strerror(errno.ENOSPC) in str(reason):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), destination) from error
        raise DataError(f"model {name!r}: {source} cannot be copied: {reason}") from error


def _package_folder(name: str, package: str) -> Path:
    """Return the folder of an installed package that holds a checkpoint, without importing it."""
    found = importlib.util.find_spec(package) if "." not in package else None  # a.b would import a
    for root in (found.submodule_search_locations or ()) if found else ():
        for config in sorted(Path(root).glob("**/modules.json")) or sorted(Path(root).glob("**/config.json")):
            return config.parent
    raise DataError(f"model {name!r}: the package {package!r} is not installed, or has no checkpoint in it")


def _download(name: str, entry: dict[str, Any], target: Path) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        snapshot_download(
            entry["checkpoint"],
            revision=entry["revision"],
            local_dir=target,
            ignore_patterns=[*_refused(entry), "openvino/*"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise DataError(
            f"model {name!r}: {entry['checkpoint']} at revision {entry['revision']} cannot be fetched "
            f"({type(error).__name__}: {str(error).splitlines()[0]}). On a machine without the hub, put the "
            f"checkpoint in a folder and set models.{name}.path to it."
        ) from error
    shutil.rmtree(target / ".cache", ignore_errors=True)


def verify(name: str, entry: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a checkpoint.

    Raises:
        DataError: a file that the entry lists is missing or differs.
    """
    for wanted, digest in entry.get("files", {}).items():
        if not (folder / wanted).is_file():
            raise DataError(f"model {name!r}: the checkpoint has no {wanted}")
        if (actual := files.sha256(folder / wanted)) != digest:
            raise DataError(f"model {name!r}: {wanted} has SHA-256 {actual}, the registry says {digest}")
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise DataError(f"model {name!r}: the checkpoint has neither config.json nor modules.json")
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): files.sha256(path) for path in found}
