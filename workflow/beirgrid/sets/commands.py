"""``beirgrid set``: build an evaluation set: documents, queries, pool, judgements, versions of the qrels."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..collections import ingest, qrels
from ..collections.collection import pick_documents, read_documents, read_queries
from ..collections.sources import judged_by
from ..config.values import Size
from ..core import files, lineage, paths, provenance
from ..core.errors import BeirgridError, DataError, quantity, say, show, table_lines, warn
from ..options import NameLists
from ..results import results_folder, summary
from ..results.summary import GridSummary
from ..runs import runs
from ..tools.run import as_yaml
from . import annotator, documents, findings, pools, queries, server
from .agreement import Resolution
from .evaluation_set import EvaluationSet
from .store import MODEL

# Kappa of a model and people from which on their agreement is called moderate (Landis and Koch, Biometrics 1977).
_LEAST_KAPPA = 0.41
# Queries with personal data, and kinds of flaws of documents, that a warning names.
_NAMED = 5
# Depth of the pool of a dataset's holes: that of its main metric.
HOLES_TO = 10
Folder = Annotated[Path, "folder of the evaluation set"]
Results = Annotated[Path, f"{results_folder.PLACE} (default: here)"]


def init(
    folder: Folder,
    *,
    source: Annotated[Path | None, "folder or file: md, txt, html, pdf, jsonl, csv, …", "--documents"] = None,
    dataset: Annotated[str, "a dataset that a grid ran: judge what its qrels lack", "--from"] = "",
    chunk: Annotated[int | None, Field(ge=20), "cut longer documents into chunks of at most N words"] = None,
    licence: Annotated[str, "licence of the documents"] = "",
    results: Results = Path(),
) -> None:
    """Make a set from a folder of documents, or from a dataset whose qrels have holes, and a grid file that runs it."""
    if (source is None) == (not dataset) or (dataset and chunk):
        raise BeirgridError("say where the documents come from: --documents FOLDER [--chunk N], or --from DATASET")
    if dataset:
        _fill(folder, dataset, licence, results)
    elif source:
        _take(folder, source, chunk, licence)


def _take(folder: Path, source: Path, chunk: int | None, licence: str) -> None:
    """Make a set from documents, and say what is left out of them."""
    texts, flaws = documents.read(source, chunk)
    _write_grid(EvaluationSet.create(folder, texts, str(source), licence, flaws=flaws))
    show(f"{folder}: {quantity(len(texts), 'document')} from {source}")
    for flaw, number in Counter(flaws.values()).most_common(_NAMED):
        first = next(document for document, of_document in flaws.items() if of_document == flaw)
        warn(f"{flaw}: {first}{f' and {number - 1:,} more' if number > 1 else ''}")
    if flaws:
        warn(f"{len(flaws):,} files and documents are left out, without text, cut or repeated: set.json names them")
    show(f"Next: beirgrid set queries {folder} --from FILE")


def _write_grid(made: EvaluationSet) -> None:
    """Write the grid file of a set."""
    name = made.description.name
    grid = {
        "grid": {"name": name, "systems": ["bm25", "minilm", "bm25+minilm"], "datasets": [name]},
        "corpora": {name: {"source": "local", "path": str(made.folder)}},
        "datasets": {name: {"corpus": name, "queries_are_documents": False}},
    }
    comment = f"# Runs the evaluation set {name}. Until the set has qrels, the grid makes runs only."
    files.write_text(made.folder / "grid.yaml", f"{comment}\n{as_yaml(grid)}")


def _fill(folder: Path, dataset: str, licence: str, results: Path) -> None:
    """Make a set whose version 0 has a dataset's qrels, and whose pool is what systems rank high and nobody judged."""
    place = results_folder.locate(results).folder
    queries_file, qrels_file, record = (
        results_folder.placed(place, pattern, dataset=dataset)
        for pattern in (paths.QUERIES, paths.QRELS, paths.DATASET_RECORD)
    )
    if not record.is_file():
        remedy = f"beirgrid run --systems bm25,minilm --datasets {dataset}"
        raise DataError(f"{place} has no dataset {dataset!r}: run a grid over it first ({remedy})")
    if not any(True for _ in qrels.judgements(qrels_file)):
        raise DataError(f"{dataset} has no qrels to fill: make a set of its documents (set init --documents)")
    cells = results_folder.find(results).cells
    systems = tuple(system for (system, name), cell in cells.items() if name == dataset and cell.run.is_file())
    if not systems:
        raise DataError(f"{place} has no runs of {dataset}: finish a grid over it first")
    corpus = provenance.entry_of(provenance.read_record(record))["corpus"]
    documents_file = results_folder.placed(place, paths.CORPUS, corpus=corpus)
    texts = [document for rows in read_documents(documents_file) for document in rows]
    made = EvaluationSet.create(folder, texts, dataset, licence)
    judged = qrels.read(qrels_file)
    asked = read_queries(queries_file)
    made.write_queries((queries.SetQuery(query, asked[query]) for query in judged), **{"from": dataset})
    made.adopt(dataset, corpus, judged)
    _write_grid(made)
    known = sum(map(len, judged.values()))
    show(f"{folder}: {quantity(len(texts), 'document')}; version 0 has the {quantity(known, 'judgement')} of {dataset}")
    make_pool(folder, depth=HOLES_TO, systems=systems, results=results)


