"""``beirgrid search`` and ``beirgrid show``: look into a finished cell, its queries and their documents."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..config.values import SizeOrZero
from ..core import paths, provenance
from ..core.errors import BeirgridError, column_lines, nearest, quantity, show, warn
from ..measures import metric_key, written
from ..results import results_folder, scores
from ..results.results_folder import Result, Results
from .why import outdated

if TYPE_CHECKING:
    import pandas as pd

    from ..collections.collection import Document
    from ..runs.runs import Ranking

# Number of queries to print with the lowest and with the highest values.
_QUERIES = 5


def search(
    system: Annotated[str, "a system of a finished grid"],
    dataset: Annotated[str, "a dataset on which the system was run: its corpus is searched"],
    query: Annotated[tuple[str, ...], "the words to search for"],
    *,
    depth: Annotated[SizeOrZero, "documents to print"] = 10,
    device: Annotated[Literal["auto", "cpu", "cuda"], "where models run"] = "auto",
    trust_remote_code: Annotated[bool, "run programs, and the code of checkpoints (read it first)"] = False,
    ask_endpoint: Annotated[bool, "send queries, and your key, to the server that the results name"] = False,
    directory: results_folder.Directory = Path(),
    json: Annotated[bool, "print JSON, with whole texts"] = False,
) -> None:
    """Search, and print the documents, best first.

    Raises:
        NotSearchable: the system cannot be opened, or ranks otherwise than its run (``open_system``).
        DataError: no such system was run on the dataset, or its files are damaged.
    """
    os.chdir(results_folder.working_folder(directory)[0])
    from ..execution.open_systems import hold_back_output, open_system

    if not Path(paths.RUN.format(system=system, dataset=dataset)).is_file():
        places = sorted(Path().glob(paths.RUN.format(system="*", dataset="*")))
        there = [(place.parent.name, place.name.removesuffix(".run.gz")) for place in places]
        raise _lack("runs", system, dataset, there)
    text = " ".join(query)
    with hold_back_output():
        opened = open_system(system, dataset, device, trust_remote_code=trust_remote_code, ask_endpoint=ask_endpoint)
        ranking = opened.rank({"": text})[""]
    hits = _hits(text, ranking, dataset, depth)
    if json:
        print(dumps(hits, ensure_ascii=False, indent=1))
        return
    for hit in hits:
        show(f"{hit['rank']:>3}  {hit['score']:.4f}  {hit['id']}  {hit['title']}".rstrip())
        show(f"     {excerpt(hit['text'])}")
        if hit["matched"]:
            show(f"     matched: {', '.join(hit['matched'])}")
    if not hits:
        show("no document was found")


def _hits(query: str, ranking: Ranking, dataset: str, depth: int) -> list[dict[str, Any]]:
    """Return the first documents of a ranking with their texts, and the words of the query that each has."""
    from ..page.retrieved import matched_words

    texts = documents(dataset, ranking.ids[:depth])
    hits = []
    for rank, (name, score) in enumerate(zip(ranking.ids[:depth], ranking.scores, strict=False), start=1):
        document = texts[name]
        about = {"rank": rank, "score": float(score), "id": name, "title": document.title, "text": document.text}
        hits.append({**about, "matched": matched_words(query, document.full_text)})
    return hits


def documents(dataset: str, ids: Collection[str]) -> dict[str, Document]:
    """Return documents of a dataset's corpus by id, in the order of the ids."""
    from ..collections import collection

    about = provenance.entry_of(provenance.read_record(paths.DATASET_RECORD.format(dataset=dataset)))
    corpus = paths.CORPUS.format(corpus=about["corpus"])
    by_id = {document.id: document for document in collection.pick_documents(corpus, set(ids))}
    collection.refuse_unknown(corpus, "document", ids, by_id)
    return {name: by_id[name] for name in ids}


def show_cell(
    system: Annotated[str, "a system of a finished grid"],
    dataset: Annotated[str, "a dataset on which the system was run"],
    query: Annotated[str | None, "id of a query; without it, the scores and the extreme queries"] = None,
    *,
    against: Annotated[str, "another system: the queries that lose most against it come first"] = "",
    metric: Annotated[str, "metric that orders the queries (default: the grid's first)"] = "",
    depth: Annotated[SizeOrZero, "documents to print of a query"] = 10,
    directory: results_folder.Directory = Path(),
) -> None:
    """Print the scores of a cell, or the documents of one of its queries.

    Raises:
        BeirgridError: the cell has no scores, not this metric, or no such query.
    """
    folder, grid = results_folder.working_folder(directory)
    os.chdir(folder)
    results = results_folder.find(".", grid)
    for line in outdated(Path(), grid):
        warn(line)
    cell, values = _scored(results, system, dataset)
    key = _metric(cell, values, metric)
    if against and query is not None:
        raise BeirgridError("--against lists queries: leave out the query, whose ranks show all systems")
    if against:
        other, of_other = _scored(results, against, dataset)
        difference = values[key] - of_other[_metric(other, of_other, key)]
    if query is None:
        lines = _against(cell, other, difference.dropna(), key) if against else _cell(cell, values, key)
    elif query in values.index:
        of_query = {str(name): value for name, value in values.loc[query].to_dict().items()}
        lines = _query(results, cell, of_query, query, depth)
    else:
        raise BeirgridError(f"{dataset!r} has no judged query {query!r}{nearest(query, map(str, values.index))}")
    show(*lines)


def _scored(results: Results, system: str, dataset: str) -> tuple[Result, pd.DataFrame]:
    """Return a finished cell, and its values by query and metric."""
    cell = results.cells.get((system, dataset))
    if cell is None:
        raise _lack("scores", system, dataset, results.cells)
    return cell, scores.read_cell(cell)[1]


