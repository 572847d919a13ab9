"""The plan: bring corpora, datasets, checkpoints and runs of other software into one form."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ...config import entries
from ...core import files, paths
from ...core.checkout import expanded, resolve_path
from ...graph import artifacts
from ...graph.grid import Grid
from ...graph.sizes import PUBLISHED_MB, Amounts, Sizes
from ...graph.stage import ADOPTED, Cost, Inputs, Output, Settings, Stage
from ...models import checkpoints

_COLLECTION = ("ir_datasets", "datasets", "pyarrow")


_PACKAGES = (*_COLLECTION, "torch", "safetensors")


_CORPUS_KEYS = ("source", "id", "task", "revision", "split", "subset", "path", "documents", "allow")


_DATASET_KEYS = ("corpus", "id", "revision", "split", "queries", "queries_are_documents")


_MODEL_KEYS = ("checkpoint", "revision", "path", "package", "adapter", "files", "pickled", "trust_remote_code")


def _resolved(keys: Settings) -> Settings:
    """Make the folder that an entry names, and that of its adapter, absolute: a job may start elsewhere."""
    places = {name: _resolved(value) for name, value in keys.items() if name == "adapter"}
    return keys | places | ({"path": str(resolve_path(keys["path"]))} if keys.get("path") else {})


def _corpus_entry(grid: Grid, corpus: str) -> Settings:
    return _resolved(grid.config.corpora[corpus].own_keys(*_CORPUS_KEYS))


def _local_files(grid: Grid, corpus: str, *names: str) -> list[str]:
    """Return files of a local collection; none of a downloaded one."""
    entry = grid.config.corpora[corpus]
    if not isinstance(entry, entries.LocalCorpus):
        return []
    folder = resolve_path(entry.path)
    return [str([*files.forms(folder / name), folder / name][0]) for name in names]


class FetchCorpus(Stage):
    """Documents of a corpus."""

    version = 1
    packages = _PACKAGES
    kind = "fetch"
    downloads = True
    outputs = {"corpus": paths.CORPUS, "record": paths.CORPUS_RECORD}
    main = "corpus"
    costs = {
        "download_mb": Cost(seconds=0.05, disk=1),  # ir_datasets keeps what it downloads
        "text_mb": Cost(seconds=0.05, disk=0.6),  # fitted to 200,000 and 1,000,000 documents; parquet
        "documents": Cost(memory=150e-6),  # a set of ids
    }

    def files(self, grid: Grid, corpus: str) -> Iterable[str]:
        return _local_files(grid, corpus, "corpus.jsonl")

    def settings(self, grid: Grid, corpus: str) -> Settings:
        return {"entry": _corpus_entry(grid, corpus)}

    def options(self, grid: Grid, corpus: str) -> Settings:
        return {"name": corpus}

    def work(self, sizes: Sizes, corpus: str) -> Amounts:
        return {"download_mb": sizes.download_mb(corpus)}


class FetchDataset(Stage):
    """Judged queries and qrels of a dataset."""

    name = "fetch_dataset"
    version = 3
    packages = _COLLECTION
    kind = "fetch"
    downloads = True
    outputs = {"queries": paths.QUERIES, "qrels": paths.QRELS, "record": paths.DATASET_RECORD}
    costs = {"documents": Cost(seconds=5e-7, memory=100e-6)}  # judged ids are looked up in the corpus; fitted

    def inputs(self, grid: Grid, dataset: str) -> Inputs:
        return {"corpus": artifacts.documents(grid.corpus(dataset))}

    def files(self, grid: Grid, dataset: str) -> Iterable[str]:
        corpus = grid.config.corpora[grid.corpus(dataset)]
        qrels = f"qrels/{grid.config.datasets[dataset].qrels(corpus)[1]}.tsv"
        judged = [] if dataset in grid.not_judged else [qrels]
        return _local_files(grid, grid.corpus(dataset), "queries.jsonl", *judged)

    def settings(self, grid: Grid, dataset: str) -> Settings:
        entry = grid.config.datasets[dataset].own_keys(*_DATASET_KEYS)
        return {"entry": entry, "corpus_entry": _corpus_entry(grid, grid.corpus(dataset))}

    def options(self, grid: Grid, dataset: str) -> Settings:
        return {"name": dataset}


def _judged(grid: Grid, dataset: str) -> list[Output]:
    """Return corpus and qrels of a dataset."""
    return [artifacts.documents(grid.corpus(dataset)), artifacts.qrels(dataset)]


class FetchSlice(Stage):
    """Which queries of a dataset are in a slice of it."""

    name = "fetch_slice"
    version = 1
    packages = (*_COLLECTION, "py3langid")
    kind = "fetch"
    downloads = True
    outputs = {"record": paths.SLICE}
    costs = {"queries": Cost(seconds=1e-4, memory=1e-3)}  # assumed

    def inputs(self, grid: Grid, dataset: str, slice: str) -> Inputs:
        entry = grid.config.datasets[dataset].slices[slice]
        inputs: dict[str, Output | list[Output]] = {"queries": artifacts.queries(dataset)}
        if entry.dataset:
            inputs["others"] = artifacts.queries(entry.dataset)
        if entry.seen_in:
            # The corpora come first: both may be one, and its place is that in the first list.
            inputs["tested"] = _judged(grid, dataset)
            inputs["training"] = [*_judged(grid, entry.seen_in), artifacts.queries(entry.seen_in)]
        return inputs

    def files(self, grid: Grid, dataset: str, slice: str) -> Iterable[str]:
        entry = grid.config.datasets[dataset].slices[slice]
        own = _local_files(grid, grid.corpus(dataset), "queries.jsonl") if entry.column else []
        return [*own, *([str(resolve_path(entry.path))] if entry.path else [])]

    def settings(self, grid: Grid, dataset: str, slice: str) -> Settings:
        """Return the keys of the slice, and how to read the dataset if they name a column of its source."""
        entry = grid.config.datasets[dataset].slices[slice]
        source = FetchDataset().settings(grid, dataset) if entry.column else {}
        return {**source, "entry": _resolved(entry.own_keys()), "dataset": source.get("entry")}

    def options(self, grid: Grid, dataset: str, slice: str) -> Settings:
        return {"name": f"datasets.{dataset}.slices.{slice}"}


class FetchExpansion(Stage):
    """Published queries for the documents of a corpus."""

    name = "fetch_expansion"
    version = 1
    packages = ("huggingface_hub", "pyarrow")
    kind = "fetch"
    downloads = True
    outputs = {"result": paths.PUBLISHED, "record": paths.PUBLISHED_RECORD}
    main = "result"
    costs = {  # measured on 150,000 documents with 40 queries each
        "job": Cost(memory=550),  # a bucket of 65,536 documents with their queries
        # With the download; rows of ids; parquet. Buckets and downloads, while it runs.
        "documents": Cost(seconds=0.12 * PUBLISHED_MB, memory=200e-6, disk=0.9 * PUBLISHED_MB),
        "scratch_mb": Cost(disk=1.6),
    }

    def inputs(self, grid: Grid, system: str, corpus: str) -> Inputs:
        return {"corpus": artifacts.documents(corpus)}

    def files(self, grid: Grid, system: str, corpus: str) -> Iterable[str]:
        entry = grid.expansion(system, corpus)
        if not isinstance(entry, entries.LocalExpansion):
            return []
        path = resolve_path(entry.path)
        return map(str, sorted(path.iterdir()) if path.is_dir() else [path])

    def settings(self, grid: Grid, system: str, corpus: str) -> Settings:
        return {"entry": _resolved(grid.expansion(system, corpus).own_keys())}

    def constraints(self, grid: Grid) -> dict[str, str]:
        return {"system": grid.one_of(grid.with_published)}

    def work(self, sizes: Sizes, system: str, corpus: str) -> Amounts:
        published = PUBLISHED_MB * sizes.documents(corpus)
        return {"scratch_mb": published, "download_mb": published / 3}


class FetchModel(Stage):
    """Checkpoint of a model, or a description of the server that runs it."""

    version = 1
    packages = _PACKAGES
    kind = "fetch"
    downloads = True
    recipes = (None,)
    outputs = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}
    main = "checkpoint"
    costs = {
        "download_mb": Cost(seconds=0.05),
        "weights_mb": Cost(seconds=0.005, disk=1),  # hashing, fitted; float32
        "pickled_job": Cost(seconds=8, memory=550),  # PyTorch: 986 MB in all for 400 MB of weights
        "pickled_mb": Cost(seconds=0.005, memory=2),  # weights read and written
        "scratch_mb": Cost(disk=1),  # the pickle
    }

    def files(self, grid: Grid, model: str) -> Iterable[str]:
        return map(str, sorted(checkpoints.source_files(grid.model(model))))

    def settings(self, grid: Grid, model: str) -> Settings:
        entry = grid.model(model)
        if entry.endpoint:
            return {"entry": {"family": entry.family, "endpoint": entry.endpoint.identity()}}
        keys = entry.own_keys(*_MODEL_KEYS)
        if not entry.trust_remote_code:
            keys.pop("trust_remote_code", None)  # fetches no code, whatever it says
        if entry.path is not None:  # a folder has no place on the hub
            keys = {key: value for key, value in keys.items() if key not in ("checkpoint", "revision")}
        return {"entry": _resolved(keys)}

    def options(self, grid: Grid, model: str) -> Settings:
        """Name the sides with a prompt: a checkpoint's own prompt for another side is refused."""
        entry = grid.model(model)
        own = entry.prefixes.own or bool(getattr(entry, "engine", None))
        sides = [side for side in ("query", "document") if own or getattr(entry.prefixes, side) is not None]
        connection = json.dumps(entry.endpoint.connection()) if entry.endpoint else None
        return {"name": model, "prompts": sides, "source": entry.source or None, "connection": connection}

    def work(self, sizes: Sizes, model: str) -> Amounts:
        entry = sizes.config.models[model]
        weights = 0.0 if entry.endpoint else sizes.weights_mb(model)
        downloaded = weights if entry.origin == "checkpoint" else 0.0
        pickled = {"pickled_job": 1.0, "pickled_mb": weights, "scratch_mb": weights} if entry.pickled else {}
        return {"weights_mb": weights, "download_mb": downloaded, **pickled}


class FetchRun(Stage):
    """Run that other software made."""

    name = "fetch_run"
    version = 1
    packages = ("pyarrow",)
    kind = "adopt"
    group = "cell"
    wildcards_passed = ("system",)
    systems = ("external",)
    outputs = {"run": paths.RUN, "record": paths.RUN_RECORD}
    main = "run"
    costs = ADOPTED

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        return {"corpus": artifacts.documents(grid.corpus(dataset)), "queries": artifacts.queries(dataset)}

    def files(self, grid: Grid, system: str, dataset: str) -> Iterable[str]:
        run = grid.system_as(entries.External, system).run.replace("{dataset}", dataset)
        return [str(Path(expanded(run)).absolute())]

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        [run] = self.files(grid, system, dataset)
        allow = tuple(grid.system_as(entries.Adopted, system).allow)
        return {"run": run, "depth": grid.config.retrieve.depth, "allow": allow}
