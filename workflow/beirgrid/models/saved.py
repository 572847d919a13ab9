"""Read the settings in a checkpoint's files, and check them against the registry entry."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ..config.models import TaskModel
from ..config.values import mistakes
from ..core import files
from ..core.errors import DataError, quoted

# sentence-transformers' names of the document prompt, in order of priority.
_DOCUMENT = ("document", "passage", "corpus")
# Values of model_type for checkpoints with built-in markers before their texts (late interaction).
_OWN_MARKERS = ("ColBERT", "MultiVectorEncoder")


class _Settings(BaseModel):
    """Settings of a checkpoint, in any of its files: the keys whose types matter here."""

    model_config = ConfigDict(extra="allow")
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    max_seq_length: int | None = None


class _Module(_Settings):
    type: str
    path: str


def settings(folder: Path) -> dict[str, Any]:
    """Read ``config_sentence_transformers.json``; empty without that file."""
    return dict(read(folder / "config_sentence_transformers.json"))


def own_settings(folder: Path) -> dict[str, Any]:
    """Return a checkpoint's own settings: pooling, length, similarity and prompts."""
    saved = settings(folder)
    own = {key: saved[key] for key in ("similarity_fn_name", "prompts", "default_prompt_name") if saved.get(key)}
    pooling = read(folder / "1_Pooling" / "config.json")
    length = read(folder / "sentence_bert_config.json").get("max_seq_length")
    return own | ({"pooling": pooling} if pooling else {}) | ({"max_seq_length": length} if length else {})


def read(path: Path, kind: Any = _Settings) -> Any:
    """Read a JSON file; empty without that file. Raise DataError with file and key if it is damaged."""
    if not path.is_file():
        return {}
    adapter = TypeAdapter(kind)
    with files.reading(path):
        content = files.read_json(path)
    try:
        return adapter.dump_python(adapter.validate_json(json.dumps(content)), exclude_unset=True)
    except ValidationError as error:
        raise DataError(f"{path} is damaged ({next(mistakes(error, '', content))}). {files.REMEDY}") from None


def prompts(folder: Path, entry: TaskModel) -> dict[str, str]:
    """Return the prompts of ``query`` and ``document``: the entry's or, if it asks for them, the checkpoint's."""
    given = {"query": entry.prefixes.query, "document": entry.prefixes.document}
    own = (settings(folder).get("prompts") or {}) if entry.prefixes.own else {}
    return {role: text if text is not None else _own(own, role, entry) for role, text in given.items()}


def _own(stated: Mapping[str, str | None], role: str, entry: TaskModel) -> str:
    """Return a checkpoint's own prompt for queries or documents of the entry's task, found as mteb does."""
    of_task = (f"{entry.task}-{role}", entry.task) if entry.task else ()
    names = (*of_task, f"{entry.task_type}-{role}", entry.task_type, role)
    return next((stated[name] or "" for name in names if name in stated), "")


def check_prompts(name: str, folder: Path, given: Collection[str]) -> None:
    """Refuse a checkpoint whose own prompts the entry neither takes nor replaces.

    ``given`` are the sides (query, document) for which the entry has a prompt, possibly an empty one.
    """
    saved = settings(folder)
    prompts = {role: text for role, text in (saved.get("prompts") or {}).items() if text}
    if not prompts or saved.get("model_type") in _OWN_MARKERS:
        return
    if saved.get("model_type") == "CrossEncoder":
        raise DataError(
            f"model {name!r}: its checkpoint has prompts of its own, {json.dumps(prompts, ensure_ascii=False)}, but "
            "beirgrid does not support prompts for cross-encoders"
        )
    left_out = [role for role in ("query", "document") if role not in given and _has_prompt(role, saved)]
    if left_out:
        texts = ", ".join(f'{role}: "…"' for role in left_out)
        raise DataError(
            f"model {name!r}: its checkpoint has prompts of its own, which the entry does not mention: "
            f'{json.dumps(prompts, ensure_ascii=False)}. Add prompts: {{{texts}}} to models.{name}, or "" for none'
        )


def _has_prompt(role: str, saved: dict[str, Any]) -> bool:
    """Tell whether a text of this role may need a prompt of the checkpoint."""
    prompts = saved["prompts"]
    named = next((name for name in ((role,) if role == "query" else _DOCUMENT) if name in prompts), None)
    if named or saved.get("default_prompt_name"):
        return bool(prompts[named or saved["default_prompt_name"]])
    # Prompts with other names (s2p_query) count as query prompts, unless they are document prompts.
    return role == "query" and any(text for name, text in prompts.items() if name not in _DOCUMENT)


def check_use(folder: Path, kind: str, similarity: str) -> None:
    """Refuse a checkpoint that was saved as another class of sentence-transformers or with another similarity."""
    saved = settings(folder)
    if saved.get("model_type", kind) != kind:
        raise DataError(f"{folder} is saved as a {saved['model_type']}, not as a {kind}: give the entry its family")
    if key := next((key for key in ("truncate_dim", "max_active_dims") if saved.get(key)), ""):
        raise DataError(
            f"{folder}/config_sentence_transformers.json truncates vectors to {saved[key]} dimensions ({key}): set "
            "that to null. Systems of dense models have the key 'dimensions'"
        )
    own = saved.get("similarity_fn_name")
    # The library writes cosine by default. Unit vectors have the same ranking under every similarity.
    if own not in (None, "cosine", similarity) and not normalises(folder):
        raise DataError(
            f"{folder} has the similarity {own!r} (similarity_fn_name in its config_sentence_transformers.json), but "
            f"the entry's similarity is {similarity!r}: change the entry, or that file if it is wrong"
        )


def refuse_outside(folder: Path) -> None:
    """Refuse a checkpoint that refers to files outside of it or is an adapter: no record would hash all its weights."""
    root = os.path.normpath(folder)
    for path in sorted([*folder.rglob("*.index.json"), *folder.rglob("modules.json")]):
        with files.reading(path):
            listed = path.name == "modules.json"
            names = [module["path"] for module in modules(path.parent)] if listed else read(path)["weight_map"].values()
            outside = [name for name in names if not Path(os.path.normpath(path.parent / name)).is_relative_to(root)]
        if outside:
            raise DataError(
                f"{path} names {quoted(outside[0])}, which is outside of the checkpoint: copy that file into the "
                "checkpoint and change the name"
            )
    if adapter := next(iter(sorted(folder.rglob("adapter_config.json"))), None):
        raise DataError(
            f"{adapter} makes the checkpoint an adapter of another one: name the other one as checkpoint or path of "
            "the entry, and this one as its adapter"
        )


def modules(folder: Path) -> list[dict[str, Any]]:
    """Read the modules of a checkpoint, in order; empty without modules.json."""
    return list(read(folder / "modules.json", list[_Module]))


def normalises(folder: Path) -> bool:
    """Tell whether the last module of a checkpoint gives its vectors the length 1."""
    ordered = modules(folder)
    return bool(ordered) and str(ordered[-1]["type"]).endswith(".Normalize")
