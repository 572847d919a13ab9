"""What docs/extending.md shows: its diffs apply to a copy of the checkout and do what the page says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import ROOT, copy_checkout, run_copy

pytestmark = pytest.mark.slow  # whole workflows

PAGE = ROOT / "docs" / "extending.md"


# Prints the records behind a cell, and its memory.
BEHIND = """
import sys
from pathlib import Path
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import Resources
from beirgrid.graph.stage import Job, jobs_behind, output
from beirgrid.config.load import merged
grid = Grid(merged([Path(sys.argv[1])]))
cell = {"system": "minilm", "dataset": "demo"}
print(*(job.record for job in jobs_behind(grid, output("results/spread/{system}/{dataset}.tsv", **cell))))
print(Resources(grid).need(Job.of("spread", cell)).memory)
"""


@pytest.fixture
def extended(tmp_path: Path) -> Callable[[str], tuple[Path, list[str]]]:
    """Return a function that applies the diff under a heading of the page to a copy of the checkout.

    The function returns the copy and the files that the diff changes.
    """

    def extend(heading: str) -> tuple[Path, list[str]]:
        checkout = copy_checkout(tmp_path / "checkout")
        section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
        (diff,) = re.findall(r"^```diff\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        subprocess.run(["git", "apply", "-p1", "-"], cwd=checkout, input=diff, text=True, check=True)
        return checkout, re.findall(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE)

    return extend


def test_a_stage_takes_three_files(extended, tmp_path):
    """The stage reads all shards of an index, and has a setting and a cost."""
    checkout, changed = extended("A stage")
    assert len(changed) == 3, changed
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "grid.yaml").write_text("grid: {systems: [minilm], datasets: [demo]}\nencode: {shard: 100}\n")
    record = "results/spread/minilm/demo.json"
    grid = ("--configfile", str(folder / "grid.yaml"), "--directory", str(folder))
    run_copy(checkout, "snakemake", "--cores", "2", *grid, record)
    made = json.loads((folder / record).read_text())
    assert (made["stage"], made["stage_version"], made["settings"]) == ("spread", 1, {"depth": 10})
    assert made["job"]["settings"] == {"depth": 10, "shard_size": 100}
    rows = [line.split("\t") for line in (folder / record.replace(".json", ".tsv")).read_text().splitlines()]
    assert [number for number, _ in rows] == ["0", "1", "2", "3"]
    assert sum(int(count) for _, count in rows) == 50 * 10
    assert "Nothing to be done" in run_copy(checkout, "snakemake", "--cores", "2", *grid, record)
    job = json.loads(run_copy(checkout, "beirgrid", "why", str(folder / record), "--job"))
    assert (job["stage"], job["settings"]) == ("spread", {"depth": 10, "shard_size": 100})
    (checkout / "workflow/behind.py").write_text(BEHIND)
    *records, memory = run_copy(checkout, "behind", str(folder / "grid.yaml")).split()
    encoded = [path for path in records if path.startswith("results/embeddings")]
    assert encoded == [f"results/embeddings/minilm/demo/{shard}.json" for shard in range(4)]
    assert float(memory) == pytest.approx(200 + 336 * 200e-6 + 50_000 * 240e-6)
    plan = checkout / "workflow/beirgrid/pipeline/spread.py"
    plan.write_text(plan.read_text().replace('Stamp("spread", 1)', 'Stamp("spread", 2)'))
    assert re.search(r"^spread +1$", run_copy(checkout, "snakemake", "-n", *grid, record), re.MULTILINE)


def test_a_metric_takes_a_function_and_a_row(extended, tmp_path):
    """Two of three relevant documents are among the first four: precision 1/2, recall 2/3."""
    checkout, changed = extended("A metric")
    assert changed == ["workflow/beirgrid/measures.py"]
    (tmp_path / "run.trec").write_text("".join(f"q Q0 d{i} {i} {9 - i} t\n" for i in range(1, 6)))
    (tmp_path / "qrels.tsv").write_text("q\td1\t1\nq\td4\t2\nq\td5\t1\nq\td2\t0\n")
    words = ("--run", str(tmp_path / "run.trec"), "--qrels", str(tmp_path / "qrels.tsv"), "--metrics", "f_measure@4")
    assert f"f_measure@4\t{2 / (1 / (1 / 2) + 1 / (2 / 3)):.4f}" in run_copy(checkout, "beirgrid", "evaluate", *words)


def test_a_source_takes_three_files(extended, tmp_path):
    """A replaced file is fetched again, and a line without a tab is refused by its place."""
    checkout, changed = extended("A source of collections")
    assert len(changed) == 3, changed
    folder = tmp_path / "work" / "data"
    folder.mkdir(parents=True)
    (folder / "collection.tsv").write_text("d1\tNitrogen in soils\nd2\tThe moon has no air\n")
    (folder / "queries.tsv").write_text("q1\tsoil nitrogen\nq2\tnot judged\n")
    (folder / "qrels.tsv").write_text("q1 0 d1 2\n")
    (tmp_path / "grid.yaml").write_text(
        "grid: {systems: [bm25-flat], datasets: [mine]}\n"
        "corpora: {mine: {source: tsv, path: data}}\ndatasets: {mine: {corpus: mine}}\n"
    )
    grid = ("--configfile", str(tmp_path / "grid.yaml"), "--directory", str(folder.parent))
    record = "results/datasets/mine/dataset.json"
    run_copy(checkout, "snakemake", "--cores", "1", *grid, record)
    corpus = pq.read_table(folder.parent / "results/corpora/mine/corpus.parquet").to_pylist()
    assert corpus[0] == {"_id": "d1", "title": "", "text": "Nitrogen in soils"}
    assert len(corpus) == 2
    assert (folder.parent / record).with_name("qrels.tsv").read_text().splitlines()[1:] == ["q1\td1\t2"]
    (folder / "queries.tsv").write_text("q1 soil nitrogen\n")
    failed = run_copy(checkout, "snakemake", "--cores", "1", *grid, record, status=1)
    assert "queries.tsv:1: expected an id, a tab and a text" in failed


def test_a_kernel_takes_a_module_a_switch_and_a_test(extended):
    checkout, changed = extended("A kernel")
    assert len(changed) == 3, changed
    added = next(path for path in changed if path.startswith("tests/parity/"))
    assert "5 passed" in run_copy(checkout, "pytest", "-q", "-p", "no:cacheprovider", added)
