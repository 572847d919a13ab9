"""Schema of records."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from . import files
from .errors import DataError


def _check_moment(text: str) -> str:
    """Refuse a text that is not a time with a time zone. An empty text means no time."""
    if text and datetime.datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time zone is missing")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _File(_Strict):
    bytes: int
    sha256: str = ""


class _Input(_Strict):
    path: str
    bytes: int = 0
    sha256: str = ""


class Facts(_Strict):
    """Facts that tables and analyses use. Stages may add others."""

    precision: str | None = None
    device: str | None = None
    bytes: float | None = None
    queries: float | None = None
    search_seconds: float | None = None
    documents_per_second: float | None = None
    pairs: float | None = None
    pairs_per_second: float | None = None


class _Rows(_Strict):
    value: Annotated[list[int], Field(min_length=3, max_length=3)]


class _Lineage(_Strict):
    documents: _Rows | None = None


class Files(_Strict):
    """The keys about files. Records of earlier versions may lack keys that have a default."""

    outputs: dict[Annotated[str, Field(min_length=1)], _File] = {}
    inputs: dict[str, list[_Input]] = {}
    lineage: _Lineage = _Lineage()
    facts: Facts = Facts()


class Record(Files):
    """All keys that readers take."""

    stage: str
    settings: dict[str, Any]
    facts: Facts
    seconds: Annotated[float, Field(ge=0)]
    peak_memory_mb: float
    command: str = ""
    job: dict[str, Any] = {}
    packages: dict[str, Any] = {}
    cpus: int = 0
    finished: Annotated[str, AfterValidator(_check_moment)] = ""


def check(kind: type[BaseModel], content: Any, path: str | Path) -> None:
    """Raise DataError if the content of a record has the wrong type."""
    try:
        kind.model_validate(content)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        place = ".".join(map(str, first["loc"])) or "content"
        raise DataError(f"{path} is not a record of beirgrid ({place}: {first['msg']}). {files.REMEDY}") from None
