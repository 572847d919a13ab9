"""The scores of one run, as evaluate writes them to metrics/{system}/{dataset}.json."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ..core import files
from ..core.errors import DataError


class Scores(BaseModel):
    """Means of the metrics over all queries with qrels.

    Attributes:
        system: name of the system.
        dataset: name of the dataset.
        queries: number of queries with qrels.
        means: mean by metric, name@k.
    """

    model_config = ConfigDict(frozen=True)

    system: str
    dataset: str
    queries: int
    means: dict[str, float]


def read(path: str | Path) -> Scores:
    """Read the scores of one run.

    Raises:
        DataError: the file is missing, damaged, or holds no scores.
    """
    with files.reading(path):
        found = files.read_json(path)
    if not isinstance(found, dict):
        found = {}
    try:
        return Scores.model_validate(found.get("scores") or found.get("facts"))  # facts: as 0.1.0 wrote scores
    except ValidationError:
        raise DataError(f"{path} holds no scores. {files.REMEDY}") from None
