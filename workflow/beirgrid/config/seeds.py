"""Systems with ``seeds``: one member per seed, with models of its own where training or sampling is random.

Member 1 has the models of the registry. Each further member has copies of the models that the workflow trains for the
system, or that sample its expansions, and the seeds of these copies are one higher than those of the member before.
What no seed changes (other checkpoints, corpora, systems without such models) is shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
        if system.seeds and not _is_random(config, system):
            why = "the workflow trains none of its models, and none of them samples its expansions"
            yield f"systems.{name}.seeds: {name!r} does not depend on a seed: {why}"
    if any(system.seeds for system in config.systems.values()):
        for kind, registry in (("systems", config.systems), ("models", config.models)):
            for name in registry:
                if re.fullmatch(r".+\.seed\d+", name) and name.rpartition(".")[0] in registry:
                    yield f"{kind}.{name}: seeds need this name; rename the entry"


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
    models = (config.models[name] for name in checks.models_of(config, system))
    return any(map(_has_seed, models)) or any(_is_random(config, config.systems[part]) for part in system.parts)


def _has_seed(model: entries.ModelEntry) -> bool:
    """Tell whether a model that a system runs depends on a seed. A query generator samples expansions there."""
    return model.training is not None or isinstance(model, entries.QueryGenerator)


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
            self.systems[made] = entry.model_copy(update={"seeds": None, **self._names(entry, number)})
        return made

    def model(self, name: str, number: int) -> str:
        """Return the model that a member has in place of a model, after adding it; the model if no seed changes it."""
        made, towers = member(name, number), [name, getattr(self.config.models.get(name), "query_model", None)]
        if number == 1 or not any(
            _has_seed(self.config.models[tower]) for tower in towers if tower in self.config.models
        ):
            return name
        if made not in self.models:
            self.models[made] = self._copy(name, self.config.models[name], number)
        return made

    def _names(self, entry: entries.Entry, number: int, stays: str = "") -> dict[str, Any]:
        """Return the keys of an entry, but one, that name systems or models, with the names that a member has there."""
        names: dict[str, Any] = {}
        for registry, find in (("systems", self.system), ("models", self.model)):
            for key in {key for key, _ in entry.references(registry)} - {stays}:
                value = getattr(entry, key)
                names[key] = (
                    find(value, number) if isinstance(value, str) else tuple(find(one, number) for one in value)
                )
        return names

    def _copy(self, name: str, entry: entries.ModelEntry, number: int) -> entries.ModelEntry:
        if isinstance(entry, entries.QueryGenerator):
            seed = (entry.seed + number - 1) % SEED_LIMIT
            values = dict(entry) | {"seed": seed, "weights": name, "note": ""}
            return entries.ReseededGenerator.model_construct(entry.model_fields_set | {"seed", "weights"}, **values)
        changes: dict[str, Any] = {"note": "", **self._names(entry, number)}
        if train := entry.training:
            # A generator writes training queries with the seed of the recipe, not with its own.
            seed = (train.seed + number - 1) % SEED_LIMIT
            changes["train"] = train.model_copy(update={"seed": seed, **self._names(train, number, "generator")})
        return entry.model_copy(update=changes)
