"""Export runs and qrels in TREC format."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from ..collections import qrels
from ..core import files
from .finished import Directory, GridName, Output, finished_cells

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
            path = folder / "runs" / cell.result.dataset / f"{cell.result.system}.trec"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream, gzip.open(cell.result.run, "rb") as lines:
                shutil.copyfileobj(lines, stream)
                stream.write(b"" if stream.tell() else _NOTHING)
        for dataset, cell in {cell.result.dataset: cell for cell in cells}.items():
            judgements = qrels.judgements(cell.qrels)
            text = (f"{query} 0 {document} {grade}\n" for query, document, grade, *_ in judgements)
            files.write_text(folder / "qrels" / f"{dataset}.txt", "".join(text))
