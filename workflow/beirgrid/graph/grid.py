"""The plan of a grid: which artifacts each artifact is made from, and what a job needs.

The rules ask it for inputs, params and resources. All answers follow from the configuration alone,
so the job graph is known before anything runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config import (
    CHECKOUT,
    RECIPES,
    Config,
    System,
    find_local,
    made_with,
    models_of,
    rerank_depth,
    resolve_path,
    with_parts,
)
from ..core import paths
from ..core.errors import ConfigError
from ..data import checkpoints
from .resources import Needs

# Only what changes the vectors or scores of a model: editing a note must not rerun an encoding.
_EXPANSION_KEYS = ("queries_per_document", "seed", "top_k", "top_p", "smoothing", "keep_terms")
_MODEL_KEYS = (
    *("family", "similarity", "pooling", "separator", "brackets", "max_length", "precision", "trust_remote_code"),
    *_EXPANSION_KEYS,
)
_FETCH_KEYS = ("checkpoint", "revision", "path", "package", "files", "pickled", "trust_remote_code")
# Of these, what a folder of one's own makes meaningless.
_HUB_KEYS = ("checkpoint", "revision")
_CORPUS_KEYS = ("source", "id", "revision", "split", "path", "documents", "allow")
_DATASET_KEYS = ("corpus", "id", "revision", "split", "queries", "queries_are_documents")
# What of a recipe each stage of an adaptation receives: another learning rate writes no new queries.
_STAGE_KEYS = {
    "generate": ("derive", "documents", "queries", "queries_per_document", "seed"),
    "mine": ("negative_depth",),
    "label": ("steps", "batch", "seed"),
    "adapt": ("recipe", "documents", "epochs", "steps", "batch", "learning_rate", "warmup", "seed"),
}
# What of its own entry a model is trained with.
_TRAINED_KEYS = ("similarity", "max_length", "prompts", "precision")

DATASETS_PAGE = CHECKOUT / "docs" / "datasets.md"


def as_json(entry: dict[str, Any], keys: Iterable[str]) -> str:
    """Return the named keys of a registry entry as JSON in ASCII: one line, whatever a prompt holds."""
    return json.dumps({key: entry[key] for key in keys if key in entry})


def _inputs(files: Iterable[Path]) -> list[str]:
    """Return the files that can be inputs of a rule: Snakemake fills in ``{x}`` and ``<x>`` in their paths."""
    return [name for name in map(str, files) if not re.search(r"\{|<[a-z]", name)]


class Grid:
    """Systems × datasets, and everything that they need."""

    def __init__(self, config: Config, raw: dict[str, Any]) -> None:
        self.config = config
        self.raw = raw

    # Names

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets with queries of their own that can be run: means are replaced by their parts."""
        names: dict[str, None] = {}
        for name in self.config.grid_datasets:
            names.update(dict.fromkeys(self.parts(name)))
        return [name for name in names if name not in self.not_supplied]

    def parts(self, dataset: str) -> tuple[str, ...]:
        """Return the datasets that a row of the grid is the mean of: itself, mostly."""
        return self.config.datasets[dataset].mean_of or (dataset,)

    @cached_property
    def not_supplied(self) -> dict[str, Path]:
        """Datasets that nobody can download and whose folder is not there, with that folder."""
        parts = [part for name in self.config.grid_datasets for part in self.parts(name)]
        folders = {part: self.config.corpora[self.config.datasets[part].corpus].missing for part in parts}
        return {part: folder for part, folder in folders.items() if folder}

    def _models_behind(self, systems: Iterable[str]) -> list[str]:
        """Return the models of systems, and those that they are trained from or with, by name."""
        specs = [self._system(name).spec for name in systems]
        models = {name for spec in specs for name in models_of(self.config, spec)}
        return sorted(set[str]().union(*(made_with(self.config, name) for name in models)))

    def notice(self) -> str:
        """Return what a person should know before the grid starts, or an empty string."""
        if not self.not_supplied:
            return ""
        return (
            'Some datasets are not supplied. Their cells will read "not supplied"; all else runs. To have them, '
            f"fill their folders as {DATASETS_PAGE} says, and run again:\n"
            + "\n".join(f"  {name}: {folder}" for name, folder in self.not_supplied.items())
        )

    @cached_property
    def systems(self) -> list[str]:
        """The grid's systems and those that they are made from."""
        return with_parts(self.config.systems, self.config.grid_systems)

    def one_of(self, names: Iterable[str]) -> str:
        """Return a wildcard constraint that matches exactly these names."""
        return "|".join(map(re.escape, sorted(names))) or "(?!)"

    def systems_of(self, kind: str) -> str:
        """Return the wildcard constraint for registered systems of one kind."""
        return self.one_of(name for name, system in self.config.systems.items() if system.kind == kind)

    def family(self, name: str) -> str:
        """Return the wildcard constraint for registered models of one family."""
        return self.one_of(model for model, entry in self.config.models.items() if entry.family == name)

    def models_of(self, *recipes: str | None) -> str:
        """Return the wildcard constraint for models that are trained by these recipes, or are fetched (None)."""
        models = self.config.models.items()
        return self.one_of(name for name, model in models if model.recipe in recipes and not model.per_corpus)

    def artifacts_of(self, model: str) -> str:
        """Return the name that a model's artifacts stand under: a model per corpus has ``{corpus}`` in it."""
        return f"{model}@{{corpus}}" if self.config.models[model].per_corpus else model

    def _system(self, name: str) -> System:
        return self.config.systems[name]

    @cached_property
    def needs(self) -> Needs:
        """What each job needs."""
        return Needs(self)

    # Fetch

    def local_files(self, corpus: str, *names: str) -> list[str]:
        """Return a local corpus's files, as inputs: editing one makes its artifacts again."""
        entry = self.config.corpora[corpus]
        if entry.source != "local":
            return []
        folder = resolve_path(entry.path or "")
        return _inputs(find_local(folder, name) or folder / name for name in names)

    def dataset_files(self, dataset: str) -> list[str]:
        """Return the local files of a dataset's queries and qrels."""
        entry = self.config.datasets[dataset]
        return self.local_files(entry.corpus, "queries.jsonl", f"qrels/{entry.split}.tsv")

    def model_files(self, model: str) -> list[str]:
        """Return the files of a model of one's own that fetch copies: replacing one makes its artifacts again."""
        spec = self.config.models[model].spec
        return _inputs(sorted(checkpoints.copied(spec))) if "path" in spec else []

    @staticmethod
    def state(local: list[str]) -> str:
        """Return a digest of the sizes, times and places of local files, which are not read.

        As a param of what is made from them it tells a file that was replaced by an older one (``cp -a``, ``mv``, a
        link that points elsewhere).
        """
        found = []
        for path in local:
            with contextlib.suppress(OSError):  # Snakemake names an input that is missing
                status = Path(path).stat()
                found.append([os.path.realpath(path), status.st_size, status.st_mtime_ns])
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16] if found else ""

    def corpus_entry(self, corpus: str) -> str:
        """Return the JSON of a corpus entry that the fetch command receives."""
        return as_json(self._absolute(self.raw["corpora"][corpus]), _CORPUS_KEYS)

    def dataset_entry(self, dataset: str) -> str:
        """Return the JSON of a dataset entry that the fetch command receives."""
        return as_json(self.raw["datasets"][dataset], _DATASET_KEYS)

    def fetch_entry(self, model: str) -> str:
        """Return the JSON of a model entry that the fetch command receives: of prompts, which roles have one."""
        roles = [role for role in ("query", "document") if role in self._prompts(model)]
        entry = {**self._absolute(self.config.models[model].spec), "prompts": roles}
        keys = [key for key in _FETCH_KEYS if not ("path" in entry and key in _HUB_KEYS)]
        return as_json(entry, (*keys, "prompts") if roles else keys)

    def model_entry(self, model: str) -> str:
        """Return the JSON of a model entry that the encoding and scoring commands receive."""
        return self._entry(model, _MODEL_KEYS, document=self._prompts(model).get("document"))

    def query_entry(self, system: str, dataset: str) -> str:
        """Return the JSON of the model entry with which a system encodes the queries of a dataset."""
        model = self.query_model(system)
        spec, prompts = self.config.models[model].spec, self._prompts(model)
        own = self._of_dataset(prompts.get("datasets", {}), dataset) or {}
        entry = json.loads(self._entry(model, _MODEL_KEYS, query=own.get("query", prompts.get("query"))))
        length = self._of_dataset(spec.get("query_lengths", {}), dataset) or spec.get("query_length")
        return json.dumps(entry | ({"query_length": length} if length else {}))

    def _of_dataset(self, values: dict[str, Any], dataset: str) -> Any:
        """Return what a model's entry says for a dataset or for a mean that it is a part of, or None."""
        means = [name for name, entry in self.config.datasets.items() if dataset in entry.mean_of]
        return next((values[name] for name in (dataset, *means) if name in values), None)

    def query_model(self, system: str) -> str:
        """Return the model that encodes the queries of a system: its retriever, or the retriever's query_model."""
        model = str(self._system(system).spec["retriever"])
        return self.config.models[model].query_model or model

    def _prompts(self, model: str) -> dict[str, Any]:
        return dict(self.config.models[model].spec.get("prompts", {}))

    def _entry(self, model: str, keys: tuple[str, ...], **prompts: str | None) -> str:
        """Return a model's entry with prompt and brackets of one side only: those of the other must rerun nothing."""
        given = {role: prompt for role, prompt in prompts.items() if prompt is not None}
        entry = {**self.config.models[model].spec, "prompts": given}
        if "brackets" in entry:
            entry["brackets"] = {role: entry["brackets"][role] for role in prompts}
        return as_json(entry, (*keys, "prompts") if given else keys)

    def train_entry(self, model: str) -> str:
        """Return the JSON of a model's training recipe and max_length."""
        train = self._trained(model)
        entry = {**train, "language": self.language(train["corpus"])}
        entry["max_length"] = self.raw["models"][model].get("max_length")
        if "teacher" in train:
            entry["teacher"] = json.loads(as_json(self.raw["models"][train["teacher"]], (*_MODEL_KEYS, "prompts")))
        return json.dumps(entry)

    @staticmethod
    def _absolute(entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "path": str(resolve_path(entry["path"]))} if "path" in entry else entry

    # Shards

    def shards(self, corpus: str) -> list[int]:
        """Return the numbers of a corpus's shards; a corpus of unknown size is one shard."""
        documents = self.config.corpora[corpus].documents
        return list(range(math.ceil(documents / self.config.encode["shard"]) if documents else 1))

    def shard_size(self) -> int:
        """Return the documents per shard."""
        return int(self.config.encode["shard"])

    # Jobs of a cluster that are more than one stage

    def is_small(self, corpus: str) -> bool:
        """Tell whether a corpus is registered as small: one shard, and at most ``small_corpus`` documents."""
        documents = self.config.corpora[corpus].documents
        return documents is not None and documents <= min(self.config.small_corpus, self.shard_size())

    def shard_job(self, wildcards: Any) -> str | None:
        """Return the group of jobs that encode and index small corpora, so many of which profiles/slurm puts together.

        A model that is trained on what another one's index finds is of another group: none waits for itself.
        """
        return f"encode-{self._rounds(wildcards.model)}" if self.is_small(wildcards.corpus) else None

    def cell_job(self, wildcards: Any) -> str | None:
        """Return the group of jobs that make runs and evaluate them, where making one is short."""
        system = self._system(wildcards.system)
        small = self.is_small(self.config.datasets[wildcards.dataset].corpus)
        if not self.config.small_corpus or not (small or system.parts):
            return None
        if system.parts:
            return f"combine-{self._layers[system.name]}" if small else f"combine-{wildcards.dataset}-{system.name}"
        return "retrieve-bm25" if system.kind == "lexical" else "retrieve-model"

    def _rounds(self, model: str) -> int:
        """Return how many trainings in the workflow lie before a model's encoding."""
        train = self.config.models[model].train
        if not train:
            return 0
        others = [name for name in train.get("retrievers", ()) if name in self.config.models]
        return 1 + max(self._rounds(name) for name in (train["base"], *others))

    @cached_property
    def _layers(self) -> dict[str, int]:
        """How many rerankings and fusions each system goes through."""
        layers: dict[str, int] = {}
        for name in with_parts(self.config.systems, self.config.systems):
            layers[name] = max((1 + layers[part] for part in self._system(name).parts), default=0)
        return layers

    def on_gpu(self) -> str:
        """Return what profiles/slurm sends to GPU nodes, empty with ``device: cpu``.

        The word ``models``, and corpus/{corpus}, dataset/{dataset} and system/{system} of what may share a job with a
        model's stage: indexing such a corpus, evaluating such a system on such a dataset. All stages of a job must ask
        for the same kind of node.
        """
        if self.config.device == "cpu":
            return ""
        corpora = [f"corpus/{name}" for name in self.config.corpora if self.is_small(name)]
        datasets = self.config.datasets.values()
        over = [f"dataset/{entry.name}" for entry in datasets if not entry.mean_of and self.is_small(entry.corpus)]
        systems = self.config.systems.values()
        neural = [f"system/{entry.name}" for entry in systems if not entry.parts and entry.kind != "lexical"]
        return " ".join(["models", *corpora, *over, *neural])

    # Inputs

    def corpus_of(self, dataset: str) -> str:
        """Return the corpus.parquet that a dataset searches."""
        return paths.CORPUS.format(corpus=self.config.datasets[dataset].corpus)

    def index_shards(self, pattern: str, system: str, dataset: str) -> list[str]:
        """Return the shards of a kind (paths.FAISS, ...) that a neural retriever searches."""
        return self._shards(pattern, self._system(system).spec["retriever"], self.config.datasets[dataset].corpus)

    def _shards(self, pattern: str, model: str, corpus: str) -> list[str]:
        name = self.artifacts_of(model).format(corpus=corpus)
        return [pattern.format(model=name, corpus=corpus, shard=shard) for shard in self.shards(corpus)]

    def candidate_shards(self, system: str, dataset: str) -> list[str]:
        """Return the faiss shards that a late-interaction system finds candidates in: none if it is exhaustive."""
        return [] if self._system(system).spec.get("exhaustive") else self.index_shards(paths.FAISS, system, dataset)

    def late_search(self, system: str, dataset: str) -> list[str]:
        """Return the options of a late-interaction system's search."""
        if not (indexes := self.candidate_shards(system, dataset)):
            return []
        return ["--candidates", str(self._system(system).spec.get("candidates", 100)), "--indexes", *indexes]

    def lucene_index(self, system: str, dataset: str) -> str:
        """Return the Lucene index that a BM25 system searches."""
        return paths.LUCENE.format(index=self.lucene_name(system), corpus=self.config.datasets[dataset].corpus)

    def lucene_name(self, system: str) -> str:
        """Return the name of the Lucene index of a BM25 system: its fields, and @ the model that expands documents."""
        expansion = self._system(system).spec.get("expansion")
        return f"bm25-{self.fields(system)}" + (f"@{expansion}" if expansion else "")

    def expansions(self, name: str, corpus: str) -> list[str]:
        """Return the expanded shards for the index ``@model``; the index of the documents themselves has none."""
        model = name.removeprefix("@")
        shards = self.shards(corpus) if model else []
        return [paths.EXPANSIONS.format(model=model, corpus=corpus, shard=shard) for shard in shards]

    def fields(self, system: str) -> str:
        """Return the fields of a BM25 system, flat or multifield."""
        return str(self._system(system).spec.get("fields", "multifield"))

    def bm25(self, system: str) -> list[str]:
        """Return the BM25 parameters of a system, as options."""
        spec = self._system(system).spec
        return ["--k1", str(spec.get("k1", 0.9)), "--b", str(spec.get("b", 0.4))]

    def language(self, corpus: str) -> str:
        """Return the language of a corpus."""
        return self.config.corpora[corpus].language

    def checkpoint(self, system: str, dataset: str) -> str:
        """Return the folder of the checkpoint with which a neural retriever encodes the queries of a dataset."""
        return self._checkpoint(self.query_model(system), self.config.datasets[dataset].corpus)

    def _checkpoint(self, model: str, corpus: str) -> str:
        return paths.CHECKPOINT.format(model=self.artifacts_of(model).format(corpus=corpus))

    def part_runs(self, system: str, dataset: str) -> list[str]:
        """Return the runs that a reranked or fused system is made from."""
        return [paths.RUN.format(system=part, dataset=dataset) for part in self._system(system).parts]

    def pair_scores(self, system: str, dataset: str) -> str:
        """Return the record of the pair scores that a reranked system uses."""
        spec = self._system(system).spec
        return paths.PAIRS_MADE.format(reranker=spec["reranker"], dataset=dataset, first=spec["first_stage"])

    def depth(self, system: str) -> int:
        """Return how deep a system reranks."""
        return rerank_depth(self._system(system).spec, self.config.depth)

    def score_depth(self, reranker: str, first: str) -> int:
        """Return the deepest depth at which systems of this grid rerank ``first`` with ``reranker``."""
        pair = {"reranker": reranker, "first_stage": first}
        depths = [self.depth(name) for name in self.systems if pair.items() <= self._system(name).spec.items()]
        if not depths:
            raise ConfigError(f"no system of the grid reranks {first!r} with {reranker!r}: add one to grid.systems")
        return max(depths)

    def fusion(self, system: str) -> list[str]:
        """Return the options of the fuse command."""
        spec = self._system(system).spec
        if spec["fusion"] == "rrf":
            return ["--method", "rrf", "--k", str(spec.get("k", 60))]
        weights = ["--weights", json.dumps(spec["weights"])] if "weights" in spec else []
        return ["--method", "wsum", "--norm", spec.get("norm", "min-max"), *weights]

    def training_inputs(self, model: str) -> dict[str, str]:
        """Return the named inputs of a model's training."""
        train = self._trained(model)
        inputs = {
            "base": paths.CHECKPOINT.format(model=train["base"]),
            "corpus": paths.CORPUS.format(corpus=train["corpus"]),
            "index": paths.LUCENE.format(index="bm25-flat", corpus=train["corpus"]),
        }
        if "teacher" in train:
            inputs["teacher"] = paths.CHECKPOINT.format(model=train["teacher"])
        if "dataset" in train:
            inputs["queries"] = paths.QUERIES.format(dataset=train["dataset"])
            inputs["qrels"] = paths.QRELS.format(dataset=train["dataset"])
        return inputs

    def training_options(self, model: str) -> list[str]:
        """Return the options of the train command that not every recipe has."""
        inputs = self.training_inputs(model)
        named = [name for name in ("teacher", "queries", "qrels") if name in inputs]
        return [word for name in named for word in (f"--{name}", inputs[name])]

    def recipe_entry(self, model: str, stage: str) -> str:
        """Return the JSON of what one stage of an adaptation needs of its recipe, defaults filled in."""
        spec, train = self.config.models[model].spec, self._trained(model)
        entry = {**RECIPES[train["recipe"]], **train}
        if "queries_per_document" in entry:
            entry.pop("queries", None)
        wanted = {key: entry[key] for key in _STAGE_KEYS[stage] if key in entry}
        if stage == "adapt":
            wanted |= {key: spec[key] for key in _TRAINED_KEYS if key in spec}
        if stage == "mine":
            wanted["language"] = self.language(train["corpus"])
        for key, user in (("generator", "generate"), ("teacher", "label"), ("base", "adapt")):
            if stage == user and key in train:
                wanted[key] = json.loads(self.model_entry(train[key]))
        return json.dumps(wanted)

    def generation_inputs(self, model: str) -> dict[str, str]:
        """Return the named inputs that training queries are written from."""
        train = self._trained(model)
        inputs = {"corpus": paths.CORPUS.format(corpus=train["corpus"])}
        if "generator" in train:
            inputs["generator"] = self._checkpoint(train["generator"], train["corpus"])
        return inputs

    def mining_inputs(self, model: str) -> dict[str, Any]:
        """Return the named inputs that GPL's negatives are mined with."""
        corpus = self._trained(model)["corpus"]
        dense = [name for name in self.retrievers(model) if name != "bm25"]
        inputs: dict[str, Any] = {
            "corpus": paths.CORPUS.format(corpus=corpus),
            "checkpoints": [self._checkpoint(name, corpus) for name in dense],
            "shards": [shard for name in dense for shard in self._shards(paths.FAISS, name, corpus)],
        }
        if "bm25" in self.retrievers(model):
            inputs["index"] = paths.LUCENE.format(index="bm25-flat", corpus=corpus)
        return inputs

    def mining_options(self, model: str) -> list[str]:
        """Return the options of the mine command that name its retrievers."""
        inputs, corpus = self.mining_inputs(model), self._trained(model)["corpus"]
        options = ["--index", inputs["index"]] if "index" in inputs else []
        for name in self.retrievers(model):
            if name != "bm25":
                entry = self._entry(name, _MODEL_KEYS, query=self._prompts(name).get("query"))
                options += ["--dense", entry, self._checkpoint(name, corpus), *self._shards(paths.FAISS, name, corpus)]
        return options

    def retrievers(self, model: str) -> list[str]:
        """Return where the negatives of a GPL model come from: bm25 and dense models."""
        train = self._trained(model)
        return list(train.get("retrievers", [train["base"]]))

    def labelling_inputs(self, model: str) -> dict[str, str]:
        """Return the named inputs that margins are computed from, beside queries and negatives."""
        train = self._trained(model)
        return {
            "teacher": self._checkpoint(train["teacher"], train["corpus"]),
            "corpus": paths.CORPUS.format(corpus=train["corpus"]),
        }

    def adaptation_inputs(self, model: str) -> dict[str, str]:
        """Return the named inputs of an adaptation: its base, and what that is trained on."""
        train = self._trained(model)
        examples = {"genq": paths.TRAINING_QUERIES, "gpl": paths.MARGINS}.get(train["recipe"], paths.CORPUS)
        return {
            "base": self._checkpoint(train["base"], train["corpus"]),
            "examples": examples.format(model=model, corpus=train["corpus"]),
        }

    def _trained(self, model: str) -> dict[str, Any]:
        train = self.config.models[model].train
        assert train is not None
        return train

    # Targets

    def metric_files(self) -> list[str]:
        """Return the metrics of every cell of the grid."""
        return [
            paths.METRICS.format(system=system, dataset=dataset)
            for system in self.config.grid_systems
            for dataset in self.datasets
        ]

    def made_files(self) -> list[str]:
        """Return the records of every step behind the grid's cells."""
        cells = [(system, dataset) for dataset in self.datasets for system in self.config.grid_systems]
        return list(dict.fromkeys(made for cell in cells for made in self.made_for(*cell)))

    def made_for(self, system: str, dataset: str) -> list[str]:
        """Return the records of every step behind one cell."""
        corpus = self.config.datasets[dataset].corpus
        shards = len(self.shards(corpus))
        return [
            made
            for pattern in self._made_patterns(system)
            for made in paths.expand_made(pattern, dataset, corpus, shards)
        ]

    def files_of(self, system: str, dataset: str) -> list[str]:
        """Return the records of every step behind one cell, and its metrics."""
        return [*self.made_for(system, dataset), paths.METRICS.format(system=system, dataset=dataset)]

    def _made_patterns(self, name: str) -> list[str]:
        """Return the patterns of the records behind a system, in the order in which they are made."""
        patterns = [paths.CORPUS_MADE, paths.DATASET_MADE]
        for part in with_parts(self.config.systems, [name]):
            patterns += self._own_patterns(part)
        return list(dict.fromkeys(patterns))

    def _own_patterns(self, name: str) -> list[str]:
        """Return the patterns of the records that a system adds to those of its parts."""
        system, patterns = self._system(name), []
        if system.kind == "lexical":
            if expansion := system.spec.get("expansion"):
                patterns += [step.replace("{model}", expansion) for step in (paths.MODEL_MADE, paths.EXPANSIONS_MADE)]
            patterns.append(paths.LUCENE_MADE.replace("{index}", self.lucene_name(name)))
        elif system.kind in ("dense", "sparse", "late-interaction"):
            patterns += self._training_patterns(system.spec["retriever"])
            indexed = [] if system.spec.get("exhaustive") else [paths.SHARD_MADE]
            steps = (paths.MODEL_MADE, paths.EMBEDDINGS_MADE, *indexed)
            patterns += [step.replace("{model}", self.artifacts_of(system.spec["retriever"])) for step in steps]
            patterns.append(paths.MODEL_MADE.replace("{model}", self.artifacts_of(self.query_model(name))))
        elif system.kind == "rerank":
            reranker = system.spec["reranker"]
            patterns.append(paths.MODEL_MADE.replace("{model}", reranker))
            pairs = paths.PAIRS_MADE.replace("{reranker}", reranker).replace("{first}", system.spec["first_stage"])
            patterns.append(pairs)
        return [*patterns, paths.RUN_MADE.replace("{system}", name)]

    def _training_patterns(self, name: str) -> list[str]:
        """Return the patterns of the records behind the adaptation of a dense model, its own left out."""
        train = self.config.models[name].train
        if train is None:
            return []
        patterns = self._training_patterns(train["base"])
        if self.config.models[train["base"]].train:
            patterns.append(paths.MODEL_MADE.replace("{model}", self.artifacts_of(train["base"])))
        steps = {
            "genq": [paths.TRAINING_QUERIES_MADE],
            "gpl": [paths.TRAINING_QUERIES_MADE, paths.NEGATIVES_MADE, paths.MARGINS_MADE],
        }.get(train["recipe"], [])
        patterns += [step.replace("{model}", self.artifacts_of(name)) for step in steps]
        return [pattern.replace("{corpus}", train.get("corpus", "{corpus}")) for pattern in patterns]

    def summary(self, **facts: Any) -> str:
        """Return as JSON what the aggregate and report commands need to know of the grid, with more facts."""
        config = self.config
        parts = [part for name in config.grid_datasets for part in self.parts(name)]
        shown = dict.fromkeys([*config.grid_datasets, *parts])
        return json.dumps(
            {
                "systems": {name: self._describe_system(name) for name in config.grid_systems},
                "datasets": {name: self._describe_dataset(name) for name in shown},
                "rows": list(config.grid_datasets),
                "metrics": list(config.metrics),
                "tolerances": config.tolerances,
                "notes": self._notes(),
                **facts,
            }
        )

    def _notes(self) -> list[dict[str, Any]]:
        """Return the notes on all models that the grid's systems are made with, each with those systems."""
        told: dict[str, list[str]] = {}
        for system in self.config.grid_systems:
            for model in self._models_behind(with_parts(self.config.systems, [system])):
                if "note" in self.config.models[model].spec:
                    told.setdefault(model, []).append(system)
        specs = {model: self.config.models[model].spec for model in told}
        return [{"model": model, "systems": told[model], "note": specs[model]["note"]} for model in told]

    def _describe_system(self, name: str) -> dict[str, Any]:
        system = self._system(name)
        return {"kind": system.kind, **system.spec, "made": self._made_patterns(name)}

    def _describe_dataset(self, name: str) -> dict[str, Any]:
        dataset = self.config.datasets[name]
        facts = {key: getattr(dataset, key) for key in ("task", "domain", "relevance", "statistics")}
        if missing := [part for part in self.parts(name) if part in self.not_supplied]:
            facts["not_supplied"] = [self.config.corpora[self.config.datasets[part].corpus].path for part in missing]
        if dataset.mean_of:
            return {**facts, "mean_of": list(dataset.mean_of)}
        corpus = self.config.corpora[dataset.corpus]
        source = dataset.id or f"{corpus.path or corpus.id}, {dataset.split}"
        facts |= {"corpus": dataset.corpus, "source": source, "licence": corpus.licence}
        return {**facts, "shards": len(self.shards(dataset.corpus))}

    # Resources

    def gpus(self, models: Any) -> int:
        """Return the GPUs of a job: one if it runs ``models`` and they are not kept to the CPU."""
        return int(bool(models) and self.config.device != "cpu")
