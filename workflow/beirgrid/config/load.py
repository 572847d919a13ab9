"""Validate the merged YAML configuration.

Snakemake's parsing of the Snakefile imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..core.errors import ConfigError, printable, quoted
from ..core.families import FAMILIES, RETRIEVERS
from . import checks, entries, names, seeds
from .entries import Config
from .messages import explain
from .values import REGISTERED

REGISTRIES = ("corpora", "datasets", "models", "systems")


def load(raw: Mapping[str, Any]) -> Config:
    """Check the merged configuration and return it typed.

    Raises:
        ConfigError: one message that lists all problems.
    """
    problems: list[str] = []
    refuse(
        f"{key}: should be a mapping of names to entries (here {quoted(raw.get(key))})"
        for key in REGISTRIES
        if not isinstance(raw.get(key), Mapping)
    )
    raw = names.expand(raw)
    own = {key: value for key, value in raw.items() if key not in REGISTRIES}
    settings = _validated(_SETTINGS, own, "", problems)
    registries = {key: dict(_entries(key, raw, problems)) for key in REGISTRIES}
    refuse(problems)
    values: dict[str, Any] = {key: getattr(settings, key) for key in entries.Settings.model_fields} | registries
    config = Config.model_construct(settings.model_fields_set | set(REGISTRIES), **values)
    refuse(checks.registry_problems(config))
    refuse(checks.cycle_problems(config))
    refuse([*seeds.problems(config), *checks.grid_problems(config)])
    config = _with_derived_models(seeds.expand(config))
    return config.model_copy(update={"models": _with_models_per_corpus(config)})


def refuse(problems: Iterable[str]) -> None:
    """Raise ConfigError if there are problems."""
    if problems := list(problems):
        raise ConfigError("the configuration cannot be run:\n" + "\n".join(map(_line, problems)))


def _line(problem: str) -> str:
    """Format a problem as a single line of the message."""
    shown = problem if len(problem) < 1000 else f"{problem[:200]} … {problem[-300:]}"
    return "  - " + printable(shown)


def _entries(registry: str, raw: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the valid entries of a registry by name; append the others' mistakes to ``problems``."""
    for name, value in raw[registry].items():
        _validated(_NAME, name, f"{registry}: the name", problems)
        where, kind = f"{registry}.{name}", _KINDS[registry]
        if registry == "systems" and isinstance(value, Mapping):
            try:
                kind = TypeAdapter(_system_class(value, raw["models"]))
            except ConfigError as error:
                problems.append(f"{where}{error}")
                continue
        if (entry := _validated(kind, value, where, problems)) is not None:
            yield name, entry


_NAME: TypeAdapter[Any] = TypeAdapter(entries.Name)
_SETTINGS: TypeAdapter[Any] = TypeAdapter(entries.Settings)
_KINDS: dict[str, TypeAdapter[Any]] = {
    "corpora": TypeAdapter(entries.Corpus),
    "datasets": TypeAdapter(entries.Dataset),
    "models": TypeAdapter(entries.Model),
    "systems": TypeAdapter(entries.Retriever),
}


def _validated(kind: TypeAdapter[Any], value: Any, where: str, problems: list[str]) -> Any:
    """Validate a value as its class; return None after appending its mistakes to ``problems``."""
    try:
        return kind.validate_python(value, context=REGISTERED)
    except ValidationError as error:
        problems.extend(explain(error, where, value))
        return None


def _system_class(entry: Mapping[str, Any], models: Mapping[str, Any]) -> type[entries.SystemEntry]:
    """Return the class of a system by its keys; raise ConfigError with the message after the system's name."""
    if "fusion" in entry or "of" in entry:
        kinds: dict[str, type[entries.SystemEntry]] = {"rrf": entries.Rrf, "wsum": entries.WeightedSum}
        if str(entry.get("fusion")) not in kinds:
            raise ConfigError(f".fusion: {quoted(entry.get('fusion'))} is not one of {', '.join(kinds)}")
        return kinds[entry["fusion"]]
    if "reranker" in entry or "first_stage" in entry:
        return entries.Reranked
    if "run" in entry:
        return entries.External
    if "command" in entry or "index_command" in entry:
        return entries.Program
    if "retriever" not in entry:
        raise ConfigError(": needs one of the keys retriever, reranker, fusion, run, command")
    if entry["retriever"] == "bm25":
        return entries.Bm25
    model = models.get(entry["retriever"]) if isinstance(entry["retriever"], str) else None
    family = model.get("family") if isinstance(model, Mapping) else "dense"
    family = entries.HEADS.get(str(entry.get("head")), family)
    if str(family) not in FAMILIES:  # reported by the model's own check
        return entries.Retriever
    if family not in RETRIEVERS:
        raise ConfigError(f".retriever: {entry['retriever']!r} is a {family} model; a retriever is needed here")
    return entries.retriever_of(str(family))


def _with_derived_models(config: Config) -> Config:
    """Return the configuration with a copy of the model of each system that has chunks or a head.

    Its name is ``{model}~{chunks}`` or ``{model}~{head}``.
    """
    models, systems = dict(config.models), dict(config.systems)
    for name, system in config.systems.items():
        key = "reranker" if isinstance(system, entries.Reranked) else "retriever"
        model = getattr(system, key, "")
        if chunks := getattr(system, "chunks", None):
            derived, entry = f"{model}~{chunks.name}", models[model].model_copy(update={"chunks": chunks})
        elif head := getattr(system, "head", None):
            dense = models[model]
            assert isinstance(dense, entries.DenseModel), "checks.py refuses others"
            derived, entry = f"{model}~{head}", entries.of_head(dense, head)
        else:
            continue
        systems[name], models[derived] = system.model_copy(update={key: derived}), entry
    return config.model_copy(update={"models": models, "systems": systems})


def _with_models_per_corpus(config: Config) -> Mapping[str, entries.ModelEntry]:
    """Return the registered models and, of each template, ``{model}@{corpus}`` for each corpus of the grid."""
    models = dict(config.models)
    corpora = checks.searched_corpora(config)
    corpora |= {model.training.corpus or "" for model in models.values() if model.training and not model.per_corpus}
    for name, model in config.models.items():
        for corpus in sorted(corpora - {""}) if model.per_corpus else ():
            assert model.training is not None
            train = model.training.model_copy(update={"corpus": corpus})
            models[f"{name}@{corpus}"] = model.model_copy(update={"train": train})
    return models
