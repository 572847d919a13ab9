"""Objects that encode texts, such as a model in training: evaluated in this process, without a checkpoint."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.evaluation import BaseEvaluator

from ..collections import collection, qrels
from ..config.load import merged
from ..core import files, paths, provenance
from ..core.errors import BeirgridError
from ..graph import artifacts
from ..graph.dag import jobs_behind
from ..graph.grid import Grid
from ..graph.rules import Rules
from ..measures import parse_metric, per_query
from ..results.summary import sliced
from ..runs import runs
from ..runs.restrictions import Restrictions
from ..tools.run import configuration, is_own_collection

if TYPE_CHECKING:
    import pandas as pd

# Documents that are encoded, and scored for all queries, at a time.
_DOCUMENTS = 2048
# Documents ranked for a query, as in a grid: some metrics leave documents out before their cut.
_DEPTH = 1000


class Evaluator(BaseEvaluator):  # type: ignore[misc]
    """Evaluates models in training on a registered dataset. Trainers of sentence-transformers take it.

    A model has ``encode_query`` and ``encode_document``, or ``encode`` alone. Its ``similarity`` scores what they
    return; without it, scores are inner products. Every document is scored.

    Example:
        >>> Trainer(model, evaluator=beirgrid.Evaluator("scifact"))  # doctest: +SKIP
    """

    def __init__(
        self,
        dataset: str,
        *,
        metrics: Sequence[str] = ("ndcg@10",),
        directory: str | Path = ".",
        slices: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Fetch the dataset and its slices, unless the directory has it.

        Args:
            dataset: name of a registered dataset or of one that the directory has, or a folder in BEIR layout.
            metrics: metrics, name@k. The first is the one by which a trainer chooses checkpoints.
            directory: folder with the results of grids, in which the dataset is fetched.
            slices: groups of its queries to show beside it, by name, with the keys of a configuration.

        Raises:
            ConfigError: the dataset is not registered.
            BeirgridError: a metric is unknown, the dataset cannot be fetched, or has no qrels.
        """
        super().__init__()
        self.depth = max(_DEPTH, *(parse_metric(metric).k for metric in metrics))
        self.metrics = tuple(metrics)
        self.directory = Path(directory)
        self.dataset, ends = _fetch(dataset, self.directory, slices)
        dataset = self.dataset
        self.primary_metric = f"{dataset}_{metrics[0]}"
        queries, record, grades = (
            provenance.artifact(self.directory / pattern.format(dataset=dataset))
            for pattern in (paths.QUERIES, paths.DATASET_RECORD, paths.QRELS)
        )
        corpus = provenance.entry_of(provenance.read_record(record))["corpus"]
        self.corpus = provenance.artifact(self.directory / paths.CORPUS.format(corpus=corpus))
        self.queries = collection.read_queries(queries)
        self.limits = Restrictions(queries, self.depth)
        self.qrels = qrels.read(grades)
        self.rows = {dataset: [*self.qrels]}
        self.rows |= {name: provenance.read_record(self.directory / path)["kept"] for name, path in ends.items()}

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the mean of each metric, as ``{dataset}_{metric}``, and store it in the model's card if it has one.

        Those of a slice are ``{dataset}:{slice}_{metric}``.
        """
        values = per_query(self.rank(model), self.qrels, self.metrics)
        places = {query: place for place, query in enumerate(self.qrels)}
        means = {}
        for row, queries in self.rows.items():
            kept = [places[query] for query in queries]
            for metric, of_queries in values.items():
                means[f"{row}_{metric}"] = float(np.mean(of_queries[kept]))
        if hasattr(model, "model_card_data"):
            self.store_metrics_in_model_card_data(model, means, epoch, steps)
        return means

    def table(self, model: Any) -> pd.DataFrame:
        """Return the scores of a model with the columns of ``load_scores``; its class names the system."""
        import pandas as pd

        means = self(model)
        rows = [(row, metric, len(queries)) for row, queries in self.rows.items() for metric in self.metrics]
        table = pd.DataFrame(rows, columns=["dataset", "metric", "queries"])
        table = table.assign(system=type(model).__name__, value=list(means.values()))
        return table[["system", "dataset", "metric", "value", "queries"]]

    def rank(self, model: Any) -> runs.Run:
        """Return the best documents of each query.

        Raises:
            BeirgridError: the model cannot encode texts, or a score is not a finite number.
        """
        texts = _encode(model, list(self.queries.values()), is_query=True)
        best: runs.Run = dict.fromkeys(self.queries, runs.EMPTY)
        most = self.limits.searched(collection.count(self.corpus))
        for block in collection.read_documents(self.corpus, size=_DOCUMENTS):
            scores = _similarity(
                model, texts, _encode(model, [document.full_text for document in block], is_query=False)
            )
            ids = np.array([document.id for document in block], object)
            for query, of_query in zip(best, scores, strict=True):
                allowed = self.limits.candidates.get(query)
                kept = slice(None) if allowed is None else [document in allowed for document in ids]
                best[query] = _best(best[query], ids[kept], of_query[kept], most)
        return {query: self.limits.ranking(query, *found) for query, found in best.items()}


def _best(best: runs.Ranking, ids: np.ndarray, scores: np.ndarray, most: int) -> runs.Ranking:
    """Merge later documents of the corpus into the best: ties are cut in the order of the corpus, as in a grid.

    A score that is no number stands first, so that the ranking is refused.
    """
    new = ~(scores < best.scores[-1]) if len(best.ids) == most else slice(None)
    both = np.concatenate([best.scores, scores[new]])
    documents = np.array([*best.ids, *ids[new]], object)
    ascending = np.argsort(both[::-1], kind="stable")  # reversed, so that of equal scores the first comes last
    order = len(both) - 1 - ascending[::-1][:most]
    return runs.Ranking(documents[order].tolist(), both[order])


def _fetch(dataset: str, directory: Path, slices: Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, str]]:
    """Run the jobs that fetch a dataset, its corpus and its slices, unless a folder has them.

    Returns the dataset's name, and the records of its slices by the names of their rows.
    """
    is_here = (directory / paths.DATASET_RECORD.format(dataset=dataset)).is_file()
    if is_here and not slices and not is_own_collection(dataset) and dataset not in merged().datasets:
        return dataset, {}  # of the configuration of a grid that ran there
    content = configuration(["bm25"], [dataset])
    name: str = content["grid"]["datasets"][0]
    if slices:
        content.setdefault("datasets", {}).setdefault(name, {})["slices"] = dict(slices)
    grid = Grid(merged(more=content))
    if parts := grid.config.datasets[name].mean_of:
        raise BeirgridError(f"{name!r} is the mean of {', '.join(parts)}: evaluate these")
    directory.mkdir(parents=True, exist_ok=True)
    rules = Rules(grid, own_python=True)
    with contextlib.chdir(directory), files.locked(".snakemake/beirgrid/fetch.lock"):
        ends = {sliced(*of.job.values.values()): of for of in artifacts.slices(grid)}
        for each in jobs_behind(grid, artifacts.queries(name), *ends.values()):
            if not Path(each.record).is_file() or rules.reason_of(each):
                rules.run(each)
    return name, {row: of.path for row, of in ends.items()}


def _encode(model: Any, texts: list[str], *, is_query: bool) -> Any:
    """Return what a model makes of texts. PyLate's models are refused: their ``encode_document`` encodes queries."""
    encode = getattr(model, "encode", None)
    if callable(encode) and "is_query" in inspect.signature(encode).parameters:
        name = type(model).__name__
        raise BeirgridError(f"{name}.encode takes is_query, as in PyLate: save the checkpoint, and evaluate its folder")
    encode = getattr(model, "encode_query" if is_query else "encode_document", encode)
    if not callable(encode):
        raise BeirgridError(f"{type(model).__name__} has no method encode")
    return encode(texts)


def _similarity(model: Any, queries: Any, documents: Any) -> np.ndarray:
    """Return scores, float32 [queries, documents]."""
    if not hasattr(model, "similarity"):
        return np.asarray(_in_float64(queries) @ _in_float64(documents).T, np.float32)
    if hasattr(model, "similarity_fn_name"):  # of sentence-transformers, whose similarity takes any floats
        queries = _in_float64(queries)
        documents = _in_float64(documents)
    return np.asarray(model.similarity(queries, documents).float().cpu(), np.float32)


def _in_float64(vectors: Any) -> Any:
    """Return vectors in float64, as in a grid: float32 scores of equal vectors differ by their place in a block."""
    if isinstance(vectors, list):  # token vectors
        return vectors
    return vectors.cpu().double() if hasattr(vectors, "cpu") else np.asarray(vectors, np.float64)
