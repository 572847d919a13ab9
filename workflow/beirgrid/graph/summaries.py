"""Summarise a grid for tables and report: its rows, its columns, and the files of each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..config import entries
from ..config.checks import models_behind, with_parts
from ..config.datasets import Statistics, lack_of_qrels
from ..core import paths
from ..core.checkout import CHECKOUT, portable, resolve_path
from ..results.published import names_of
from ..results.summary import Cell, DatasetSummary, GridSummary, ModelFacts, ModelNote, sliced
from . import artifacts
from .dag import jobs_behind, stages
from .grid import Grid

_Value = TypeVar("_Value")
DATASETS_PAGE = CHECKOUT / "docs" / "datasets.md"
# Files of published values.
PUBLISHED = sorted((CHECKOUT / "config" / "published").glob("*.csv"))


class Summary:
    """Descriptions of a grid, for the command that writes the tables and for the user who starts the grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def notice(self) -> str:
        """Return the notice to print before the grid starts, or an empty string."""
        config = self.grid.config
        missing = self.grid.not_supplied
        lines = [
            'Some datasets are not supplied. Their cells will read "not supplied"; everything else runs. To supply '
            f"them, fill their folders as {DATASETS_PAGE} says, and run again:"
        ] * bool(missing)
        lines += [f"  {name}: {folder}" for name, folder in missing.items()]
        for name in sorted(self.grid.not_judged):
            source = config.corpora[self.grid.corpus(name)]
            assert isinstance(source, entries.LocalCorpus), "other sources have qrels"
            _, split = config.datasets[name].qrels(source)
            why = lack_of_qrels(resolve_path(source.path), split)
            lines.append(f"{name} will have no scores: {source.path} {why}")
        return "\n".join(lines)

    def as_json(self, settings: Mapping[str, str]) -> str:
        """Return the summary as one line of JSON.

        Args:
            settings: digests of the requested params, by the path of the record or of the scores.
        """
        config = self.grid.config
        training = self._by_system(self._training)
        summary = GridSummary(
            name=config.grid.name,
            title=config.grid.title,
            systems=config.grid.systems,
            rows=self._rows(config.grid.datasets),
            datasets={name: self._dataset(name) for name in self._shown()} | dict(self._slices()),
            seeds={system: members for system in config.grid.systems if len(members := self.grid.members(system)) > 1},
            families=self._by_system(self._family),
            rewritten=self._by_system(self._rewriting),
            first_stages=self._by_system(self._first_stage),
            models=self._by_system(self._model),
            metrics=config.metrics,
            baseline=self.grid.baseline or "",
            compare=config.grid.compare,
            margin=config.grid.margin,
            order=config.grid.show.order,
            seed=config.seed,
            trained_on=self._by_system(lambda system: training[system][0]),
            training_unknown=self._by_system(lambda system: training[system][1]),
            declined=self.grid.declined,
            left_out=self.grid.left_out,
            tolerances=config.tolerances,
            show_published=config.grid.show.published,
            published_as={system: names_of(config, system) for system in config.grid.systems},
            notes=tuple(self._notes()),
            cells=tuple(self._cell(system, dataset) for system, dataset in self.grid.cells),
            unjudged=tuple(self._cell(*run) for run in self.grid.runs if run[1] in self.grid.not_judged),
            settings=dict(settings),
            kinds={stage.name: stage.kind for stage in stages().values()},
        )
        return summary.model_dump_json(exclude_defaults=True, ensure_ascii=True)

    def _shown(self) -> list[str]:
        """Return the rows of the grid, and the parts of means."""
        rows = self.grid.config.grid.datasets
        return [*dict.fromkeys([*rows, *(part for row in rows for part in self.grid.parts(row))])]

    def _rows(self, datasets: Iterable[str]) -> tuple[str, ...]:
        """Return datasets, each with its slices after it."""
        slices = [(name, sliced(name, part)) for name, part in self.grid.slices]
        return tuple(row for name in datasets for row in (name, *(row for of, row in slices if of == name)))

    def _slices(self) -> Iterator[tuple[str, DatasetSummary]]:
        """Yield each slice with its summary: that of its dataset, without what is of all queries."""
        for name, part in self.grid.slices:
            keys = self.grid.config.datasets[name].slices[part].own_keys()
            own = {"source": ", ".join(f"{key}: {value}" for key, value in keys.items()), "statistics": Statistics()}
            own |= {"slice_of": name, "slice_record": paths.SLICE.format(dataset=name, slice=part)}
            yield sliced(name, part), self._dataset(name).model_copy(update={**own, "dataset_record": "", "qrels": ""})

    def _by_system(self, described: Callable[[str], _Value | None]) -> dict[str, _Value]:
        """Return what a function says of each system of the grid, where it says something."""
        return {system: value for system in self.grid.config.grid.systems if (value := described(system))}

    def _model_of(self, system: str) -> str:
        """Return the name of a system's model: the reranker's of a reranked system, that of its only part for a system
        over another; empty without one.
        """
        entry = self.grid.system(self.grid.members(system)[0])
        if isinstance(entry, entries.Retriever | entries.Reranked):
            return entry.retriever if isinstance(entry, entries.Retriever) else entry.reranker
        return self._model_of(entry.parts[0]) if len(entry.parts) == 1 else ""

    def _family(self, system: str) -> str:
        """Return the family of a system's model; lexical or fusion without one."""
        name = self._model_of(system)
        return self.grid.model(name).family if name else self.grid.searched(self.grid.members(system)[0]).kind

    def _rewriting(self, system: str) -> str | None:
        """Return what the queries of a system became, or those of a system below it; None if they stay."""
        below = with_parts(self.grid.config.systems, self.grid.members(system)[:1])
        rewritings = [rewriting for part in below if (rewriting := self.grid.rewriting(part))]
        texts = [f"{one.method} by {one.generator or one.file}" for one in rewritings]
        texts += filter(None, (self.grid.system(part).change for part in below))
        return ", ".join(dict.fromkeys(texts)) or None

    def _first_stage(self, system: str) -> str:
        """Return the system of the grid that a system with feedback or rewritten queries begins with; empty for others,
        and for rerankers.
        """
        entry = self.grid.system(system)
        others = self.grid.config.grid.systems
        if isinstance(entry, entries.Bm25) and entry.rm3:
            plain = entry.model_copy(update={"rm3": None}).model_dump()
            return next((name for name in others if self.grid.system(name).model_dump() == plain), "")
        first = "" if isinstance(entry, entries.Reranked) else getattr(entry, "first_stage", "")
        return first if first in others else ""

    def _model(self, system: str) -> ModelFacts | None:
        """Return the facts of a system's model; None without one."""
        if not (name := self._model_of(system)):
            return None
        model = self.grid.model(name)
        described = {key: getattr(model, key) for key in ("max_length", "licence", "source")}
        size = {key: getattr(model.size, key) for key in ("parameters", "dimensions")}
        return ModelFacts(model=name if model.path else model.checkpoint or name, **size, **described)

    def _dataset(self, name: str) -> DatasetSummary:
        entry = self.grid.config.datasets[name]
        missing = self.grid.not_supplied
        keys = ("task", "domain", "relevance", "metric", "statistics")
        described: dict[str, Any] = {key: getattr(entry, key) for key in keys}
        absent = tuple(portable(str(missing[part])) for part in self.grid.parts(name) if part in missing)
        described["not_supplied"] = absent
        if entry.mean_of:
            return DatasetSummary(**described, mean_of=entry.mean_of)
        corpus = self.grid.corpus(name)
        source = self.grid.config.corpora[corpus]
        # A folder is shown by its name only, so that tables do not change when results or collections are moved.
        place = resolve_path(source.path).name if isinstance(source, entries.LocalCorpus) else source.id
        judged = name not in self.grid.not_judged
        described |= {"corpus": corpus, "not_judged": not judged}
        described["source"] = entry.id or f"{place}, {entry.qrels(source)[1]}"
        described |= {key: getattr(source, key) for key in ("licence", "language", "show_text")}
        if not absent:
            described["corpus_record"] = paths.CORPUS_RECORD.format(corpus=corpus)
            described["dataset_record"] = paths.DATASET_RECORD.format(dataset=name)
            described["qrels"] = paths.QRELS.format(dataset=name) if judged else ""
        return DatasetSummary(**described)

    def _cell(self, system: str, dataset: str) -> Cell:
        return Cell(
            system=system,
            dataset=dataset,
            scores=paths.METRICS.format(system=system, dataset=dataset),
            per_query=paths.PER_QUERY.format(system=system, dataset=dataset),
            records=tuple(job.record for job in jobs_behind(self.grid, artifacts.run(self.grid, system, dataset))),
        )

    def _training(self, system: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the rows whose collections a system was trained on, and the rows for which this is unknown.

        Includes the training data of teachers, and the qrels with which the workflow trains a model. Nobody else's
        model has seen a collection of your own, so that is never unknown.
        """
        stated = list(self._stated(system))
        names = {name for entry in stated if entry for name in entry.names}

        def known(row: str) -> bool:
            parts = self.grid.parts(row)
            return bool(names & {row, *parts, *(self.grid.corpus(part) for part in parts)})

        rows = self.grid.config.grid.datasets
        trained = tuple(filter(known, rows))
        if all(entry and entry.complete for entry in stated):
            return self._rows(trained), ()
        return self._rows(trained), self._rows(row for row in rows if row not in trained and not self._is_own(row))

    def _is_own(self, row: str) -> bool:
        """Tell whether a row has only folders of the user's own, which replace no registered collection."""
        sources = [self.grid.config.corpora[self.grid.corpus(part)] for part in self.grid.parts(row)]
        return all(isinstance(source, entries.LocalCorpus) and not (source.supplied or source.id) for source in sources)

    def _stated(self, system: str) -> Iterator[entries.TrainedOn | None]:
        """Yield the stated training data of each part of a system; None if unstated."""
        config = self.grid.config
        for name in models_behind(config, [system]):
            model = config.models[name]
            if model.trained_on is None and isinstance(train := model.training, entries.CrossEncoderTraining):
                yield entries.TrainedOn(names=(train.corpus,) if train.dataset else (), source="the entry")
            elif model.trained_on is not None or not model.training:
                yield model.trained_on
        for name in with_parts(config.systems, [system]):
            part = config.systems[name]
            if isinstance(part, entries.Adopted):
                yield part.trained_on
            elif isinstance(part, entries.Fused) and part.learns:
                yield entries.TrainedOn(names=tuple(self.grid.datasets), source="the entry")
            elif isinstance(part, entries.Bm25) and isinstance(part.expansion, entries.PublishedExpansion):
                yield None

    def _notes(self) -> Iterator[ModelNote]:
        """Yield the notes of the models behind the grid's systems, each with its systems."""
        config = self.grid.config
        behind = {system: models_behind(config, [system]) for system in config.grid.systems}
        for model in dict.fromkeys(model for models in behind.values() for model in models):
            if note := config.models[model].note:
                using = tuple(system for system, models in behind.items() if model in models)
                yield ModelNote(model=model, systems=using, note=note)
