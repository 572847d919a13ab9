"""``beirgrid set``: build an evaluation set: documents, queries, pool, judgements, versions of the qrels."""

from __future__ import annotations

import argparse
import csv
import tempfile
import webbrowser
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..collections import corpora, judged
from ..collections.collection import pick_documents, read_queries
from ..collections.sources import LocalSource
from ..core import files, lineage, paths
from ..core.errors import BeirgridError, DataError, say, show, warn
from ..results import results_folder, summary
from ..runs import runs
from ..tools.run import as_yaml
from ..tools.text import columned
from . import chat_models, documents, exports, findings, generated_queries, model_judge, pools, queries, server
from .agreement import Grades, disagreements, without_adjudicators
from .evaluation_set import EvaluationSet

# Queries with personal data, and endings of files that are left out, that a warning names.
_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands under ``set``."""
    commands = parser.add_subparsers(dest="step", required=True, metavar="step")

    def command(name: str, function: Any, purpose: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        added.add_argument("set", type=Path, help="folder of the evaluation set")
        added.set_defaults(run=function)
        return added

    step = command("init", init, "make a set from a folder of documents")
    step.add_argument("--documents", type=Path, required=True, help="folder or file: md, txt, html, pdf, jsonl, csv, …")
    step.add_argument("--chunk", type=int, metavar="WORDS", help="cut longer documents into chunks of whole paragraphs")
    step.add_argument("--licence", default="", help="licence of the documents")

    step = command("queries", add_queries, "take the queries from a file, sample them from a log, or generate them")
    step.add_argument("--from", dest="source", type=Path, metavar="FILE", help="jsonl, csv, tsv, or a query per line")
    step.add_argument("--generate", type=int, metavar="N", help="let a model write N queries from sampled documents")
    step.add_argument("--with", dest="model", type=Path, help="this model: a YAML file with endpoint, or a checkpoint")
    step.add_argument(
        "--sample", type=int, metavar="N", help="the file is a log: sample N queries by frequency and length"
    )
    step.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    step.add_argument("--keep-personal", action="store_true", help="keep queries that seem to hold personal data")

    step = command("pool", make_pool, "choose the pairs to judge, from finished runs")
    step.add_argument("--depth", type=int, default=20, help="documents per run and query (default: 20)")
    step.add_argument("--method", choices=["depth", "rbp", "change"], default="depth", help="order of the pairs")
    step.add_argument("--queries", type=int, metavar="N", help="judge a random sample of N queries (default: all)")
    step.add_argument("--judgements", type=int, metavar="N", help="most pairs to add")
    step.add_argument(
        "--overlap", type=float, default=0.1, help="share of queries that every judge judges (default: 0.1)"
    )
    step.add_argument("--systems", nargs="+", metavar="SYSTEM", help="systems whose runs count (default: all)")
    step.add_argument("--results", type=Path, default=Path(), help=f"{results_folder.PLACE} (default: here)")

    step = command("judge", judge, "open the judging page for people, or let a model judge")
    step.add_argument("--with", dest="model", type=Path, help="let this model judge: a YAML file or a checkpoint")
    step.add_argument("--prompt", type=Path, metavar="FILE", help="the model's prompt, with {query} and {passage}")
    step.add_argument("--as", dest="name", default="", help="name of this model as a judge (default: the model's)")
    step.add_argument("--port", type=int, default=0, help="port on the loopback interface (default: a free one)")
    step.add_argument("--no-browser", action="store_true", help="print the address only")
    step.add_argument(
        "--offline", nargs="+", metavar="JUDGE", help="write an HTML file for each judge without a server"
    )
    step.add_argument("--output", type=Path, help="the file that --offline writes for one judge")
    step.add_argument("--take-back", nargs=2, metavar=("JUDGE", "CSV"), help="store a judge's saved judgements")

    step = command("accept", accept, "make a version of the qrels from the judgements")
    step.add_argument(
        "--resolution",
        choices=["majority", "strictest", "adjudicated"],
        default="majority",
        help="grade of a pair on which judges disagree (default: majority)",
    )
    step.add_argument("--adjudicator", default="", metavar="JUDGE", help="the judge who decides disagreements")
    step.add_argument("--without", nargs="+", default=[], metavar="JUDGE", help="judges to leave out")
    step.add_argument("--model", default="", metavar="NAME", help="use this model's judgements instead of people's")

    step = command("status", status, "show progress, agreement of judges, and statistical power")
    step.add_argument("--results", type=Path, default=Path(), help=f"{results_folder.PLACE} (default: here)")
    step.add_argument("--disagreements", type=Path, metavar="CSV", help="write the pairs with different grades")

    command("check", check, "check documents, queries and qrels as a run does")

    step = command("export", export, "write the set for BEIR, MTEB and ir_datasets, with a card")
    step.add_argument("--output", type=Path, required=True, help="folder to write; it must be new")

    step = command("compare", compare_versions, "compare the ranking of systems under two versions")
    step.add_argument("versions", type=int, nargs=2, metavar="VERSION", help="numbers of two versions")
    step.add_argument("--results", type=Path, default=Path(), help=f"{results_folder.PLACE} (default: here)")


def init(args: argparse.Namespace) -> None:
    """Make the folder of a set, with a grid file that runs it."""
    _refuse_less(args, chunk=20)
    texts, flaws = documents.read(args.documents, args.chunk)
    twins = documents.duplicates(texts)
    made = EvaluationSet.create(args.set, texts, str(args.documents), licence=args.licence)
    with made.edit() as description:
        description.documents |= {name: ids for name, ids in (("flaws", flaws), ("duplicates", twins)) if ids}
    name = made.description.name
    grid = {
        "grid": {"name": name, "systems": ["bm25", "minilm", "bm25+minilm"], "datasets": [name]},
        "corpora": {name: {"source": "local", "path": str(args.set)}},
        "datasets": {name: {"corpus": name, "queries_are_documents": False}},
    }
    comment = f"# Runs the evaluation set {name}. Until the set has qrels, the grid makes runs only."
    files.write_text(args.set / "grid.yaml", f"{comment}\n{as_yaml(grid)}")
    show(f"{args.set}: {len(texts):,} documents from {args.documents}")
    if unread := documents.unread(args.documents):
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in unread.most_common(_NAMED))
        warn(f"files left out, as they are links to elsewhere or of unknown kinds: {unread.total():,} ({kinds})")
    if flaws:
        first = "".join(f"\n  {name}: {flaw}" for name, flaw in [*flaws.items()][:_NAMED])
        warn(f"documents left out, without text, or cut: {len(flaws):,} (set.json names them){first}")
    if twins:
        original, (twin, *_) = next(iter(twins.items()))
        number = sum(map(len, twins.values()))
        warn(f"documents that repeat another one: {number:,} (set.json names them); {twin} repeats {original}, say")
    show(f"Next: beirgrid set queries {args.set} --from FILE")


def _refuse_less(args: argparse.Namespace, **least: int) -> None:
    for name, number in least.items():
        if (value := getattr(args, name)) is not None and value < number:
            raise BeirgridError(f"--{name} must be at least {number}")


def add_queries(args: argparse.Namespace) -> None:
    """Write the queries of a set."""
    made = EvaluationSet(args.set)
    facts: dict[str, Any]
    if made.store.path.exists():
        raise BeirgridError(f"{args.set} has a pool for its queries already; make another set for other queries")
    _refuse_less(args, sample=1)
    if args.source and not (args.generate or args.model):
        found, facts = queries.read(args.source), {"from": str(args.source)}
    elif args.source or args.sample is not None or not args.model or (args.generate or 0) < 1:
        raise BeirgridError("say where the queries come from: --from FILE [--sample N], or --generate N --with MODEL")
    else:
        found, facts = generated_queries.generate(made, args.generate, args.model, args.seed)
        say(f"{facts['passages']:,} passages were read; left out: {facts['left_out']}")
    suspects = queries.personal(found)
    for what, number in Counter(suspects.values()).items():
        names = [identifier for identifier, held in suspects.items() if held == what][:_NAMED]
        warn(f"{number:,} queries seem to hold {what}: {', '.join(names)}{', …' * (number > _NAMED)}")
    if suspects and not args.keep_personal:
        found = [query for query in found if query.id not in suspects]
        facts["left_out_as_personal"] = len(suspects)
        say(f"{len(suspects)} queries are left out; --keep-personal keeps them")
    if args.sample:
        found = queries.sample(found, args.sample, args.seed)
        facts["sampled_with_seed"] = args.seed
    found, dropped = queries.without_near_duplicates(found)
    if dropped:
        first, twin = next(iter(dropped.items()))
        facts["near_duplicates_left_out"] = len(dropped)
        say(f"{len(dropped)} near duplicates are left out; {first} is nearly {twin}, say")
    if not found:
        raise BeirgridError(f"{args.source or args.model}: no query is left")
    made.write_queries(found, **facts)
    show(f"{args.set}: {len(found):,} queries")
    show(f"Next: beirgrid run {args.set / 'grid.yaml'}, then beirgrid set pool {args.set}")


def make_pool(args: argparse.Namespace) -> None:
    """Add the pairs to judge to the pool of a set."""
    _refuse_less(args, depth=1, queries=2, judgements=1)
    if not 0 <= args.overlap <= 1:
        raise BeirgridError("--overlap is a share of the queries, from 0 to 1")
    made = EvaluationSet(args.set)
    rankings = _rankings(made, args.results, args.systems)
    facts = {"method": args.method, "depth": args.depth, "systems": sorted(rankings)}
    if args.queries:
        sample = set(pools.sample_queries(made.queries(), args.queries))
        facts["queries"] = len(sample)
        rankings = {
            system: {query: ranked for query, ranked in of_system.items() if query in sample}
            for system, of_system in rankings.items()
        }
    earlier = made.store.pool() if made.store.path.is_file() else []
    pool = pools.pool(rankings, args.method, args.depth, args.judgements, set(earlier))
    _refuse_other_documents(made, args.results, {pair.document for pair in pool.pairs})
    new = made.store.add_pool(pool.pairs, args.overlap)
    with made.edit() as description:
        description.pools.append({**facts, "candidates": pool.candidates, "new": new, "overlap": args.overlap})
    show(f"{args.set}: {new:,} new pairs to judge, of {pool.candidates:,} in the top {args.depth} of all runs")
    show(f"The pool has {len(earlier) + new:,} pairs now.")
    rows = [[system, str(pool.complete[system]), f"{pool.left_out[system]:.1%}"] for system in rankings]
    show(*columned(["system", "all judged to depth", "RBP weight left out"], rows))
    show(f"Next: beirgrid set judge {args.set}")


def judge(args: argparse.Namespace) -> None:
    """Serve the page on which people judge, or write it, or take a file of judgements back."""
    made = EvaluationSet(args.set)
    if not made.store.path.is_file():
        raise BeirgridError(f"{args.set} has no pool: beirgrid set pool makes it")
    if args.model:
        _judge_by_model(made, args)
        return
    judging = server.Judging(made)
    if args.take_back:
        name, path = args.take_back
        show(f"{server.take_back(judging, name, Path(path)):,} judgements of {name} are stored")
        return
    if args.offline:
        if args.output and len(args.offline) > 1:
            raise BeirgridError("--output names the file of one judge")
        for name, pairs in server.divided(judging, args.offline).items():
            output = args.output or Path(f"{made.description.name}-{name}.html")
            files.write_text(output, server.offline(judging, name, pairs))
            show(f"{output}: {len(pairs):,} pairs. Open it in a browser, judge, and save the judgements as CSV")
            show(f"Then: beirgrid set judge {args.set} --take-back {name!r} FILE.csv")
        return
    running, listening, address = server.serve(judging, args.port)
    print(f"Judge at {address}\nEvery judgement is stored at once. Ctrl-C ends the page.", flush=True)
    if not args.no_browser:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        running.run([listening])
    print(f"\nNext: beirgrid set status {args.set}, then beirgrid set accept {args.set}")


def _judge_by_model(made: EvaluationSet, args: argparse.Namespace) -> None:
    prompt = model_judge.read_prompt(args.prompt) if args.prompt else ""
    with chat_models.open_chat(args.model, args.set, "judgements") as model:
        given = list(model_judge.judge(made, model, args.name, prompt))
    skipped = sum(judgement.grade is None for judgement in given)
    show(f"{args.set}: {len(given):,} new judgements by a model; {skipped:,} answers have no grade")
    show(f"Next: people judge some queries whole (beirgrid set judge {args.set}), then beirgrid set status {args.set}")


def accept(args: argparse.Namespace) -> None:
    """Make a version of the qrels."""
    made = EvaluationSet(args.set)
    if args.resolution == "adjudicated" and not args.adjudicator:
        raise BeirgridError("--resolution adjudicated needs --adjudicator JUDGE")
    version = made.accept(args.resolution, args.adjudicator, args.without, args.model)
    show(
        f"{args.set}: version {version.number} has {version.judgements:,} judgements of {version.queries:,} queries "
        f"by {', '.join(version.judges)} ({version.resolution})"
    )
    show(*findings.judge_agreement(without_adjudicators(made.people(), made.adjudicators)))
    show(f"Next: run the grid again (beirgrid run {args.set / 'grid.yaml'}), and its tables show this version")


def status(args: argparse.Namespace) -> None:
    """Show what a set has, and what its judgements can tell."""
    made = EvaluationSet(args.set)
    about = made.description
    texts, asked = (facts.get("number", 0) for facts in (about.documents, about.queries))
    if about.versions:
        rankings, judgements = _rankings(made, args.results), made.qrels(about.versions[-1].number)
        grids = [*results_folder.of_grids(results_folder.locate(args.results).folder, summary.read).values()]
        planned = [{grid.compare[0], other} for grid in grids if about.name in grid.rows for other in grid.compare[1:]]
        tested = findings.paired_tests(judgements, rankings, planned)
        show(*findings.opening(judgements, rankings, tested))
    show(f"{about.name}: {texts:,} documents, {asked:,} queries")
    if not asked:
        show(f"Next: beirgrid set queries {args.set}")
        return
    if not made.store.path.is_file():
        show(f"Next: beirgrid run {args.set / 'grid.yaml'}, then beirgrid set pool {args.set}")
        return
    grades, people = made.grades(), made.people()
    graded = {pair for of_judge in people.values() for pair in of_judge}
    show(f"pool: {len(made.store.pool()):,} pairs, {len(graded):,} judged by people")
    skipped = Counter(judgement.judge for judgement in made.store.judgements() if judgement.grade is None)
    for name, of_judge in grades.items():
        show(f"  {name}: {len(of_judge):,} graded, {skipped[name]:,} skipped")
    regular = without_adjudicators(people, made.adjudicators)
    show(*findings.judge_agreement(regular), *findings.agreement_of_each(regular))
    if args.disagreements:
        number = _write_disagreements(args.disagreements, made, people)
        show(
            f"{args.disagreements}: {number:,} pairs with several grades. Fill in the column grade, then: beirgrid set "
            f"judge {args.set} --take-back ADJUDICATOR {args.disagreements}"
        )
    rankings = _rankings(made, args.results)
    for model in grades.keys() - people.keys():
        show(*findings.calibration_of(model_judge.calibration(made, model), rankings))
    if not about.versions:
        show(f"Next: beirgrid set judge {args.set}, then beirgrid set accept {args.set}")
        return
    newest = about.versions[-1]
    show(
        f"version {newest.number} of {newest.date} ({newest.by}, {newest.resolution}, {newest.judgements:,} judgements)"
    )
    depth = max((int(pool["depth"]) for pool in about.pools), default=0)
    families = {system: family for grid in grids for system, family in grid.families.items()}
    show(*findings.comparisons(tested, planned))
    show(*findings.reusability(judgements, rankings, families, depth))


def check(args: argparse.Namespace) -> None:
    """Check a set as the stage fetch does."""
    made = EvaluationSet(args.set)
    name, source = made.description.name, LocalSource(made.corpus)
    made.queries()  # before the documents, which take longer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.parquet"
        number = corpora.write(name, made.corpus, source, path)["documents"]
        found = judged.read(name, made.dataset, made.corpus, source, path)
    for warning in found.warnings:
        warn(warning)
    facts = f"{number:,} documents, {len(found.texts):,} queries, {found.facts['judgements']:,} judgements"
    show(f"{args.set}: {facts}: a run can read them", *found.facts.get("marks", ()))


def export(args: argparse.Namespace) -> None:
    """Write a set in the layouts of BEIR, MTEB and ir_datasets."""
    version = exports.write(EvaluationSet(args.set), args.output)
    show(f"{args.output}: version {version.number} of {args.set}, {version.judgements:,} judgements; see its README.md")


def compare_versions(args: argparse.Namespace) -> None:
    """Show the scores and ranks of all systems under two versions of the qrels."""
    made = EvaluationSet(args.set)
    versions = [(number, made.qrels(number)) for number in args.versions]
    show(*findings.changes(versions, _rankings(made, args.results)))


def _rankings(made: EvaluationSet, results: Path, systems: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the runs of a set: system to query to document ids.

    Raises:
        DataError: there is no run, or none of a named system; or a run is of other queries than the set has.
    """
    name, asked = made.description.name, made.queries()
    folder = results_folder.locate(results).folder
    have = {path.parent.name: path for path in sorted(folder.glob(f"runs/*/{name}.run.gz"))}
    wanted = list(systems or have)
    if absent := [system for system in wanted if system not in have]:
        raise DataError(f"{folder} has no run of {absent[0]} on {name} (it has {', '.join(have) or 'none'})")
    if not wanted:
        raise DataError(
            f"{folder} has no runs of {name}: run the grid first (beirgrid run {made.folder / 'grid.yaml'})"
        )
    queries_file = folder / Path(paths.QUERIES.format(dataset=name)).relative_to("results")
    if queries_file.is_file():
        lineage.check({"queries": queries_file, "runs": [have[system] for system in wanted]})
        searched = read_queries(queries_file)
        if other := [query for query, text in searched.items() if asked.get(query) != text]:
            of_set = f"than {made.folder} has, {other[0]!r} first"
            raise DataError(f"the runs in {folder} are of other queries {of_set}: run the grid again")
    found = {system: {query: ranking.ids for query, ranking in runs.read(have[system]).items()} for system in wanted}
    for system, of_system in found.items():
        if strangers := of_system.keys() - asked.keys():
            raise DataError(f"the run of {system} is of other queries than {made.folder} has, {min(strangers)!r} first")
    return found


def _refuse_other_documents(made: EvaluationSet, results: Path, pooled: set[str]) -> None:
    """Raise DataError if systems found documents that the set lacks, or of which it has another text."""
    texts, name = made.documents(pooled), made.description.name
    corpus = results_folder.locate(results).folder / Path(paths.CORPUS.format(corpus=name)).relative_to("results")
    for document in pick_documents(corpus, pooled) if corpus.is_file() else ():
        if document != texts[document.id]:
            raise DataError(
                f"the runs are of another text of {document.id!r} than {made.folder} has: run the grid again"
            )


def _write_disagreements(path: Path, made: EvaluationSet, grades: Grades) -> int:
    """Write the pairs on which judges disagree, with their texts and room for the grade of an adjudicator."""
    pairs, judges = disagreements(grades), sorted(grades)
    asked, texts = made.queries(), made.documents(document for (_, document), _ in pairs)
    names = ["query", "document", "query_text", "title", "text", *(f"by {judge}" for judge in judges), "grade"]
    with files.atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        for (query, document), given in pairs:
            shown = (query, document, asked[query], *texts[document][1:])
            writer.writerow([*map(server.quoted, shown), *(given.get(name, "") for name in judges), ""])
    return len(pairs)
