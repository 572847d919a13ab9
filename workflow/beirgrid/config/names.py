"""Resolve names without an entry: model ids on the hub, and mteb's tasks.

A name becomes an entry: mteb's facts from the lock file, and what the configuration says of it, which wins key by key.
Names that the lock file lacks are resolved once, which imports mteb.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

from ..core.errors import ConfigError, nearest
from . import lock, mteb_collections, registry
from .registry import mteb_names
from .systems import kinds

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
# Keys of a system that name models.
_MODELS = ("retriever", "reranker", "expansion")
_LONGEST = 80  # characters of a name
# Models that mteb loads without the code of their checkpoints, but whose published scores were measured before mteb had
# a loader for them. Their authors describe attention in both directions, which is in that code.
_WITH_CODE = (
    "HIT-TMG/KaLM-embedding-multilingual-mini-instruct-v2",
    "KaLM-Embedding/KaLM-embedding-multilingual-mini-instruct-v2.5",
)


def local_name(identifier: str) -> str:
    """Return the name of a model, and of its system, in files and tables: owner__name, as mteb's results have it."""
    return identifier.replace("/", "__")[-_LONGEST:].lstrip("._+@-")


def expand(raw: Mapping[str, Any], registered: Iterable[str]) -> Mapping[str, Any]:
    """Return a configuration with entries for each model and collection that mteb lists, and with systems for models.

    The id of a registered model's checkpoint stands for its entry. Raise ConfigError for another model that mteb does
    not list, or that beirgrid cannot run.
    """
    models = {name: raw["models"][name] for name in registered if name in raw["models"]}
    return _with_models(*_with_collections(raw), _by_checkpoint(models))


