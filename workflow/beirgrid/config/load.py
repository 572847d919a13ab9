"""Read, merge and validate the YAML configuration.

Snakemake's parsing of the Snakefile imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from ..core.checkout import CHECKOUT
from ..core.errors import ConfigError, printable, quoted
from ..measures import MAIN
from . import checks, entries, names, seeds
from .entries import Config
from .values import mistakes

# The keys of all entries.
_KEYS = {key for kind in vars(entries).values() for key in getattr(kind, "model_fields", ())}


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration over the registry and the settings that come with beirgrid."""
    from snakemake.utils import update_config

    raw: dict[str, Any] = {}
    for name in ("datasets", "systems", "config"):
        update_config(raw, _registry(name))
    update_config(raw, config)
    return raw


@cache
def _registry(name: str) -> Any:
    """Return the content of a file that comes with beirgrid."""
    return read_yaml(CHECKOUT / "config" / f"{name}.yaml")


def merged(
    configfiles: Sequence[Path] = (), settings: Sequence[str] = (), more: Mapping[str, Any] | None = None
) -> Config:
    """Return the configuration of a grid without running Snakemake.

    Args:
        configfiles: merged over what comes with beirgrid.
        settings: words KEY=VALUE of ``--config``, over the files.
        more: keys over all of them.

    Raises:
        ConfigError: a file or a word cannot be read, or the configuration cannot be run.
    """
    from snakemake.cli import parse_config
    from snakemake.common.configfile import load_configfile
    from snakemake.utils import update_config
    from snakemake_interface_common.exceptions import WorkflowError

    raw = with_defaults({})
    for path in configfiles:
        try:
            update_config(raw, load_configfile(path))
        except (WorkflowError, UnicodeDecodeError) as error:
            read_yaml(path)  # which names the line; Snakemake does not
            raise ConfigError(f"{path}: {error}") from None
    try:
        update_config(raw, given := parse_config(list(settings)))
        update_config(raw, more or {})
    except ValueError as error:
        raise ConfigError(f"--config: {error}") from None
    refuse_misread(configfiles, given, raw)
    return load(raw)


def load(raw: Mapping[str, Any]) -> Config:
    """Check the merged configuration and return it typed; raise ConfigError with all problems in one message."""
    config = _loaded(raw)
    return config.behind(_gate(raw, config)) if config.grid.gate else config


def _gate(raw: Mapping[str, Any], config: Config) -> Config:
    """Return the configuration of a grid's gate: that of a grid with the same systems and other datasets."""
    grid = {**raw["grid"], "name": f"{config.grid.name}-gate", "datasets": raw["grid"]["gate"], "gate": None}
    try:
        gate = _loaded({**raw, "grid": grid})
    except ConfigError as error:
        raise ConfigError(str(error).replace("grid.datasets", "grid.gate")) from None
    twice = [name for name in checks.searched_datasets(gate) if name in checks.searched_datasets(config)]
    refuse(f"grid.gate: {name!r} is in grid.datasets, too: leave it out of one of them" for name in twice)
    return gate


def _loaded(raw: Mapping[str, Any]) -> Config:
    try:
        _Shape.model_validate(raw)
        raw = names.expand(raw, _registry("systems")["models"])
        config = Config.model_validate(raw, context=raw)
    except ValidationError as error:
        raise _refusal(mistakes(error, "", raw, _KEYS)) from None
    refuse(checks.entry_problems(config))
    config = config.model_copy(update={"metrics": _metrics(config)})
    refuse([*seeds.problems(config), *checks.grid_problems(config)])
    config = seeds.expand(config)
    refuse(checks.absent_folders(config))
    config = _with_derived_models(config)
    return config.model_copy(update={"models": _with_models_per_corpus(config)})


class _Shape(BaseModel):
    """What names are looked up in before the entries are validated."""

    grid: dict[Any, Any]
    corpora: dict[Any, dict[Any, Any]]
    datasets: dict[Any, dict[Any, Any]]
    models: dict[Any, dict[Any, Any]]
    systems: dict[Any, dict[Any, Any]]


