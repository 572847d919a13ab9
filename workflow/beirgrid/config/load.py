"""Validate the merged YAML configuration.

Snakemake's parsing of the Snakefile imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ..core.errors import ConfigError, printable
from ..core.families import RETRIEVERS
from . import checks, entries, names, seeds
from .entries import Config
from .metric_names import MAIN
from .values import REGISTRIES, explain


def load(raw: Mapping[str, Any]) -> Config:
    """Check the merged configuration and return it typed.

    Raises:
        ConfigError: one message that lists all problems.
    """
    problems: list[str] = []
    for key in ("grid", *REGISTRIES):
        _validated(_GRID if key == "grid" else _ENTRIES, raw.get(key), key, {}, problems)
    refuse(problems)
    raw = names.expand(raw)
    registered = _validated(_REGISTERED, {key: raw[key] for key in raw if key != "systems"}, "", raw, problems)
    systems = {
        name: _validated(_kind_of_system(value, raw["models"]), value, f"systems.{name}", raw, problems)
        for name, value in raw["systems"].items()
    }
    _validated(_NAMES, dict.fromkeys(systems), "systems", raw, problems)
    refuse(problems)
    config = Config.model_construct(registered.model_fields_set | {"systems"}, **dict(registered), systems=systems)
    refuse(checks.entry_problems(config))
    config = config.model_copy(update={"metrics": _metrics(config)})
    refuse([*seeds.problems(config), *checks.grid_problems(config)])
    config = _with_derived_models(seeds.expand(config))
    return config.model_copy(update={"models": _with_models_per_corpus(config)})


def refuse(problems: Iterable[str]) -> None:
    """Raise ConfigError if there are problems, with a line for each."""
    shown = (one if len(one) < 1000 else f"{one[:200]} … {one[-300:]}" for one in dict.fromkeys(problems))
    if lines := ["  - " + printable(one) for one in shown]:
        raise ConfigError("\n".join(["the configuration cannot be run:", *lines]))


class _Registered(entries.Settings):
    """All but the systems: the class of a system follows from its keys and from the family of its model."""

    corpora: dict[entries.Name, entries.Corpus]
    datasets: dict[entries.Name, entries.Dataset]
    models: dict[entries.Name, entries.Model]


_GRID: TypeAdapter[Any] = TypeAdapter(dict[Any, Any])
_ENTRIES: TypeAdapter[Any] = TypeAdapter(dict[Any, dict[Any, Any]])
_REGISTERED: TypeAdapter[Any] = TypeAdapter(_Registered)
_NAMES: TypeAdapter[Any] = TypeAdapter(dict[entries.Name, None])
_Fusion = Annotated[entries.Rrf | entries.WeightedSum, Field(discriminator="fusion")]
# Keys that a system needs, by kind. Those of retrievers come last.
_NEEDED = {
    kind: {key for key, field in kind.model_fields.items() if field.is_required()}
    for kind in sorted(entries.KINDS, key=lambda kind: "retriever" in kind.model_fields)
}
_adapter = cache(TypeAdapter)  # of a class; each takes milliseconds


def _validated(kind: TypeAdapter[Any], value: Any, where: str, raw: Mapping[str, Any], problems: list[str]) -> Any:
    """Validate a value as its class; return None after appending its mistakes to ``problems``."""
    try:
        return kind.validate_python(value, context=raw)
    except ValidationError as error:
        problems.extend(explain(error, where, value))
        return None


def _kind_of_system(entry: Mapping[str, Any], models: Mapping[str, Any]) -> TypeAdapter[Any]:
    """Return the class of a system: the one that needs most of its keys and, of a retriever, by its model's family."""
    kind = max(_NEEDED, key=lambda kind: len(_NEEDED[kind].intersection(entry)))
    if "retriever" not in kind.model_fields and _NEEDED[kind].intersection(entry):
        return _adapter(_Fusion if issubclass(kind, entries.Fused) else kind)
    if (name := str(entry.get("retriever"))) == "bm25":
        return _adapter(entries.Bm25)
    family = str(entries.HEADS.get(str(entry.get("head")), models.get(name, {}).get("family", "dense")))
    return _adapter(entries.retriever_of(family) if family in RETRIEVERS else entries.Retriever)


def _metrics(config: Config) -> tuple[str, ...]:
    """Return the metrics of the grid, with the main metric of its datasets in place of ``main`` if they share one."""
    shared = {dataset.metric for dataset in checks.searched_datasets(config).values()}
    if MAIN not in config.metrics or len(shared) != 1:
        return config.metrics
    (metric,) = shared
    return tuple(metric if name == MAIN else name for name in config.metrics if name != metric)


def _with_derived_models(config: Config) -> Config:
    """Return the configuration with a copy of the model of each system that has chunks or a head.

    Its name is ``{model}~{chunks}`` or ``{model}~{head}``.
    """
    models, systems = dict(config.models), dict(config.systems)
    for name, system in config.systems.items():
        chunks, head = getattr(system, "chunks", None), getattr(system, "head", None)
        if chunks or head:
            key = "reranker" if isinstance(system, entries.Reranked) else "retriever"
            model = models[getattr(system, key)]
            derived = f"{getattr(system, key)}~{chunks.name if chunks else head}"
            systems[name] = system.model_copy(update={key: derived})
            models[derived] = entries.of_head(model, head) if head else model.model_copy(update={"chunks": chunks})
    return config.model_copy(update={"models": models, "systems": systems})


def _with_models_per_corpus(config: Config) -> Mapping[str, entries.ModelEntry]:
    """Return the registered models and, of each template, ``{model}@{corpus}`` for each corpus of the grid.

    An entry of that name stands in place of the template's.
    """
    models = dict(config.models)
    corpora = {dataset.corpus for dataset in checks.searched_datasets(config).values()}
    corpora |= {model.training.corpus for model in models.values() if model.training}
    for name, model in config.models.items():
        if (train := model.training) and model.per_corpus:
            for corpus in filter(None, corpora):
                one = train.model_copy(update={"corpus": corpus})
                models.setdefault(f"{name}@{corpus}", model.model_copy(update={"train": one}))
    return models