def _with_collections(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return a configuration with entries for mteb's tasks and benchmarks; and mteb's tasks by all datasets."""
    own = raw["datasets"]
    named = raw["grid"].get("datasets")
    if not isinstance(named, list) or not all(isinstance(row, str) for row in named):
        return raw, mteb_names()  # the validation refuses it
    kept = _kept_by_slices(own)
    unknown = [row for row in (*named, *kept) if not _is_whole(own.get(row, {}))]
    if not unknown:
        return raw, mteb_names()
    locked = _collection_facts(unknown, [*map(str, own)])
    rows: list[str] = []
    for name in named:
        benchmark = locked["benchmarks"].get(name, {})
        rows += benchmark.get("rows", [name])
    datasets, corpora = _with_facts(raw, [*rows, *kept], locked["datasets"])
    # Models read no query of a dataset that only chooses those of slices: it changes none of their prompts.
    only_kept = {*kept} - {*rows}
    read = [row for row in datasets if row in locked["datasets"] and row not in only_kept]
    tasks = mteb_names() | {row: locked["datasets"][row]["task"] for row in read}
    grid = {**raw["grid"], "datasets": list(dict.fromkeys(rows))}
    return {**raw, "grid": grid, "datasets": datasets, "corpora": corpora}, tasks


def _with_facts(
    raw: Mapping[str, Any], needed: list[str], locked: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the datasets and the corpora of a configuration with those that are needed and that mteb lists."""
    datasets = dict(raw["datasets"])
    corpora = dict(raw["corpora"])
    for row in needed:
        own = raw["datasets"].get(row, {})
        if not _is_whole(own) and (facts := locked.get(row)):
            datasets[row] = _over(facts["dataset"], own)
            needed += facts["dataset"].get("mean_of", [])
            if "corpus" in facts:
                corpora[row] = _over(facts["corpus"], corpora.get(row, {}))
    return datasets, corpora


def _is_whole(dataset: Mapping[str, Any]) -> bool:
    """Tell whether a dataset has an entry of its own, and not only keys over those that mteb states."""
    return "corpus" in dataset or "mean_of" in dataset


def _kept_by_slices(datasets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the datasets that slices name."""
    kept: list[str] = []
    for entry in datasets.values():
        slices = entry.get("slices")
        for keys in slices.values() if isinstance(slices, dict) else ():
            if isinstance(keys, dict):
                kept += [str(keys[key]) for key in ("dataset", "seen_in") if key in keys]
    return kept


def _collection_facts(unknown: Iterable[str], registered: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the locked collections, after adding unknown ones that mteb lists."""
    known = lock.names()
    new: dict[str, dict[str, Any]] = {"benchmarks": {}, "datasets": {}}
    for name in (name for name in unknown if name not in known["benchmarks"]):
        collection = mteb_collections.collection(name)
        if collection is not None:
            new["datasets"] |= collection.pop("datasets")
            new["benchmarks"][name] = collection
        elif not nearest(name, registered) and (near := nearest(name, mteb_collections.collection_names())):
            raise ConfigError(f"grid.datasets: neither the configuration nor mteb lists {name!r}{near}")
    return lock.add(new)  # the checks report an unknown dataset


def _with_models(
    raw: Mapping[str, Any], task_of: Mapping[str, str], registered: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return a configuration with entries for the models that it names by ids, and systems where it needs them."""
    own = {name: entry for name, entry in raw["models"].items() if _is_id(name)}
    naming = (raw["grid"], *raw["systems"].values())
    columns = _ids(naming, _systems())
    named = [*own, *columns, *_ids(naming, _MODELS)]
    wanted = dict.fromkeys(name for name in named if "family" not in own.get(name, ()))
    if not wanted and not own:
        return raw
    _refuse_twins([*raw["models"], *wanted])
    tasks = {row: task_of[row] for row in raw["datasets"] if row in task_of}
    new_tasks = {task for row, task in tasks.items() if row not in mteb_names()}
    locked = _locked_models(wanted, own, new_tasks, registered.keys())
    names = {name: local_name(name) for name in (*own, *wanted)}
    models = {name: entry for name, entry in raw["models"].items() if name not in own}
    for name, entry in own.items():
        models[local_name(name)] = entry if "endpoint" in entry else {"checkpoint": name, **entry}
    for name in wanted:
        if (facts := locked.get(name)) and facts["entry"]:
            models[local_name(name)] = _entry(name, facts, own.get(name, {}), tasks)
        elif name in own:
            models[local_name(name)] = _over(models[registered[name]], own[name])
        else:
            names[name] = registered[name]
    systems = _with_systems(raw["systems"], columns, names)
    return {**raw, "models": models, "systems": systems, "grid": _with_local_names(raw["grid"], names)}


def _refuse_twins(models: Iterable[str]) -> None:
    """Raise ConfigError if two models have one local name: one of them would run under both names."""
    named: dict[Any, str] = {}
    for name in models:
        if (other := named.setdefault(_local(name, {}), name)) != name:
            raise ConfigError(
                f"models: {other} and {name} have the same name in files and tables, {_local(name, {})}. Give one of "
                "them an entry under another name, with the key checkpoint"
            )


def _with_systems(entries: Mapping[str, Any], columns: Iterable[str], models: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of systems, with one for each model whose id is a column of the grid."""
    systems: dict[str, Any] = {name: _with_local_names(entry, models) for name, entry in entries.items()}
    for name in columns:
        system = {"retriever": models[name]}
        if systems.setdefault(local_name(name), system) != system:
            raise ConfigError(f"systems.{local_name(name)} is another system than that of {name}: give it another name")
    return systems


@cache
def _systems() -> tuple[str, ...]:
    """Return the keys of the grid and of a system that name systems."""
    return ("systems", "baseline", "compare", *(key for kind in kinds() for key in kind.keys_to("systems")))


def _is_id(name: Any) -> bool:
    return isinstance(name, str) and bool(_ID.fullmatch(name))


def _ids(entries: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> list[str]:
    """Return the ids on the hub that stand under some keys of entries, alone or in lists."""
    found = [entry.get(key) for entry in entries for key in keys]
    values = [value if isinstance(value, list) else [value] for value in found]
    return [str(name) for value in values for name in value if _is_id(name)]


def _local(value: Any, models: Mapping[str, str]) -> Any:
    """Return a name, or a list of names, with ids by the names of their models or else in their local form."""
    if isinstance(value, list):
        return [_local(item, models) for item in value]
    return models.get(value, local_name(value)) if _is_id(value) else value


def _with_local_names(entry: Mapping[str, Any], models: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of the grid or a system with ids by the names of their models and systems."""
    changed = dict(entry)
    for key, value in entry.items():
        if key in _MODELS:
            changed[key] = _local(value, models)
        elif key in _systems():
            changed[key] = _local(value, {})
    return changed


def _by_checkpoint(models: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the first entry of each checkpoint."""
    found = dict[str, str]()
    for name, entry in models.items():
        if isinstance(entry, Mapping) and entry.keys() >= {"family", "checkpoint"}:
            found.setdefault(str(entry["checkpoint"]), name)
    return found


def _locked_models(
    wanted: Iterable[str], own: Mapping[str, Mapping[str, Any]], tasks: set[str], registered: Collection[str]
) -> Mapping[str, Any]:
    """Return mteb's facts of models from the lock file, after adding missing models and prompts.

    mteb is asked about a registered checkpoint only for tasks whose prompts and training data its entry does not know.
    The facts of one that mteb does not list have no entry: it is that of the configuration.
    """
    locked = lock.names()["models"] if wanted else {}
    # Those with several texts before documents are of an earlier version: mteb's loader runs these models now.
    current = {name: facts for name, facts in locked.items() if "documents" not in facts}
    known = {name: facts for name, facts in current.items() if facts["entry"] or name in registered}
    new = {}
    for name in wanted:
        trusted = own.get(name, {}).get("trust_remote_code") is True
        if name in known and _suffice(known[name], tasks, trusted):
            continue
        if name in registered and not (name in known or tasks):
            continue
        if name in registered and not registry.lists(name):
            new[name] = {"mteb": registry.mteb_version(), "entry": {}, "code": False, "trained_on": None}
        else:
            new[name] = _looked_up(name, known.get(name, {}), tasks, trusted)
    return lock.add({"models": new})["models"] if new else known


def _suffice(facts: Mapping[str, Any], tasks: set[str], trusted: bool) -> bool:
    """Tell whether facts of a model need no look-up.

    It adds prompts of tasks, and refuses code that only another grid trusts. Older facts do not say if there is any.
    """
    runs_no_code = facts.get("code") is False
    return tasks <= set(facts.get("tasks", tasks)) and (trusted or runs_no_code)


def _looked_up(name: str, before: Mapping[str, Any], tasks: set[str], trusted: bool) -> dict[str, Any]:
    """Return mteb's facts of a model. What the lock file had before stays; prompts of further tasks join it."""
    facts = registry.model_facts(name, sorted(tasks | set(before.get("tasks", ()))), trusted)
    merged = facts | dict(before)
    merged |= {key: facts[key] for key in ("tasks", "code") if key in facts}
    if "queries" in facts:
        merged["queries"] = facts["queries"] | before.get("queries", {})
    return merged


def _entry(name: str, facts: Mapping[str, Any], own: Mapping[str, Any], tasks: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of a model: mteb's facts and, over them, what the configuration says."""
    if unmet := registry.unmet_need(facts.get("transformers", "")):  # another version wrote the lock file
        raise ConfigError(f"{name} cannot be used by its name: {unmet}")
    entry = dict(facts["entry"])
    if queries := facts.get("queries"):
        general = entry["prompts"]["query"]
        texts = {row: queries.get(task, general) for row, task in tasks.items()}
        differ = {row: {"query": text} for row, text in texts.items() if text != general}
        entry["prompts"] = {**entry["prompts"], "datasets": differ}
    if entry.get("engine") == "mteb" or entry.get("prompts", {}).get("own"):
        entry["tasks"] = dict(tasks)
    # mteb opens the others without the checkpoint's code, so the class of transformers is right.
    if "engine" not in entry and name not in _WITH_CODE:
        entry["trust_remote_code"] = False
    if facts["trained_on"] is not None:
        # mteb counts what is left of a decontaminated set among the training data, too.
        stated = {task for task in facts["trained_on"] if not task.endswith("Decontaminated")}
        rows = [row for row, task in tasks.items() if task in stated]
        entry["trained_on"] = {"names": rows, "source": f"mteb {facts['mteb']}, training_datasets of {name}"}
    said = f"; from the configuration: {', '.join(sorted(map(str, own)))}" if own else ""
    return _over({**entry, "source": f"mteb {facts['mteb']}{said}"}, own)


def _over(entry: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the keys of another entry over an entry, recursively."""
    merged = dict(entry)
    for key, value in own.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
