"""List the records behind each cell: one for every step that led to its numbers."""

from __future__ import annotations

from ..config import entries, with_parts
from ..core import paths
from .grid import Grid, fill
from .inputs import Inputs


class Records:
    """Paths of records, in the order of the steps."""

    def __init__(self, grid: Grid, inputs: Inputs) -> None:
        self.grid = grid
        self.inputs = inputs

    def everything(self) -> list[str]:
        """Return the records of all steps behind the grid's runs, each once."""
        return list(dict.fromkeys(record for cell in self.grid.runs for record in self.of_cell(*cell)))

    def of_cell(self, system: str, dataset: str) -> list[str]:
        """Return the records of all steps behind one cell. The record of its evaluation is its metrics."""
        corpus = self.grid.corpus(dataset)
        filled = [fill(pattern, dataset=dataset, corpus=corpus) for pattern in self.patterns(system)]
        shards = self.grid.shards(corpus)
        return [
            record for pattern in filled for record in dict.fromkeys(fill(pattern, shard=shard) for shard in shards)
        ]

    def files_of(self, system: str, dataset: str) -> list[str]:
        """Return the records of all steps behind one cell, and its scores, for all seeds."""
        members = self.grid.members(system)
        found = [record for member in members for record in self.of_cell(member, dataset)]
        last = paths.RUN if dataset in self.grid.not_judged else paths.METRICS
        return [*dict.fromkeys(found), *(last.format(system=member, dataset=dataset) for member in members)]

    def patterns(self, name: str) -> list[str]:
        """Return the patterns of the records behind a system, with wildcards dataset, corpus and shard."""
        found = [paths.CORPUS_RECORD, paths.DATASET_RECORD]
        for part in with_parts(self.grid.config.systems, [name]):
            found += self._own(part)
        return list(dict.fromkeys(found))

    def _own(self, name: str) -> list[str]:
        """Return the record patterns of a system's own steps, without those of its component runs."""
        system, found = self.grid.system(name), []
        if isinstance(system, entries.Bm25):
            if isinstance(system.expansion, entries.PublishedExpansion):
                found.append(fill(paths.PUBLISHED_RECORD, system=self.grid.published(name)))
            elif system.expansion:
                found.append(fill(paths.MODEL_RECORD, model=self.grid.weights_of(system.expansion)))
                found.append(fill(paths.EXPANSIONS_RECORD, model=system.expansion))
            found.append(fill(paths.LUCENE_RECORD, index=self.inputs.lucene_name(name)))
        elif isinstance(system, entries.Program) and system.index_command:
            found.append(fill(paths.PROGRAM_INDEX_RECORD, system=self.grid.program_index(name)))
        elif isinstance(system, entries.Retriever):
            found += self._retriever(name, system)
        elif isinstance(system, entries.Reranked):
            found.append(fill(paths.MODEL_RECORD, model=self.grid.weights_of(system.reranker)))
            found.append(fill(paths.PAIRS_RECORD, reranker=system.reranker, first=system.first_stage))
        return [*found, fill(paths.RUN_RECORD, system=name)]

    def _retriever(self, name: str, system: entries.Retriever) -> list[str]:
        indexed = not (isinstance(system, entries.LateInteractionRetriever) and system.exhaustive)
        steps = [paths.EMBEDDINGS_RECORD, *([paths.SHARD_RECORD] if indexed else [])]
        model = self.grid.artifacts_of(system.retriever)
        if isinstance(system, entries.DenseRetriever) and system.variant:
            steps.append(fill(paths.VARIANT_RECORD, variant=system.variant))
        return [
            *self._training(self.grid.weights_of(system.retriever)),
            fill(paths.MODEL_RECORD, model=self.grid.weights_of(model)),
            *(fill(step, model=model) for step in steps),
            fill(paths.MODEL_RECORD, model=self.grid.weights_of(self.grid.artifacts_of(self.grid.query_model(name)))),
        ]

    def _training(self, name: str) -> list[str]:
        """Return the record patterns of the steps that adapt a dense model, without the model's own record."""
        train = self.grid.model(name).training
        if train is None:
            return []
        found = self._training(train.base)
        if self.grid.model(train.base).training:
            found.append(fill(paths.MODEL_RECORD, model=self.grid.artifacts_of(train.base)))
        steps = [paths.TRAINING_QUERIES_RECORD] if isinstance(train, entries.GenQ | entries.Gpl) else []
        steps += [paths.NEGATIVES_RECORD, paths.MARGINS_RECORD] if isinstance(train, entries.Gpl) else []
        found += [fill(step, model=self.grid.artifacts_of(name)) for step in steps]
        return [fill(pattern, corpus=train.corpus) if train.corpus else pattern for pattern in found]