def add_queries(
    folder: Folder,
    *,
    source: Annotated[Path | None, "jsonl, csv, tsv, or a query per line", "--from"] = None,
    generate: Annotated[Size | None, "let a model write N queries from sampled documents"] = None,
    model: Annotated[Path | None, "this model: a YAML file with endpoint, or a checkpoint", "--with"] = None,
    sample: Annotated[Size | None, "the file is a log: sample N queries by frequency"] = None,
    seed: Annotated[int, "seed of the sampling (default: 0)"] = 0,
    keep_personal: Annotated[bool, "keep queries that seem to hold personal data"] = False,
) -> None:
    """Take the queries from a file, sample them from a log, or generate them."""
    made = EvaluationSet(folder)
    if made.store.pool():
        raise BeirgridError(f"{folder} has a pool for its queries already; make another set for other queries")
    if (bool(source), bool(model)) != (not generate, bool(generate)) or (sample and not source):
        raise BeirgridError("say where the queries come from: --from FILE [--sample N], or --generate N --with MODEL")
    facts: dict[str, Any]
    if source:
        chosen = queries.read(source)
        facts = {"from": str(source)}
    elif generate and model:
        chosen, facts = annotator.write_queries(made, generate, model, seed)
        say(f"{facts['passages']:,} passages were read; left out: {facts['left_out']}")
    suspects = queries.personal(chosen)
    _warn_of_personal(suspects)
    if suspects and not keep_personal:
        left_out = set().union(*suspects.values())
        chosen = [query for query in chosen if query.id not in left_out]
        facts["left_out_as_personal"] = len(left_out)
        say(f"{quantity(len(left_out), 'query is', 'queries are')} left out; --keep-personal keeps them")
    if sample:
        chosen = queries.sample(chosen, sample, seed)
        facts["sampled_with_seed"] = seed
    number = len(chosen)
    chosen = queries.without_near_duplicates(chosen)
    if twins := number - len(chosen):
        facts["near_duplicates_left_out"] = twins
        say(f"{quantity(twins, 'query is', 'queries are')} left out: the same words as an earlier one")
    if not chosen:
        raise BeirgridError(f"{source or model}: no query is left")
    made.write_queries(chosen, **facts)
    show(f"{folder}: {quantity(len(chosen), 'query')}")
    show(f"Next: beirgrid run {folder / 'grid.yaml'}, then beirgrid set pool {folder}")


def _warn_of_personal(suspects: Mapping[str, Sequence[str]]) -> None:
    for what, names in suspects.items():
        more = ", …" * (len(names) > _NAMED)
        warn(f"{quantity(len(names), 'query seems', 'queries seem')} to hold {what}: {', '.join(names[:_NAMED])}{more}")


