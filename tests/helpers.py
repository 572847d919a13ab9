"""What tests do: write a collection, run Snakemake, run one stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def write_collection(folder: Path, documents: list[dict], queries: list[dict], qrels: dict[str, list[tuple]]) -> Path:
    """Write a folder in BEIR layout and return it."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for split, judgements in qrels.items():
        lines = ["query-id\tcorpus-id\tscore\n", *("\t".join(map(str, row)) + "\n" for row in judgements)]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def snakemake(*arguments: str | Path, cwd: Path = ROOT, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    """Run Snakemake as a user does; standard output and error come back together."""
    command = [sys.executable, "-m", "snakemake", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False
    )


def beirgrid(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run one stage as a command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    command = [sys.executable, "-m", "beirgrid", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)
