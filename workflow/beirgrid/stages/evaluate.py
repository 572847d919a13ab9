"""Stage evaluate: the metrics of one run on one dataset, per query and mean."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files, provenance
from ..core.errors import DataError
from ..data import collection, metrics, runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid evaluate``."""
    parser.add_argument("--system", required=True, help="name of the system")
    parser.add_argument("--dataset", required=True, help="name of the dataset")
    parser.add_argument(
        "--run", required=True, type=provenance.artifact, dest="run_file", help="run, .run.gz or plain TREC"
    )
    parser.add_argument("--qrels", required=True, type=provenance.artifact, help="qrels.tsv")
    parser.add_argument("--metrics", required=True, nargs="+", help="metrics, name@k")
    parser.add_argument("--output", required=True, type=Path, help="means and what made them, .json")
    parser.add_argument("--per-query", required=True, type=Path, help="values per query, .parquet")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Evaluate a run; the mean is over all queries that have qrels, found or not (trec_eval -c)."""
    wanted = [metrics.parse_metric(name) for name in args.metrics]
    with provenance.record("evaluate", args.output, {"metrics": args.metrics}, [args.per_query]) as facts:
        qrels = collection.read_qrels(args.qrels)
        found = runs.read(args.run_file)
        if unknown := [query for query in found if query not in qrels]:
            raise DataError(f"{args.run_file} has {len(unknown)} queries without qrels, {unknown[0]!r} first")
        ranked = [found[query].ids if query in found else [] for query in qrels]
        values = metrics.evaluate(wanted, list(qrels.values()), ranked)
        with files.atomic(args.per_query) as temporary:
            columns = {"query": list(qrels)} | {f"{m.name}@{m.k}": values[m] for m in wanted}
            pq.write_table(pa.table(columns), temporary)
        facts.update(
            system=args.system,
            dataset=args.dataset,
            queries=len(qrels),
            queries_without_documents=sum(not ids for ids in ranked),
            means={f"{m.name}@{m.k}": float(values[m].mean()) for m in wanted},
        )
