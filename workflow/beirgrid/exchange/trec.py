"""Export runs and qrels in TREC format."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from ..collections import qrels
from ..core import files
from .finished import Directory, ExportedCell, GridName, Output, finished_cells

# An empty file would look truncated, so a run without documents is an empty header of ir_metadata.
_NOTHING = b"# ir_metadata.start\n# ir_metadata.end\n"


def export_trec(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write the runs of a grid to ``runs/{dataset}/{system}.trec``, and qrels to ``qrels/{dataset}.txt``.

    Raises:
        DataError: there is no finished cell, a file is damaged, or the output is not empty.
    """
    cells = finished_cells(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            _write_run(folder / "runs" / cell.result.dataset / f"{cell.result.system}.trec", cell.result.run)
        (folder / "qrels").mkdir()
        for dataset, cell in {cell.result.dataset: cell for cell in cells}.items():
            _write_qrels(folder / "qrels" / f"{dataset}.txt", cell)


def _write_run(path: Path, run: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream, gzip.open(run, "rb") as lines:
        shutil.copyfileobj(lines, stream)
        if not stream.tell():
            stream.write(_NOTHING)


def _write_qrels(path: Path, cell: ExportedCell) -> None:
    with path.open("w", encoding="utf-8") as stream, files.reading(cell.qrels):
        for query, document, grade, *_ in qrels.judgements(cell.qrels):
            stream.write(f"{query} 0 {document} {grade}\n")
