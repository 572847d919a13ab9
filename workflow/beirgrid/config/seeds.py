"""Systems with ``seeds``: one member per seed, with models of its own where training or sampling is random.

Member 1 has the models of the registry. Each further member has copies of the models that the workflow trains for the
system, or that sample its expansions, and the seeds of these copies are one higher than those of the member before.
A model that its user trained once per seed has ``{seed}`` in its path, or a list of paths: each member has a copy with
the folder of its number. What no seed changes (other checkpoints, corpora, systems without such models) is shared.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from . import checks, entries
from .models import SEED
from .places import is_folder, resolve_path
from .values import SEED_LIMIT


def member(name: str, number: int) -> str:
    """Return the name of a member of a system, or of a model that is made for it; the first number is 1."""
    return f"{name}.seed{number}"


def problems(config: entries.Config) -> Iterator[str]:
    """Yield systems that cannot have seeds, and systems of the grid whose parts have another number of seeds."""
    for name in checks.with_parts(config.systems, config.grid.systems):
        system, where = config.systems[name], f"systems.{name}"
        for part in system.parts:
            if config.systems[part].seeds not in (None, system.seeds):
                yield f"{where}.seeds: its part {part!r} has {config.systems[part].seeds} seeds, so it needs as many"
        for model in checks.trained_with(config, checks.models_of(config, system)):
            if config.models[model].folders:
                yield from _folder_problems(f"models.{model}.path", config.models[model], system.seeds)
    for name, system in config.systems.items():
        if system.seeds and not _is_random(config, system):
            why = "the workflow trains none of its models, and none of them samples its expansions"
            hint = "for checkpoints of your own, one per seed, put {seed} into the model's path"
            yield f"systems.{name}.seeds: {name!r} does not depend on a seed: {why} ({hint})"
    if any(system.seeds for system in config.systems.values()):
        for kind, registry in (("systems", config.systems), ("models", config.models)):
            for name in registry:
                if re.fullmatch(r".+\.seed\d+", name) and name.rpartition(".")[0] in registry:
                    yield f"{kind}.{name}: seeds need this name; rename the entry"


def _folder_problems(where: str, model: entries.ModelEntry, seeds: int | None) -> Iterator[str]:
    """Yield problems of a model's folders per seed: an absent one, or two with the same weights."""
    if seeds is None or (isinstance(model.path, tuple) and len(model.path) != seeds):
        yield f"{where}: is one folder for each seed, and the systems of the model must have as many seeds"
        return
    folders = [resolve_path(_folder(model, number)) for number in range(1, seeds + 1)]
    yield from (problem for folder in folders for problem in checks.folder_problems(where, folder))
    for first, second in combinations(filter(is_folder, folders), 2):
        if _same_weights(first, second):
            yield f"{where}: two seeds have the same weights ({first}, {second}); copy the right ones"


def _same_weights(one: Path, other: Path) -> bool:
    """Tell whether two folders have equal files of weights, and at least one."""
    names = [
        sorted(path.relative_to(folder) for kind in ("*.safetensors", "*.bin") for path in folder.rglob(kind))
        for folder in (one, other)
    ]
    return names[0] == names[1] != [] and all(filecmp.cmp(one / name, other / name, shallow=False) for name in names[0])


def _folder(model: entries.ModelEntry, number: int) -> str:
    path = model.path[number - 1] if isinstance(model.path, tuple) else model.path or ""
    return path.replace(SEED, str(number))


def expand(config: entries.Config) -> entries.Config:
    """Return the configuration with the members of each system that has seeds, which stands for them from then on."""
    members = _Members(config)
    for name, system in config.systems.items():
        if system.seeds:
            made = tuple(members.system(name, number) for number in range(1, system.seeds + 1))
            members.systems[name] = entries.Repeated(members=made)
    return config.model_copy(update={"models": members.models, "systems": members.systems})


