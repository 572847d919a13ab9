"""The summary of a grid: its rows and columns, and the files of every cell.

The job graph writes the summary (``graph.summaries``). The stages aggregate and report read it, and open only the
files that it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, ValidationError

from ..config.datasets import Statistics
from ..config.entries import TOLERANCES
from ..config.values import LIST, Entry, NotNegative, Seed
from ..core import files, provenance
from ..core.errors import DataError
from ..measures import MAIN, USUAL
from . import results_folder

Texts = Annotated[tuple[str, ...], LIST]
# How to repair a damaged summary.
REMEDY = "Run the grid, which writes the summary at its start"


class DatasetSummary(Entry):
    """A dataset of the grid, an averaged dataset, or a part of one."""

    task: str = Field("", description="Task, as in the BEIR paper.")
    domain: str = Field("", description="Domain, as in the BEIR paper.")
    relevance: str = Field("", description="Grades of the qrels.")
    metric: str = Field(USUAL, description="Main metric, which main stands for.")
    statistics: Statistics = Field(Statistics(), description="Known figures.")
    source: str = Field("", description="Source of the dataset. An averaged dataset has none.")
    licence: str = Field("", description="Licence of its corpus.")
    show_text: bool = Field(True, description="Whether reports may show texts of its documents and queries.")
    language: str = Field("en", description="Language of its corpus, an ISO 639-1 code.")
    corpus: str = Field("", description="Name of its corpus. An averaged dataset has none.")
    mean_of: Texts = Field((), description="The datasets that it averages.")
    slice_of: str = Field("", description="The dataset of which it is a slice: some of its queries.")
    slice_record: str = Field("", description="Record with the ids of its queries, if it is a slice.")
    not_supplied: Texts = Field((), description="Absent folders that the user must supply; without them, no scores.")
    not_judged: bool = Field(False, description="It has no qrels: its runs have no scores.")
    corpus_record: str = Field("", description="Record of its corpus; none if averaged or not supplied.")
    dataset_record: str = Field("", description="Record of its queries and qrels, as above.")
    qrels: str = Field("", description="Its qrels, as above.")


class Cell(Entry):
    """One system on one dataset, with the files behind its numbers."""

    system: str = Field(description="The system.")
    dataset: str = Field(description="The dataset.")
    scores: str = Field(description="Means of the metrics, from evaluate (.json).")
    per_query: str = Field(description="Values per query (.parquet).")
    records: Texts = Field((), description="Records of all steps before the evaluation, in order.")


class ModelFacts(Entry):
    """Facts for leaderboards about the model behind a system: for a reranked system, the reranker."""

    model: str = Field(description="Its name on the hub, or that of its entry.")
    parameters: float | None = Field(None, description="Parameters in millions.")
    dimensions: int | None = Field(None, description="Dimensions of its vectors.")
    max_length: int | None = Field(None, description="Tokens kept of a text.")
    licence: str = Field("", description="Licence of the weights.")
    source: str = Field("", description="Where these facts come from, if the entry says so.")


class ModelNote(Entry):
    """Remarks on a model's numbers, from its registry entry."""

    model: str = Field(description="The model.")
    systems: Texts = Field(description="Systems of the grid that use it.")
    note: str = Field(description="The note.")