def make_pool(
    folder: Folder,
    *,
    depth: Annotated[Size, "documents per run and query"] = 20,
    queries: Annotated[int | None, Field(ge=2), "judge a random sample of N queries (default: all)"] = None,
    judgements: Annotated[Size | None, "most pairs to add"] = None,
    overlap: Annotated[float, Field(ge=0, le=1), "share of queries that every judge judges"] = 0.1,
    systems: Annotated[NameLists, "systems whose runs count (default: all)"] = (),
    results: Results = Path(),
) -> None:
    """Choose the pairs to judge, from finished runs."""
    made = EvaluationSet(folder)
    some = set(pools.sample_queries(made.queries(), queries))
    rankings = {
        system: {query: ranked for query, ranked in of_system.items() if query in some}
        for system, of_system in _rankings(made, results, systems).items()
    }
    earlier = made.store.pool()
    pool = pools.pool(rankings, depth, judgements, earlier.keys() | made.adopted().keys())
    _refuse_other_documents(made, results, {document for _, document in pool.pairs})
    new = made.store.add_pool(pool.pairs, overlap)
    facts = {"depth": depth, "systems": sorted(rankings), "queries": len(some), "candidates": pool.candidates}
    with made.edit() as description:
        description.pools.append({**facts, "new": new, "overlap": overlap})
    show(f"{folder}: {new:,} new pairs to judge, of {pool.candidates:,} in the top {depth} of all runs")
    show(f"The pool has {quantity(len(earlier) + new, 'pair')} now.")
    _warn_of_changed_texts(made)
    rows = [[system, str(complete), f"{left_out:.1%}"] for system, (complete, left_out) in pool.coverage.items()]
    show(*table_lines(["system", "all judged to depth", f"left out of the top {depth}"], rows))
    show(f"Next: beirgrid set judge {folder}")


def judge(
    folder: Folder,
    *,
    model: Annotated[Path | None, "let this model judge: a YAML file or a checkpoint", "--with"] = None,
    prompt: Annotated[Path | None, "file with the model's prompt, with {query} and {passage}"] = None,
    name: Annotated[str, "name of this model as a judge (default: the model's)", "--as"] = "",
    port: Annotated[int, "port on the loopback interface (default: a free one)"] = 0,
    no_browser: Annotated[bool, "print the address only"] = False,
    offline: Annotated[tuple[str, ...], "write an HTML file for each of these judges without a server"] = (),
    take_back: Annotated[tuple[str, Path] | None, "store the judgements of this judge from this CSV file"] = None,
) -> None:
    """Open the judging page for people, write it or take back what it saved, or let a model judge."""
    made = EvaluationSet(folder)
    if not made.store.pool():
        raise BeirgridError(f"{folder} has no pool: beirgrid set pool makes it")
    _warn_of_changed_texts(made)
    if model:
        with annotator.open_chat(model, folder, "judgements") as chat:
            graded = [*annotator.judge(made, chat, name, prompt)]
        skipped = sum(judgement.grade is None for judgement in graded)
        show(f"{folder}: {len(graded):,} new judgements by a model; {skipped:,} answers have no grade")
        then = f"people judge some queries whole (beirgrid set judge {folder}), then " if made.waiting_queries() else ""
        show(f"Next: {then}beirgrid set status {folder}")
        return
    judging = server.Judging(made)
    if take_back:
        show(f"{quantity(judging.take_back(*take_back), 'judgement')} of {take_back[0]} stored")
        show(f"Next: beirgrid set status {folder}, then beirgrid set accept {folder}")
        return
    if offline:
        for person, pairs in judging.pairs_by_judge(offline).items():
            path = Path(f"{made.description.name}-{person}.html")
            files.write_text(path, judging.offline(person, pairs))
            show(f"{path}: {quantity(len(pairs), 'pair')}. Open it in a browser, judge, and save the judgements as CSV")
            show(f"Then: beirgrid set judge {folder} --take-back {person!r} FILE.csv")
        return
    running, listening, address = server.serve(judging, port)
    print(f"Judge at {address}\nEvery judgement is stored at once. Ctrl-C ends the page.", flush=True)
    if not no_browser:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        running.run([listening])
    print(f"\nNext: beirgrid set status {folder}, then beirgrid set accept {folder}")


