"""The scores of a grid in a notebook: the answer, the main table and its picture."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from ..config.metric_names import written
from ..page import drawing, figures
from ..page.answer import answer
from ..results import summary, table_files
from ..results.answers import read_answers


class GridScores(pd.DataFrame):
    """Scores of a grid. A notebook shows them like the top of a report; otherwise this is a DataFrame."""

    _metadata: ClassVar[list[str]] = ["grid_folder"]
    grid_folder: Path

    @classmethod
    def of(cls, scores: pd.DataFrame, grid_folder: Path) -> GridScores:
        """Return scores with the folder of their grid."""
        found = cls(scores)
        object.__setattr__(found, "grid_folder", grid_folder.absolute())
        return found

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        answers = read_answers(self.grid_folder / "tables")
        grid = table_files.ordered(summary.read(self.grid_folder / "grid.json"), answers)
        metric = grid.metrics[0]
        rows = answers.scores[(answers.scores["metric"] == metric) & answers.scores["value"].notna()]
        rows = rows[rows["system"].isin(list(grid.systems)) & rows["dataset"].isin(list(grid.rows))]
        values = rows.pivot(index="dataset", columns="system", values="value").reindex(columns=list(grid.systems))
        with drawing.style():
            picture = drawing.content(figures.forest(rows, metric).figure, "svg").decode()
        said = answer(grid, answers)
        sentences = escape(" ".join([*said.sentences, *said.caveats]))
        table = values.rename_axis(index=None, columns=None).to_html(float_format="{:.4f}".format, na_rep="")
        return f"<p>{sentences}</p><p>{escape(written(metric))}</p>{table}{picture[picture.index('<svg') :]}"
