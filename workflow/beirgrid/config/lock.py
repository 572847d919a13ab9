"""checkpoints.lock.json: commits and facts that were looked up once, so that all members of a group use the same.

- The commit, and the SHA-256 of each file, of checkpoints with ``revision: resolve``, for which no source has a commit:
  the first fetch asks the hub for that of the branch main.
- Under ``names``, what mteb states of the models and collections that a configuration names without an entry. The
  run that first needs them writes them. A dry run, ``plan`` and all else that only reads a configuration write nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import DataError, say

LOCK = "checkpoints.lock.json"
# Locked while the lock file changes, across all machines that share the working directory.
_FLOCK = f".{LOCK}.flock"
RESOLVE = "resolve"
# The key beside the checkpoints, and its keys. What entries of each need, and those of checkpoints.
_NAMES = "names"
_KINDS: dict[str, dict[str, Any]] = {
    "models": {"entry": dict, "trained_on": list | None},
    "datasets": {"task": str, "dataset": dict},
    "benchmarks": {"rows": list},
}
_PINNED = {"commit": str, "files": dict}
# What this process looked up and no run has written yet, by lock file and kind.
_found: dict[Path, dict[str, dict[str, Any]]] = defaultdict(lambda: {kind: {} for kind in _KINDS})
_BRANCH = "main"


def read() -> dict[str, Any]:
    """Return the lock file by checkpoint (``commit``, SHA-256 of ``files``); raise DataError if it is damaged."""
    if not Path(LOCK).is_file():
        return {}
    with files.reading(LOCK):
        locked: dict[str, Any] = files.read_json(LOCK)
        checkpoints = {name: entry for name, entry in locked.items() if name != _NAMES}
        for kind, named in {"checkpoint": checkpoints, **locked.get(_NAMES, {})}.items():
            for name, entry in named.items():
                for key, form in _KINDS.get(kind, _PINNED).items():
                    if not isinstance(dict(entry or {}).get(key, ...), form):
                        raise ValueError(f"{kind} {name!r} has no {key}, or one of another form")
        return locked


def names() -> dict[str, dict[str, Any]]:
    """Return what is known of ``models``, ``datasets`` and ``benchmarks`` of mteb, by name."""
    locked = read().get(_NAMES, {})
    return {kind: locked.get(kind, {}) | found for kind, found in _found[Path(LOCK).absolute()].items()}


def add(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Remember facts about names, by kind and name, until a run writes them; return all known names."""
    for kind, named in facts.items():
        _found[Path(LOCK).absolute()][kind].update(named)
    return names()


def write() -> None:
    """Add the remembered facts to the lock file, and say so."""
    path = Path(LOCK).absolute()
    new = sorted({name for kind in ("models", "benchmarks") for name in _found[path][kind]})
    if new:
        with files.locked(_FLOCK):
            known = {kind: dict(sorted(named.items())) for kind, named in names().items()}
            files.write_json(LOCK, dict(sorted((read() | {_NAMES: known}).items())))
        del _found[path]
        say(f"{path} now has what mteb states of {', '.join(new)}. Commit it, so that your group gets the same facts.")


def resolve(checkpoint: str) -> str:
    """Return a checkpoint's commit from the lock file; if absent, ask the hub once and store it."""
    with files.locked(_FLOCK):
        locked = read()
        if checkpoint not in locked:
            from huggingface_hub import HfApi

            commit = HfApi().model_info(checkpoint, revision=_BRANCH).sha
            locked[checkpoint] = {"commit": commit, "files": {}}
            files.write_json(LOCK, locked)
    return str(locked[checkpoint]["commit"])


def check(checkpoint: str, digests: dict[str, str]) -> None:
    """Compare the SHA-256 of downloaded files with the lock file's, or store it; raise DataError if a file differs."""
    with files.locked(_FLOCK):
        locked = read()
        known = locked[checkpoint]["files"]
        for name, digest in sorted(digests.items()):
            if known.get(name, digest) != digest:
                raise DataError(
                    f"{name} of {checkpoint} has SHA-256 {digest}, {LOCK} says {known[name]}. {renewal(checkpoint)}"
                )
        if digests.keys() - known:
            known.update(digests)
            files.write_json(LOCK, dict(sorted(locked.items())))


def renewal(checkpoint: str) -> str:
    """Return a hint on replacing a checkpoint's entry."""
    return f"To use the hub's newest commit instead, remove {checkpoint!r} from {LOCK} and run again."