def accept(
    folder: Folder,
    *,
    resolution: Annotated[Resolution, "grade of a pair on which judges disagree"] = "majority",
    adjudicator: Annotated[str, "the judge who decides disagreements"] = "",
    without: Annotated[tuple[str, ...], "judges to leave out"] = (),
    model: Annotated[str, "use this model's judgements instead of people's"] = "",
    force: Annotated[bool, f"accept a model whose kappa with people is below {_LEAST_KAPPA} or not known"] = False,
    yes: Annotated[bool, "accept a model without a question"] = False,
) -> None:
    """Make a version of the qrels from the judgements."""
    made = EvaluationSet(folder)
    if resolution == "adjudicated" and not adjudicator:
        raise BeirgridError("--resolution adjudicated needs --adjudicator JUDGE")
    _warn_of_changed_texts(made)
    if is_by_model := MODEL + model in made.grades():
        _confirm(made, MODEL + model, force, yes)
    version = made.accept(resolution, adjudicator, without, model)
    show(
        f"{folder}: version {version.number} has {quantity(version.judgements, 'judgement')} of "
        f"{quantity(version.queries, 'query')} by {', '.join(version.judges)} ({version.resolution})"
    )
    if is_by_model:
        versions = [version for version in made.description.versions if version.number]
        by_people = [version for version in versions if not version.judges[0].startswith(MODEL)]
        options = [f" --resolution {version.resolution} --adjudicator {version.adjudicator!r}" for version in by_people]
        show(f"To go back to people's judgements: beirgrid set accept {folder}{['', *options][-1]}")
    else:
        show(*findings.judge_agreement(made))
    if made.description.dataset:
        show(f"Next: beirgrid set compare {folder} 0 {version.number} shows the table before and after")
        return
    show(f"Next: run the grid again (beirgrid run {folder / 'grid.yaml'}), and its tables show this version")


def _confirm(made: EvaluationSet, model: str, force: bool, yes: bool) -> None:
    """Show how far a model agrees with people, and raise BeirgridError if that is too little or nobody says yes."""
    kappa = findings.model_agreement(made, model)
    show(findings.coefficient_line(kappa))
    if not (force or kappa.value >= _LEAST_KAPPA):
        limit = f"below {_LEAST_KAPPA}" if kappa.value < _LEAST_KAPPA else f"not known; it should be {_LEAST_KAPPA}"
        raise BeirgridError(f"{model}: its kappa with people is {limit}. --force accepts it all the same")
    if not yes:
        show("The qrels will be those of the model, in place of people's. Type yes to accept:")
    if not yes and not (sys.stdin.isatty() and sys.stdin.readline().strip() == "yes"):
        raise BeirgridError("nothing is changed: nobody typed yes (without a terminal: --yes)")


def status(
    folder: Folder,
    *,
    results: Results = Path(),
    table: Annotated[Path | None, "write the pairs with different grades to this CSV file", "--disagreements"] = None,
) -> None:
    """Show progress, agreement of judges, and statistical power."""
    made = EvaluationSet(folder)
    about = made.description
    texts, asked = (facts.get("number", 0) for facts in (about.documents, about.queries))
    rankings = _rankings(made, results) if about.versions else {}
    if about.versions:
        judgements = made.qrels(about.versions[-1].number)
        tested = findings.paired_tests(judgements, rankings, *_plans(made, results))
        show(*findings.opening(judgements, rankings, tested))
    show(f"{about.name}: {quantity(texts, 'document')}, {quantity(asked, 'query')}")
    if not (pool := made.store.pool()):
        then = f"beirgrid run {folder / 'grid.yaml'}, then beirgrid set pool {folder}"
        show(f"Next: {then if asked else f'beirgrid set queries {folder}'}")
        return
    grades = made.grades()
    people = made.people()
    graded = {pair for of_judge in people.values() for pair in of_judge}
    show(f"pool: {quantity(len(pool), 'pair')}, {len(graded):,} judged by people")
    skipped = Counter(judgement.judge for judgement in made.store.judgements() if judgement.grade is None)
    for name, of_judge in grades.items():
        show(f"  {name}: {len(of_judge):,} graded, {skipped[name]:,} skipped")
    show(*findings.judge_agreement(made))
    if table:
        number = server.Judging(made).write_disagreements(table)
        show(
            f"{table}: {quantity(number, 'pair')} with several grades. Fill in the column grade, then: beirgrid set "
            f"judge {folder} --take-back ADJUDICATOR {table}"
        )
    for model in sorted(grades.keys() - people.keys()):
        rankings = rankings or _rankings(made, results)
        show(*findings.calibration(made, model, rankings))
    if not about.versions:
        show(f"Next: beirgrid set judge {folder}, then beirgrid set accept {folder}")
        return
    newest = about.versions[-1]
    by = f"{judged_by(newest.judges)}, {newest.resolution}" if newest.number else f"the qrels of {about.dataset}"
    made_by = f"{by}, {quantity(newest.judgements, 'judgement')}"
    show(f"version {newest.number} of {newest.date} ({made_by})")
    show(*findings.comparison_lines(tested))


