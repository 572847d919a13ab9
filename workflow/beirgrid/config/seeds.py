"""Systems with ``seeds``: one member per seed, with models of its own where the workflow or the user trained them.

Member 1 has the models of the registry. Each further member has copies of the models that the workflow trains for the
system, with seeds that are one higher than those of the member before. Of a model that the user trained, each member
has the next folder. What no seed changes (other checkpoints, corpora, systems without such models) is shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import checks, entries
from .values import SEED_LIMIT


def member(name: str, number: int) -> str:
    """Return the name of a member of a system, or of a model that is made for it; the first number is 1."""
    return f"{name}.seed{number}"


def problems(config: entries.Config) -> Iterator[str]:
    """Yield systems that cannot have seeds, and systems of the grid whose parts have another number of seeds."""
    for name in checks.with_parts(config.systems, config.grid.systems):
        for part in config.systems[name].parts:
            if (seeds := config.systems[part].seeds) not in (None, config.systems[name].seeds):
                yield f"systems.{name}.seeds: its part {part!r} has {seeds} seeds, so it needs as many"
    for name, system in config.systems.items():
        if system.seeds and not _is_random(config, name):
            why = "the workflow trains none of its models, and none has a folder for each"
            yield f"systems.{name}.seeds: {name!r} does not depend on a seed: {why}"
    yield from _folder_problems(config)
    if any(system.seeds for system in config.systems.values()):
        for kind, registry in (("systems", config.systems), ("models", config.models)):
            for name in registry:
                if re.fullmatch(r".+\.seed\d+", name) and name.rpartition(".")[0] in registry:
                    yield f"{kind}.{name}: seeds need this name; rename the entry"


def _folder_problems(config: entries.Config) -> Iterator[str]:
    """Yield systems whose seeds are not as many as the folders of their models."""
    for name in checks.with_parts(config.systems, config.grid.systems):
        system = config.systems[name]
        for model in checks.models_behind(config, [name]):
            entry = config.models[model]
            count = len(entry.paths or ())
            if count and system.seeds != count:
                yield f"systems.{name}.seeds: models.{model}.paths names {count} folders, so it needs seeds: {count}"
            elif not system.seeds and entry.folder(1):
                yield f"systems.{name}: models.{model}.path has {{seed}}, so it needs seeds: how many there are"


def expand(config: entries.Config) -> entries.Config:
    """Return the configuration with the members of each system that has seeds, which stands for them from then on."""
    systems: dict[str, Any] = dict(config.systems)
    models: dict[str, Any] = dict(config.models)
    for name, system in config.systems.items():
        if not system.seeds:
            continue
        parts = [part for part in checks.with_parts(config.systems, [name]) if _is_random(config, part)]
        behind = [model for model in checks.models_behind(config, [name]) if _has_seed(config, model)]
        for number in range(1, system.seeds + 1):
            own = {"systems": {part: member(part, number) for part in parts}}
            own["models"] = {model: member(model, number) for model in behind if number > 1}
            for part, copy in own["systems"].items():
                systems[copy] = _copy(config.systems[part], own, seeds=None)
            for model in behind:
                if changes := _changes(config.models[model], own, number):
                    models[own["models"].get(model, model)] = _copy(config.models[model], own, **changes)
        made = tuple(member(name, number) for number in range(1, system.seeds + 1))
        systems[name] = entries.SeededSystem(members=made)
    return config.model_copy(update={"models": models, "systems": systems})


def _changes(entry: entries.ModelEntry, own: dict[str, dict[str, str]], number: int) -> dict[str, Any]:
    """Return the keys of a model that are others for a seed."""
    changes: dict[str, Any] = {}
    if folder := entry.folder(number):
        changes |= {"path": folder, "paths": None}
    if number > 1:
        changes["note"] = ""
    if number > 1 and (train := entry.training):
        changes["train"] = _copy(train, own, seed=(train.seed + number - 1) % SEED_LIMIT)
    return changes


def _is_random(config: entries.Config, system: str) -> bool:
    """Tell whether a seed affects the results of a system or of one of its components."""
    entry = config.systems[system]
    models = checks.models_of(config, entry)
    return any(_has_seed(config, model) for model in models) or any(_is_random(config, part) for part in entry.parts)


def _has_seed(config: entries.Config, name: str) -> bool:
    """Tell whether a model, or the one that encodes its queries, is trained here or has a folder for each seed."""
    model = config.models[name]
    return any(entry.training or entry.folder(1) for entry in (model, config.models[model.query_tower or name]))


def _copy(entry: entries.Entry, copies: Mapping[str, Mapping[str, str]], **changes: Any) -> Any:
    """Copy an entry, with changes and with the copies of the systems and models that it names."""
    for registry, names in copies.items():
        for key in {key for key, _ in entry.references(registry)}:
            value = getattr(entry, key)
            changes[key] = names.get(value, value) if isinstance(value, str) else tuple(names.get(n, n) for n in value)
    return entry.model_copy(update=changes)
