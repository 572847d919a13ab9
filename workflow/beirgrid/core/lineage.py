"""What stands behind the inputs of a job: it must belong together. The record of a job keeps it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import files, paths
from .errors import DataError
from .provenance import record_of

_NOTHING: Mapping[str, Any] = MappingProxyType({})
# Options of models. What a model was trained on does not stand behind what it makes.
_MODELS = ("checkpoint", "checkpoints", "query_tower", "base", "teacher", "generator")
# Options over other queries, on which a fusion is tuned: these queries are compared with each other.
_DEV = ("dev_runs", "dev_qrels")
# Whose hashes must be the same behind the inputs of a job, by option. Of vectors, also the model that made them; of two
# runs of one system, that model.
_DATA = ("corpus", "queries", "training_queries")
_SHARED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_MODELS, ()),
    "checkpoint": ("query_tower",),
    **dict.fromkeys(("vectors", "exact", "tokens", "indexes", "expansions"), ("corpus", "checkpoint")),
    **dict.fromkeys(_DEV, ("corpus", "dev_queries")),
    "of_system": ("checkpoint",),
    # Of other datasets, by which a slice is chosen.
    **dict.fromkeys(("others", "training"), ()),
    "dense_run": (*_DATA, "checkpoint", "query_tower"),
    **dict.fromkeys(("scores", "first_stage"), (*_DATA, "run")),
}
# Options whose own hash stands behind what is made from them.
_SUBJECTS = (*_DATA, "checkpoint", "query_tower", "run")
# Options that take all shards of a corpus.
_LISTS = ("indexes", "tokens", "expansions")
# Options that take one shard.
_OF_SHARDS = ("vectors", "exact")

Inputs = Mapping[str, Path | Sequence[Path] | None]


class Ancestry:
    """What stands behind artifacts. Each record, and each file without a recorded hash, is read once."""

    def __init__(self) -> None:
        self.behind = cache(self._behind)
        self.rows = cache(self._rows)
        self.record_of = cache(record_of)
        self.identity = cache(lambda path: self.record_of(path).identity)

    def _behind(self, option: str, path: Path) -> dict[str, Any]:
        """Return the hashes that an input shares with the others of its job: its own, and those of its ancestors.

        Raises:
            DataError: something behind the input was made again since, with another content.
        """
        known = self.record_of(path)
        behind: dict[str, Any] = {}
        for role, source, recorded in known.inputs:
            if self.is_another(source, recorded):
                raise DataError(f"{source} is another one than {path} was made from: run the grid again")
            behind |= self.behind(role, source)
            behind |= {role: recorded["sha256"]} if role in _SUBJECTS and "sha256" in recorded else {}
        behind |= known.record.get("behind", {})
        if "sha256" in (fetched := known.record.get("outputs", {}).get(Path(paths.QUERIES).name, {})):
            behind["queries"] = fetched["sha256"]  # those that the qrels were fetched with
        if option in _DEV and "queries" in behind:
            behind["dev_queries"] = behind["queries"]
        subject = "run" if option == "first_stage" else option
        if subject in _SUBJECTS and (path.exists() or known.outputs):  # the stage itself reports a missing file
            behind[subject] = self.identity(path)["sha256"]
        if "checkpoint" in behind and "query_tower" not in known.record.get("inputs", {}):  # one tower reads both
            behind.setdefault("query_tower", behind["checkpoint"])
        names = {*_SHARED.get(option, _DATA), *({subject} & {*_SUBJECTS})}
        return {name: behind[name] for name in behind if name in names}

    def _rows(self, path: Path) -> Sequence[int]:
        """Return the first row of the corpus in a shard, and the row after its last; nothing if no record tells."""
        known = self.record_of(path)
        with files.reading(known.place or path):
            settings = known.record.get("settings", {})
            facts = known.record.get("facts", {})
            if {"shard", "shard_size"} <= settings.keys() and "rows" not in facts:  # as earlier versions recorded them
                first = settings["shard"] * settings["shard_size"]
                return [first, first + facts["documents"]]
        if "rows" in facts:
            return list(facts["rows"])
        sources = (self.rows(source) for role, source, _ in known.inputs if role in _OF_SHARDS)
        return known.record.get("behind", {}).get("rows") or next(filter(None, sources), [])

    def lineage_of(self, path: Path, asked: Collection[str]) -> dict[str, Any]:
        """Return the lineage of the job that made an input. Earlier versions recorded these values as settings."""
        known = self.record_of(path)
        if "lineage" in (job := known.record.get("job", {})):
            return dict(job["lineage"])
        is_expanded = any(role == "expansions" for role, *_ in known.inputs)
        values = {**known.record.get("settings", {}), "expanded": is_expanded}
        return {name: values[name] for name in asked if known.place and name in values}

    def other_source(self, record: Path, lists: Sequence[Sequence[Path]]) -> Path | None:
        """Return an input that a record does not know or has in another place, or one that the job does not have.

        No artifact is hashed.

        Args:
            lists: the inputs of the job, by option. What stands behind an input may replace it.
        """
        sources = [path for of_option in lists for path in of_option]
        known = self.record_of(record)
        recorded = {path: entry.get("sha256") for _, path, entry in known.inputs}
        if not recorded or None in recorded.values():  # as in records of 0.2.0
            return None
        hashed = [path for path in sources if path.suffix == ".json" or self.record_of(path).is_hashed]
        hashes = {self.identity(path)["sha256"]: path for path in hashed}
        behind = {*recorded.values(), *map(str, known.record.get("behind", {}).values())}
        unknown = next((path for sha256, path in hashes.items() if sha256 not in behind), None)
        read = [path for _, path, _ in known.inputs]
        return unknown or _moved(read, lists) or (_left_out(read, sources) if "behind" in known.record else None)

    def is_another(self, source: Path, recorded: Mapping[str, Any]) -> bool:
        """Tell whether an input differs from what a record says of it. A deleted one is compared by its own record."""
        if not (source.exists() or self.record_of(source).is_hashed):
            return False
        now = self.identity(source) if "sha256" in recorded or not source.exists() else {"bytes": files.size(source)}
        return any(now[key] != recorded[key] for key in recorded)


def _moved(recorded: Sequence[Path], lists: Sequence[Sequence[Path]]) -> Path | None:
    """Return the first input of an option that has another place among the recorded ones."""
    for of_option in lists:
        places = dict.fromkeys(path for path in recorded if path in of_option)
        for path, there in zip(of_option, places, strict=False):
            if path != there:
                return path
    return None


def _left_out(recorded: Sequence[Path], sources: Sequence[Path]) -> Path | None:
    """Return a recorded input that a job lacks, where each input of the job is recorded."""
    if not {*sources} <= {*recorded} or len(recorded) <= len(sources):
        return None
    return next((path for path in recorded if recorded.count(path) > sources.count(path)), None)


def check(
    inputs: Inputs,
    lineage: Mapping[str, Any] = _NOTHING,
    settings: Mapping[str, Any] = _NOTHING,
    ancestry: Ancestry | None = None,
) -> dict[str, Any]:
    """Refuse inputs that do not belong together, and return what stands behind all of them.

    The corpus, the queries and the model behind them must be the same, and shards must be all those of the corpus, in
    order. What records do not tell is not compared. Your own files need no record.

    Args:
        inputs: the artifacts by option, one or several.
        lineage: values of the job (``Stage.lineage``) that must be the same in the lineage of each input.
        settings: settings of the job, in place of values of the same name.
        ancestry: what is known of the artifacts already.

    Raises:
        DataError: two inputs have other ancestors, an input has another lineage, an artifact behind them was made again
            since, or shards are not all those of the corpus in order.
    """
    ancestry = ancestry or Ancestry()
    asked = {**lineage, **settings}
    holders: dict[str, tuple[Path, Any]] = {}
    listed = _listed(inputs)
    for option, paths_of in listed.items():
        for path in paths_of:
            for name, of_path in ancestry.behind(option, path).items():
                holder, first = holders.setdefault(name, (path, of_path))
                if first != of_path:
                    raise DataError(
                        f"{holder} and {path} do not belong together: each has another {name} behind it. Delete the "
                        "older one and run the grid again"
                    )
            for name, value in ancestry.lineage_of(path, lineage).items():
                if option not in _MODELS and asked.get(name, value) != value:
                    raise DataError(f"{path} was made with {name} {value!r}, but the job asks for {asked[name]!r}")
        if option in _LISTS:
            _check_shards(paths_of, ancestry, listed.get("corpus", []))
    for of_system in zip(listed.get("runs", []), listed.get("dev_runs", []), strict=False):
        check({"of_system": of_system}, ancestry=ancestry)
    rows = [ancestry.rows(path) for option in _OF_SHARDS for path in listed.get(option, [])]
    return {name: of_holder for name, (_, of_holder) in holders.items()} | ({"rows": rows[0]} if any(rows) else {})


def _check_shards(shards: Sequence[Path], ancestry: Ancestry, corpora: Sequence[Path]) -> None:
    """Refuse shards that are not all those of the corpus, in order. Where a shard has no record, its rows are unknown.

    Raises:
        DataError: a shard is missing, occurs twice, or is in another place.
    """
    end: int | None = 0
    for shard in shards:
        if not (rows := ancestry.rows(shard)):
            end = None
            continue
        if end is not None and rows[0] != end:
            raise DataError(
                f"{shard} begins with document {rows[0] + 1:,} of the corpus, but document {end + 1:,} comes next: "
                "name each shard once, in order"
            )
        end = rows[1]
    for corpus in corpora:
        documents = ancestry.record_of(corpus).record.get("facts", {}).get("documents", end)
        if end is not None and documents != end:
            raise DataError(
                f"{shards[-1]} ends with document {end:,}, but {corpus} has {documents:,}: "
                "name all shards of the corpus"
            )


def _listed(inputs: Inputs) -> dict[str, list[Path]]:
    """Return the inputs that there are, as lists."""
    return {option: [given] if isinstance(given, Path) else [*given] for option, given in inputs.items() if given}
