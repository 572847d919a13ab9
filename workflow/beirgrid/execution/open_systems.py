"""Reopen systems of a finished grid from their records, for single queries."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from ..collections import collection
from ..core import lineage, paths, provenance
from ..core.compute import Compute
from ..core.errors import BeirgridError, DataError, quoted
from ..graph import job
from ..runs import runs
from ..runs.opened import NotSearchable, OpenSystem

# A key of a model's entry, in settings as JSON. Within a text, its quotes would be escaped.
_RUNS_CODE = '"trust_remote_code": true'
_COMPUTE = {field.name for field in dataclasses.fields(Compute)}
# Documents that are compared.
_TOP = 10
# How far their scores in float32 may lie from those of the run, because batches and processors round otherwise: at
# least so far, or so large a share of the largest score.
_LEAST = 1e-5
_SHARE = 2e-3


def open_system(
    system: str, dataset: str, device: str, *, trust_remote_code: bool = False, ask_endpoint: bool = False
) -> OpenSystem:
    """Open a system and its parts from the records in the working directory, and ask one query of its run again.

    Args:
        dataset: a dataset on which the system was run; it names the corpus that is searched.
        device: where models run: auto, cpu or cuda.
        trust_remote_code: whether the code that a checkpoint brings, and programs, may run.
        ask_endpoint: whether queries may go to the server that a record names, with the key that it names.

    Raises:
        NotSearchable: the stage of the system, or of a part of it, has no opener, or none for a value of its job; its
            model brings code, or is on a server, that is not allowed; or the system ranks otherwise than its run.
        DataError: a record, an index or a model is missing or damaged.
    """
    opening = _Opening(device, trust_remote_code, ask_endpoint, set())
    try:
        opened: OpenSystem = opening.open(paths.RUN.format(system=system, dataset=dataset))
        _compare(opened, system, dataset, exact=opening.precisions <= {"", "float32"})
    except NotSearchable as error:
        raise NotSearchable(f"{system!r} cannot be searched: {error}") from None
    return opened


class _Opening(NamedTuple):
    """Opens what jobs made, each by the opener of the stage that its record names."""

    device: str
    trust_remote_code: bool
    ask_endpoint: bool
    precisions: set[str]  # of all models, when the run was made and now

    def open(self, path: str | Path) -> Any:
        """Open the system of a run, the reranker of a manifest of pair scores, or the writer of rewritten queries."""
        place = re.sub(r"\.(run\.gz|json|parquet)$", "", str(path)) + ".json"
        name = Path(place).parent.name
        record = provenance.read_record(place)
        lineage.check({"record": Path(place)})
        try:
            made: dict[str, Any] = record["job"]
            opener = job.opener(made["stage"])
            taken = list(inspect.signature(opener).parameters)[1:] if opener else []
            if refusal := self._refusal(made, {*taken, *_fields(opener)}):
                raise NotSearchable(f"{refusal} ({place})")
            values = job.options(made)
            if values.get("system", name) != name:
                raise NotSearchable(f"{place} is the record of {values['system']!r}, not of {name!r}")
            arguments = job.arguments(job.stage_function(made["stage"]), values)
            if "compute" in taken:
                arguments["compute"] = dataclasses.replace(arguments["compute"], device=self.device)
        except NotSearchable:
            raise
        except DataError as error:
            raise DataError(f"{place}: {error}") from None
        except (BeirgridError, KeyError) as error:
            why = f"it records a job of another version of beirgrid ({error})"
            raise DataError(f"{place}: {why}. Delete this record, and run the grid again") from None
        assert opener, "a stage without one is refused"
        opened = opener(self.open, **{name: arguments[name] for name in taken})
        self.precisions.update((record["facts"].get("precision", ""), opened.precision))
        return opened

    def _refusal(self, made: Mapping[str, Any], taken: Collection[str]) -> str:
        """Return why a job is not opened with these arguments, or an empty string."""
        if not taken:
            return f"its stage {made['stage']} has no opener"
        settings = made.get("settings", {})
        if unknown := [name for name in (*made.get("inputs", ()), *settings) if name not in {*taken, *_COMPUTE}]:
            return f"its stage {made['stage']} was given {unknown[0]}, which its opener does not take"
        if _RUNS_CODE in json.dumps(settings) and not self.trust_remote_code:
            return "its model brings code of its own, which runs only with --trust-remote-code: read it first"
        if "command" in settings and not self.trust_remote_code:
            return "it is a program, which starts only with --trust-remote-code: read its command first"
        if (connection := made.get("options", {}).get("connection")) and not self.ask_endpoint:
            server = json.loads(connection)
            key = f" and the key in the environment variable {server['key']}" if server.get("key") else ""
            return f"your query{key} would go to the server {server.get('url')}: allow it by --ask-endpoint"
        return ""


def _fields(opener: Callable[..., Any] | None) -> Iterator[str]:
    """Yield the names of the fields of an opener's arguments that are dataclasses."""
    for kind in get_type_hints(opener).values() if opener else ():
        if dataclasses.is_dataclass(kind):
            yield from (field.name for field in dataclasses.fields(kind))