def check(folder: Folder) -> None:
    """Check documents, queries and qrels as a run does."""
    made = EvaluationSet(folder)
    name = made.description.name
    made.queries()  # before the documents, which take longer
    _warn_of_changed_texts(made)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "corpus.parquet"
        number = ingest.write_corpus(name, made.corpus, made.source, path)["documents"]
        read = ingest.read_judged(name, made.dataset, made.corpus, made.source, path)
    facts = [quantity(number, "document"), quantity(len(read.texts), "query")]
    facts.append(quantity(read.facts["judgements"], "judgement"))
    show(f"{folder}: {', '.join(facts)}: a run can read them", *read.facts.get("marks", ()))


def export(folder: Folder, *, output: Annotated[Path, "folder to write; it must be new"]) -> None:
    """Write the newest version of a set in the layouts of BEIR, MTEB and ir_datasets, with a card."""
    version = EvaluationSet(folder).export(output)
    judged = quantity(version.judgements, "judgement")
    show(f"{output}: version {version.number} of {folder}, {judged}; see its README.md")


def compare_versions(
    folder: Folder,
    versions: Annotated[tuple[int, int], "numbers of two versions"],
    *,
    results: Results = Path(),
) -> None:
    """Compare the scores, ranks and verdicts of all systems under two versions of the qrels."""
    made = EvaluationSet(folder)
    read = [(number, made.qrels(number)) for number in versions]
    rankings = _rankings(made, results)
    show(*findings.changes(read, rankings))
    tested = [findings.paired_tests(judged, rankings, *_plans(made, results)) for _, judged in read]
    show(*findings.verdict_changes(*tested))


def _plans(made: EvaluationSet, results: Path) -> tuple[str, list[GridSummary]]:
    """Return the name under which grids know a set, and the grids at a place, which may plan comparisons on it."""
    grids = results_folder.of_grids(results_folder.locate(results).folder, summary.read)
    return made.description.in_grids, list(grids.values())


def _rankings(made: EvaluationSet, results: Path, systems: Iterable[str] = ()) -> dict[str, Any]:
    """Return the runs of a set: system to query to document ids; refuse runs of other queries than the set has."""
    name = made.description.in_grids
    asked = made.queries()
    folder = results_folder.locate(results).folder
    have = {path.parent.name: path for path in sorted(folder.glob(f"runs/*/{name}.run.gz"))}
    wanted = list(systems or have)
    if absent := [system for system in wanted or ["any system"] if system not in have]:
        remedy = f"run the grid first (beirgrid run {made.folder / 'grid.yaml'})"
        raise DataError(f"{folder} has no runs of {name} by {', '.join(absent)}: {remedy}")
    rankings = {system: {query: ranking.ids for query, ranking in runs.read(have[system]).items()} for system in wanted}
    searched: dict[str, str | None] = dict.fromkeys(query for of_system in rankings.values() for query in of_system)
    queries_file = results_folder.placed(folder, paths.QUERIES, dataset=name)
    if queries_file.is_file():
        lineage.check({"queries": queries_file, "runs": [have[system] for system in wanted]})
        searched |= read_queries(queries_file)
    if other := [query for query, text in searched.items() if query not in asked or text not in (None, asked[query])]:
        of_set = f"than {made.folder} has, {other[0]!r} first"
        raise DataError(f"the runs in {folder} are of other queries {of_set}: run the grid again")
    return rankings


def _warn_of_changed_texts(made: EvaluationSet) -> None:
    """Warn if somebody changed texts that were judged."""
    for query, document in made.changed_texts()[:_NAMED]:
        warn(f"query {query!r} or document {document!r} had another text when they were judged: put it back")


def _refuse_other_documents(made: EvaluationSet, results: Path, pooled: set[str]) -> None:
    """Raise DataError if systems found documents that the set lacks, or of which it has another text."""
    texts = made.documents(pooled)
    name = made.description.corpus or made.description.name
    corpus = results_folder.placed(results_folder.locate(results).folder, paths.CORPUS, corpus=name)
    for document in pick_documents(corpus, pooled) if corpus.is_file() else ():
        if document != texts[document.id]:
            raise DataError(
                f"the runs are of another text of {document.id!r} than {made.folder} has: run the grid again"
            )