def refuse(problems: Iterable[str]) -> None:
    """Raise ConfigError if there are problems, with a line for each."""
    if problems := [*problems]:
        raise _refusal(problems)


def _refusal(problems: Iterable[str]) -> ConfigError:
    shown = (text if len(text) < 1000 else f"{text[:200]} … {text[-300:]}" for text in dict.fromkeys(problems))
    return ConfigError("\n".join(["the configuration cannot be run:", *("  - " + printable(text) for text in shown)]))


def _metrics(config: Config) -> tuple[str, ...]:
    """Return the metrics of the grid, with the main metric of its datasets in place of ``main`` if they share one."""
    shared = {dataset.metric for dataset in checks.searched_datasets(config).values()}
    if MAIN not in config.metrics or len(shared) != 1:
        return config.metrics
    (metric,) = shared
    return tuple(metric if name == MAIN else name for name in config.metrics if name != metric)


def _with_derived_models(config: Config) -> Config:
    """Return the configuration with a copy ``{model}~{chunks or head}`` of the model of each system that has these."""
    models = dict(config.models)
    systems = dict(config.systems)
    for name, system in config.systems.items():
        chunks = getattr(system, "chunks", None)
        head = getattr(system, "head", None)
        if chunks or head:
            key = "reranker" if isinstance(system, entries.Reranked) else "retriever"
            model = models[getattr(system, key)]
            derived = f"{getattr(system, key)}~{chunks.name if chunks else head}"
            systems[name] = system.model_copy(update={key: derived})
            models[derived] = entries.of_head(model, head) if head else model.model_copy(update={"chunks": chunks})
    return config.model_copy(update={"models": models, "systems": systems})


def _with_models_per_corpus(config: Config) -> Mapping[str, entries.ModelEntry]:
    """Return the models and, of each template, ``{model}@{corpus}`` (unless there is such an entry) for each corpus."""
    models = dict(config.models)
    corpora = {dataset.corpus for dataset in checks.searched_datasets(config).values()}
    corpora |= {model.training.corpus for model in models.values() if model.training}
    for name, model in config.models.items():
        if (train := model.training) and model.per_corpus:
            for corpus in filter(None, corpora):
                training = train.model_copy(update={"corpus": corpus})
                models.setdefault(f"{name}@{corpus}", model.model_copy(update={"train": training}))
    return models


# libyaml's faster loader, if PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; raise ConfigError if it cannot be read, or if a key stands twice."""
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        _refuse_repeated(root)
        return loader.construct_document(root) if root else None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from None


def _refuse_repeated(node: Any) -> None:
    """Refuse a key that stands twice in a mapping."""
    if isinstance(node, yaml.MappingNode):
        keys = set[str]()
        for key, value in node.value:
            if str(key.value) in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands twice", key.start_mark)
            keys.add(str(key.value))
            _refuse_repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated(value)


def refuse_misread(configfiles: Iterable[str | Path], settings: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise ConfigError if Snakemake would read a configuration differently from how it looks.

    YAML's readers keep the last of two values of a key. Snakemake drops a mapping without keys that is merged over
    something else.

    Args:
        settings: the values of ``--config``.
        merged: Snakemake's merged configuration.
    """
    files = filter(Path.is_file, map(Path, configfiles))  # a pipe is read only once
    contents = {str(path): read_yaml(path) for path in files}
    for name, content in (contents | {"--config": settings}).items():
        _refuse_unmerged(name, content, merged)


def _refuse_unmerged(name: str, value: Any, stays: Any, *keys: object) -> None:
    """Refuse a mapping without keys below the registries where the merged configuration has something."""
    if isinstance(value, Mapping):
        if not value and stays and len(keys) > 1:
            place = ".".join(map(str, keys))
            raise ConfigError(f"{name}: {place}: {{}} has no key to merge, so {quoted(stays)} stays")
        for key, below in value.items():
            _refuse_unmerged(name, below, stays.get(key) if isinstance(stays, Mapping) else None, *keys, key)