class GridSummary(Entry):
    """A grid: the content of its tables and report, and the files with the numbers."""

    name: str = Field("grid", description="Name of the grid, and of its folder in results/grids/.")
    title: str = Field("", description="Title of the page, if it has one of its own.")
    systems: Texts = Field(description="Columns, in order.")
    seeds: dict[str, Texts] = Field({}, description="Columns that are means over seeds, and the systems of each seed.")
    rows: Texts = Field(description="Rows, in order: datasets and means.")
    datasets: dict[str, DatasetSummary] = Field(description="Rows, and the parts of averaged datasets.")
    families: dict[str, str] = Field({}, description="Family of each system: lexical, fusion, or that of its model.")
    rewritten: dict[str, str] = Field({}, description="By system: what its queries became, and who wrote the texts.")
    first_stages: dict[str, str] = Field({}, description="Of a system whose queries change, the system without that.")
    models: dict[str, ModelFacts] = Field({}, description="Model behind each system that has one.")
    metrics: Texts = Field(description="Metrics, name@k.")
    baseline: str = Field("", description="Baseline of the comparisons, if any.")
    compare: Texts = Field((), description="A system, and those that it was planned to be compared with, if any.")
    margin: NotNegative = Field(0.0, description="Largest planned difference that counts as equivalent.")
    order: str = Field("score", description="Order of the systems in tables: score, the best first, or grid.")
    seed: Seed = Field(0, description="Seed of the random numbers behind intervals and tests.")
    trained_on: dict[str, Texts] = Field({}, description="By system: the rows that its models or teachers learnt from.")
    training_unknown: dict[str, Texts] = Field({}, description="By system: the rows that may be in its training data.")
    declined: dict[str, dict[str, str]] = Field({}, description="By system: datasets that do not run, and why.")
    left_out: dict[str, str] = Field({}, description="Systems that do not run, because their gate says why.")
    tolerances: dict[str, NotNegative] = Field(TOLERANCES, description="Tolerance by class of published values.")
    show_published: Texts = Field((), description="Files of published values, without .csv, whose systems are shown.")
    published_as: dict[str, Texts] = Field({}, description="By system: its names in published values.")
    notes: Annotated[tuple[ModelNote, ...], LIST] = Field((), description="Notes on models.")
    cells: Annotated[tuple[Cell, ...], LIST] = Field((), description="Cells that have scores.")
    unjudged: Annotated[tuple[Cell, ...], LIST] = Field((), description="Cells of datasets without qrels: no scores.")
    kinds: dict[str, str] = Field({}, description="What the jobs of a stage do for a cell, by its name in records.")
    settings: dict[str, str] = Field({}, description="Digest of the settings asked for, by path of record or scores.")

    @property
    def members(self) -> list[str]:
        """The systems of single seeds, which are not columns."""
        return [member for members in self.seeds.values() for member in members]

    @property
    def slices(self) -> dict[str, str]:
        """The rows that are slices, each with its dataset."""
        return {name: entry.slice_of for name, entry in self.datasets.items() if entry.slice_of}

    def meant(self, metric: str, dataset: str) -> str:
        """Return what a metric of the grid is on a dataset; that of a mean whose parts have several is ``main``."""
        if metric != MAIN:
            return metric
        metrics = {self.datasets[part].metric for part in self.datasets[dataset].mean_of or (dataset,)}
        return metrics.pop() if len(metrics) == 1 else MAIN

    @property
    def counted_once(self) -> list[str]:
        """The rows that count in a mean over datasets: supplied, judged, and not part or slice of another row."""
        parts = {part for row in self.rows for part in self.datasets[row].mean_of} | {*self.slices}
        entries = {row: self.datasets[row] for row in self.rows if row not in parts}
        return [row for row, entry in entries.items() if not (entry.not_supplied or entry.not_judged)]

    def replaced_by(self, settings: Mapping[str, str]) -> Iterator[str]:
        """Yield the records that are as this grid asks, and that a grid of other settings (digests) replaces."""
        for path, key in self.settings.items():
            with suppress(DataError):
                if settings.get(path, key) != key and provenance.read_record(path)["settings_key"] == key:
                    yield path


def sliced(dataset: str, name: str) -> str:
    """Return the name of a row with a slice of a dataset."""
    return f"{dataset}:{name}"


def read(path: str | Path) -> GridSummary:
    """Read the summary of a grid.

    Raises:
        DataError: the file is missing, or is not a summary.
    """
    with files.reading(path):
        content = Path(path).read_bytes()
    try:
        return GridSummary.model_validate_json(content)
    except ValidationError:
        raise DataError(f"{path} is not a summary of a grid, or of another version of beirgrid. {REMEDY}") from None


def others(name: str) -> list[GridSummary]:
    """Read the summaries of the other grids in the working directory. A damaged one is named and left out."""
    return [grid for grid in results_folder.of_grids(Path("results"), read).values() if grid.name != name]


# Type of an argument that names the file of a summary.
SummaryFile = Annotated[GridSummary, PlainValidator(read), "summary of the grid, grid.json"]