def _lack(what: str, system: str, dataset: str, there: Collection[tuple[str, str]]) -> BeirgridError:
    """Return the error that there is nothing of a system and a dataset, with the nearest name or all that there are."""
    systems = dict.fromkeys(name for name, _ in there)
    datasets = dict.fromkeys(name for _, name in there)
    near = "" if system in systems else nearest(system, systems)
    near = near or ("" if dataset in datasets else nearest(dataset, datasets))
    known = ", ".join(systems | datasets) or "no system"
    return BeirgridError(f"{system!r} has no {what} on {dataset!r}{near or f'; there are {what} with {known}'}")


def _metric(cell: Result, values: pd.DataFrame, metric: str) -> str:
    """Return the column of a metric, or the first column."""
    key = metric_key(metric) if metric else str(values.columns[0])
    if key not in values:
        known = ", ".join(written(str(name)) for name in values)
        raise BeirgridError(f"{cell.scores} has no metric {key!r} (it has {known})")
    return key


def _against(cell: Result, other: Result, difference: pd.Series[float], metric: str) -> Iterator[str]:
    """Yield the queries of a cell that lose most against another system, and those that win most."""
    ordered = difference.sort_values(kind="stable")
    lost = ordered[ordered < 0]
    won = ordered[ordered > 0][::-1]
    yield f"{cell.system} minus {other.system} on {cell.dataset}, {written(metric)}: {difference.mean():+.4f}"
    yield f"queries: {len(won):,} better, {len(lost):,} worse, {len(ordered) - len(won) - len(lost):,} the same"
    for title, queries in (("Lost most", lost), ("Won most", won)):
        if len(queries):
            yield from ("", f"{title}:", *_queries(cell.dataset, queries[:_QUERIES], "difference", "+.4f"))


def _queries(dataset: str, values: pd.Series[float], name: str, form: str) -> Iterator[str]:
    """Yield queries with a value each, and the beginning of their texts."""
    from ..collections import collection

    texts = collection.read_queries(provenance.artifact(paths.QUERIES.format(dataset=dataset)))
    rows = []
    for query, value in values.items():
        rows.append([str(query), f"{value:{form}}", excerpt(texts.get(str(query), ""), 80)])
    yield from column_lines([["query", name, "text"], *rows], [True, False, True])


def _cell(cell: Result, values: pd.DataFrame, metric: str) -> Iterator[str]:
    """Yield the means of a cell with their intervals, and its lowest and highest queries."""
    from ..analysis.dataset_scores import stack
    from ..analysis.tables import intervals

    measured = stack(cell.dataset, {cell.system: values}, scores.main_metric(cell.scores))
    ends = intervals(measured).set_index("metric").loc[list(values), ["mean", "low", "high"]]
    yield from (f"{cell.system} on {cell.dataset}, {quantity(len(values), 'query')}", "")
    yield from ends.rename(index=written).rename_axis(None).to_string(float_format="%.4f").splitlines()
    yield from ("low, high: 95 % interval", "")
    ordered = values[metric].sort_values(kind="stable")
    yield from (
        f"{written(metric)} is 0 for {quantity(int((ordered == 0).sum()), 'query')}. The lowest and the highest:",
        "",
    )
    extremes = ordered if len(ordered) <= 2 * _QUERIES else ordered.iloc[[*range(_QUERIES), *range(-_QUERIES, 0)]]
    yield from _queries(cell.dataset, extremes, written(metric), ".4f")


def _query(results: Results, cell: Result, values: dict[str, float], query: str, depth: int) -> Iterator[str]:
    """Yield a query's documents, with grades and with their ranks in the other systems of the dataset."""
    from ..collections import collection, qrels
    from ..runs import runs

    if not cell.run.is_file():
        raise BeirgridError(f"{cell.run} is missing: run the grid again")
    text = collection.read_queries(provenance.artifact(paths.QUERIES.format(dataset=cell.dataset))).get(query, "")
    yield f"query {query}: {text}"
    yield from _rewritten(cell, query)
    yield f"{cell.system}: " + ", ".join(f"{written(name)} {value:.4f}" for name, value in values.items())
    others = [system for system, dataset in results.cells if dataset == cell.dataset]
    rankings = {}
    for system in dict.fromkeys([cell.system, *others]):
        place = results.cells[system, cell.dataset].run
        if place.is_file():
            rankings[system] = runs.read(provenance.artifact(place)).get(query, runs.EMPTY).ids
    grades = qrels.read(provenance.artifact(cell.qrels)).get(query, {})
    best_first = sorted(grades, key=lambda name: -grades[name])
    relevant = [name for name in best_first if grades[name] > 0]
    rows = [[*(f"rank in {system}" for system in rankings), "grade", "document", "title"]]
    for name, document in documents(cell.dataset, [*rankings[cell.system][:depth], *relevant]).items():
        ranks = [str(ids.index(name) + 1) if name in ids else "-" for ids in rankings.values()]
        rows.append([*ranks, str(grades.get(name, "?")), name, document.title or excerpt(document.text, 80)])
    yield ""
    yield from column_lines(rows, [*(False for _ in rankings), False, True, True])
    yield ""
    yield "-: the system did not find the document. ?: nobody judged the document."


def _rewritten(cell: Result, query: str) -> Iterator[str]:
    """Yield the texts with which a system searched in place of a query, if its record names such."""
    from ..collections import rewriting

    record = provenance.record_of(cell.run)
    for option, path, _ in record.inputs:
        if option == "rewrites":
            method = record.record["job"]["settings"]["method"]
            texts = rewriting.read(provenance.artifact(path)).get(query, [])
            yield from (f"{method}: {excerpt(text, 2000)}" for text in texts or ["no text: searched as it is"])


def excerpt(text: str, characters: int = 160) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters]} …"