def _compare(opened: OpenSystem, system: str, dataset: str, *, exact: bool) -> None:
    """Ask the first query of a run again, and raise NotSearchable if the first documents differ.

    A chat model may order documents otherwise each time, and is not asked. Nor is a model that writes in place of the
    queries, unless all numbers are exact: another token changes the rest of its text.

    Args:
        exact: whether all models computed in float32, then and now. Otherwise half of the documents may differ.
    """
    run = provenance.artifact(paths.RUN.format(system=system, dataset=dataset))
    query, lines = next(groupby(runs.lines(run), itemgetter(0)), ("", ()))
    whole = opened.whole
    varies = any((each.scorer and each.scorer.together) or (each.writer and not exact) for each in whole)
    if not query or varies:
        return
    texts = collection.read_queries(paths.QUERIES.format(dataset=dataset))
    scores = {document: score for _, document, score, _ in lines}
    stored = runs.canonical(query, scores, [*scores.values()])
    now = opened.rank({query: texts[query]})[query]
    top = {*stored.ids[:_TOP]}
    if differ(stored, now) and (exact or 2 * len(top & {*now.ids[:_TOP]}) < len(top)):
        of_run, again = (
            ", ".join(f"{name} {score:.4g}" for name, score in list(zip(*ranking, strict=True))[:_TOP])
            for ranking in (stored, now)
        )
        raise NotSearchable(f"opened again, it ranks {again} for query {quoted(query)}, and its run {run} {of_run}")


def differ(stored: runs.Ranking, now: runs.Ranking) -> bool:
    """Tell whether the first documents, or the first places, have other scores than they had."""
    scores = dict(zip(*now, strict=True))
    last = now.scores[-1] if now.ids else -np.inf
    documents = [scores.get(name, last) for name in stored.ids[:_TOP]]  # one that is not ranked now has less
    places = [*now.scores[:_TOP], *[-np.inf] * _TOP][: len(documents)]
    before = stored.scores[:_TOP]
    changes = abs(np.array([documents, places]) - before)
    return bool((changes > _LEAST + _SHARE * abs(before).max()).any())


@contextmanager
def hold_back_output() -> Iterator[None]:
    """Hold back what Java and other libraries print; print it on standard error only if the block fails."""
    streams = (sys.stdout, sys.stderr)
    copies = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as said:
        for number, stream in enumerate(streams, start=1):
            stream.flush()
            os.dup2(said.fileno(), number)
        try:
            yield
        except BaseException:
            sys.stdout.flush()
            said.seek(0)
            os.write(copies[1], said.read())
            raise
        finally:
            for number, (stream, copy) in enumerate(zip(streams, copies, strict=True), start=1):
                stream.flush()
                os.dup2(copy, number)
                os.close(copy)
