"""The table of stages: one row per kind of job, with its command and needs.

The command line, versions, packages, and the lists of rules that run a model, download or share cluster jobs are
derived from these rows. ``docs/extending.md`` shows how to add one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from .families import RETRIEVERS, Family


class Cost(NamedTuple):
    """Seconds and MB of memory that a job takes in addition to its start-up."""

    seconds: float
    memory: float


@dataclass(frozen=True)
class Stage:
    """One stage, or one kind of a stage (``fetch corpus``).

    Attributes:
        command: words of its command, after ``beirgrid``.
        function: function that the command runs, with its module, which is imported only then.
        help: one line for ``--help``.
        version: version of its output, a param of the rule. Raise it when a change of code changes the output;
            Snakemake then recomputes the output.
        packages: packages whose versions its records keep, if installed.
        rule: name of its rule; by default, the words of the command.
        record: its name in records; by default, the first word of the command. Stages with one name share a version.
        model: whether its jobs run a model.
        downloads: whether its jobs download. Profiles limit how many of them run at the same time.
        group: which jobs of small corpora are grouped into one cluster job: those of shards or those of cells.
        cost: cost of a job, unless ``graph/costs.py`` and ``graph/costs.csv`` model it.
    """

    command: str
    function: str
    help: str
    version: int
    packages: tuple[str, ...] = ()
    rule: str = ""
    record: str = ""
    model: bool = False
    downloads: bool = False
    group: Literal["shard", "cell", ""] = ""
    cost: Cost | None = None

    def __post_init__(self) -> None:
        """Fill in the names that follow from the command."""
        object.__setattr__(self, "rule", self.rule or self.command.replace(" ", "_").replace("-", "_"))
        object.__setattr__(self, "record", self.record or self.command.partition(" ")[0])


_COLLECTION = ("ir_datasets", "datasets", "pyarrow")
_FETCHED = (*_COLLECTION, "torch", "safetensors")
_MODEL = ("torch", "transformers", "sentence-transformers")
_INDEX = ("faiss-cpu", "pyserini")
_SEARCH = (*_INDEX, "torch", "sentence-transformers")
_PLOTTED = ("ir-measures", "pytrec-eval-terrier", "networkx", "matplotlib")
_ENCODE, _RETRIEVE = 8, 9  # versions that several rows share
# The searches of these families have options of their own.
_SEARCHES = {
    "dense": ("stages.retrieve:retrieve_dense", "search a corpus with a dense model"),
    "late-interaction": (
        "stages.retrieve:retrieve_late_interaction",
        "score documents by MaxSim with a late-interaction model",
    ),
}


def _encode(family: Family) -> Stage:
    function, purpose = "stages.encode:encode", "encode one shard of a corpus to vectors"
    return Stage("encode", function, purpose, _ENCODE, _MODEL, f"encode_{family.rule}", model=True, group="shard")


def _index(family: Family) -> Stage:
    function, purpose = "stages.index:index_vectors", f"index one shard of the vectors of a {family.name} model"
    return Stage(f"index {family.name}", function, purpose, 1, _INDEX, f"index_{family.rule}", group="shard")


def _retrieve(family: Family) -> Stage:
    exact = ("stages.retrieve:retrieve_vectors", f"search a corpus exactly with a {family.name} model")
    words, rule, found = f"retrieve {family.name}", f"retrieve_{family.rule}", _SEARCHES.get(family.name, exact)
    return Stage(words, *found, _RETRIEVE, _SEARCH, rule, model=True, group="cell")


_ROWS = (
    Stage("fetch corpus", "stages.fetch:fetch_corpus", "fetch the documents of a corpus", 1, _FETCHED, downloads=True),
    Stage(
        "fetch dataset",
        "stages.fetch:fetch_dataset",
        "fetch the judged queries and the qrels of a dataset",
        3,
        _COLLECTION,
        record="fetch_dataset",
        downloads=True,
    ),
    Stage(
        "fetch expansion",
        "stages.fetch:fetch_expansion",
        "fetch published queries for documents (doc2query expansions)",
        1,
        ("huggingface_hub", "pyarrow"),
        record="fetch_expansion",
        downloads=True,
    ),
    Stage("fetch model", "stages.fetch:fetch_model", "fetch the checkpoint of a model", 1, _FETCHED, downloads=True),
    Stage(
        "fetch run",
        "stages.fetch:fetch_run",
        "fetch a run that other software made",
        1,
        ("pyarrow",),
        record="fetch_run",
        group="cell",
    ),
    Stage("train", "stages.train:train", "train a cross-encoder on pairs from a corpus", 3, _MODEL, model=True),
    Stage(
        "generate",
        "stages.generate:generate",
        "write training queries for the documents of a corpus",
        4,
        ("torch", "transformers"),
        model=True,
    ),
    Stage("mine", "stages.mine:mine", "find hard negatives for training queries", 7, _SEARCH, model=True),
    Stage("label", "stages.label:label", "score training queries with a cross-encoder teacher", 7, _MODEL, model=True),
    Stage("adapt", "stages.adapt:adapt", "adapt a dense model to a corpus", 3, _MODEL, model=True),
    *map(_encode, RETRIEVERS.values()),
    Stage(
        "expand",
        "stages.expand:expand",
        "expand the documents of one shard of a corpus for BM25",
        5,
        ("torch", "transformers", "sentencepiece"),
        model=True,
    ),
    Stage("index lexical", "stages.index:index_lexical", "index a corpus for BM25", 1, _INDEX),
    Stage(
        "index program",
        "stages.program:index_program",
        "index a corpus with a program of yours",
        1,
        record="index_program",
    ),
    *map(_index, RETRIEVERS.values()),
    Stage(
        "index approximate",
        "stages.index:index_approximate",
        "build a smaller or faster index from an exact one",
        1,
        _INDEX,
    ),
    Stage(
        "retrieve lexical",
        "stages.retrieve:retrieve_lexical",
        "search a corpus with BM25",
        _RETRIEVE,
        _SEARCH,
        group="cell",
    ),
    Stage(
        "retrieve program",
        "stages.program:retrieve_program",
        "search a corpus with a program of yours",
        1,
        ("pyarrow",),
        record="retrieve_program",
    ),
    *map(_retrieve, RETRIEVERS.values()),
    Stage(
        "score", "stages.score:score", "score (query, document) pairs with a reranker, each once", 8, _MODEL, model=True
    ),
    Stage("rerank", "stages.rerank:rerank", "reorder the top of a run by stored pair scores", 1, group="cell"),
    Stage("fuse", "stages.fuse:fuse", "fuse several runs into one", 2, group="cell"),
    Stage(
        "evaluate",
        "stages.evaluate:evaluate",
        "compute the metrics of a run",
        3,
        ("ir-measures", "pytrec-eval-terrier"),
        group="cell",
    ),
    Stage("aggregate", "stages.aggregate:aggregate", "make the tables of a grid, with verdicts", 11),
    Stage(
        "page",
        "stages.report:page",
        "write the report of a grid whose cells are all finished",
        12,
        ("matplotlib",),
        rule="report",
        record="report",
    ),
    Stage(
        "analyse",
        "stages.analyse:analyse",
        "make the BEIR paper's analyses from the runs of a grid",
        7,
        _PLOTTED,
        rule="analyses",
    ),
)
# Stages by command. One command may have several rules: encode has one for each kind of vectors.
COMMANDS = {stage.command: stage for stage in _ROWS}
# Stages by rule. A family that shares another family's rules adds commands only.
STAGES = {stage.rule: stage for stage in reversed(_ROWS)}
# Versions and packages, by the stage's name in records.
VERSIONS = {stage.record: stage.version for stage in _ROWS}
PACKAGES = {stage.record: stage.packages for stage in _ROWS}

# Rules whose jobs run a model (generate and mine only if the recipe names one), run an external program, or download.
MODEL_RULES = {stage.rule for stage in _ROWS if stage.model}
PROGRAM_RULES = {stage.rule for stage in _ROWS if stage.record in ("index_program", "retrieve_program")}
DOWNLOADS = {stage.rule for stage in _ROWS if stage.downloads}