def _is_random(config: entries.Config, system: entries.SystemEntry) -> bool:
    """Tell whether a seed affects the results of a system or of one of its components."""
    models = [config.models[name] for name in checks.models_of(config, system)]
    return any(map(_has_seed, models)) or any(_is_random(config, config.systems[part]) for part in system.parts)


def _has_seed(model: entries.ModelEntry) -> bool:
    """Tell whether a model that a system runs depends on a seed. A query generator samples expansions there."""
    return model.training is not None or isinstance(model, entries.QueryGenerator) or model.folders


def _reseeded(seed: int, number: int) -> int:
    return (seed + number - 1) % SEED_LIMIT


class _Members:
    """The registries, with the entries that members add to them."""

    def __init__(self, config: entries.Config) -> None:
        self.config = config
        self.models: dict[str, Any] = dict(config.models)
        self.systems: dict[str, Any] = dict(config.systems)

    def system(self, name: str, number: int) -> str:
        """Return the name of a member of a system, after adding it; the system itself if no seed changes it."""
        entry, made = self.config.systems[name], member(name, number)
        if not _is_random(self.config, entry):
            return name
        if made not in self.systems:
            self.systems[made] = entry.model_copy(update={"seeds": None, **self._parts(entry, number)})
        return made

    def _parts(self, entry: entries.SystemEntry, number: int) -> dict[str, Any]:
        """Return the keys of a system's entry that name models and systems, with the names that a member has there."""
        values = {key: getattr(entry, key, None) for key in ("retriever", "reranker", "expansion")}
        names: dict[str, Any] = {
            key: self.model(value, number) for key, value in values.items() if value in self.config.models
        }
        if first_stage := getattr(entry, "first_stage", None):
            names["first_stage"] = self.system(first_stage, number)
        if parts := getattr(entry, "of", None):
            names["of"] = tuple(self.system(part, number) for part in parts)
        return names

    def model(self, name: str, number: int) -> str:
        """Return the model that a member has in place of a model, after adding it; the model if no seed changes it."""
        entry, made = self.config.models[name], member(name, number)
        towers = [tower for tower in (name, entry.query_tower) if tower]
        behind = checks.trained_with(self.config, towers)
        unchanged = number == 1 and not any(self.config.models[other].folders for other in behind)
        if unchanged or not any(_has_seed(self.config.models[tower]) for tower in towers):
            return name
        if made not in self.models:
            self.models[made] = self._copy(name, entry, number)
        return made

    def _copy(self, name: str, entry: entries.ModelEntry, number: int) -> entries.ModelEntry:
        if isinstance(entry, entries.QueryGenerator) and not entry.folders:
            values = {key: getattr(entry, key) for key in entries.QueryGenerator.model_fields}
            values |= {"seed": _reseeded(entry.seed, number), "weights": name, "note": ""}
            return entries.ReseededGenerator.model_construct(entry.model_fields_set | {"seed", "weights"}, **values)
        changes: dict[str, Any] = {"note": "", **({"path": _folder(entry, number)} if entry.folders else {})}
        if isinstance(entry, entries.QueryGenerator):
            changes["seed"] = _reseeded(entry.seed, number)
        if entry.query_tower:
            changes["query_model"] = self.model(entry.query_tower, number)
        if entry.training:
            changes["train"] = self._training(entry.training, number)
        return entry.model_copy(update=changes)

    def _training(self, train: entries.Training, number: int) -> entries.Training:
        # A generator writes training queries with the seed of the recipe, not with its own.
        models = {key: model for key, model in train.models.items() if key != "generator"}
        others: dict[str, Any] = {key: self.model(model, number) for key, model in models.items()}
        if isinstance(train, entries.Gpl) and train.retrievers:
            miners = (miner if miner == "bm25" else self.model(miner, number) for miner in train.retrievers)
            others["retrievers"] = tuple(miners)
        return train.model_copy(update={"seed": _reseeded(train.seed, number), **others})
