"""Schema of the records that ``provenance`` writes."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from . import files
from .errors import DataError, lone_surrogate


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


class _Facts(_Strict):
    """Facts that tables and analyses use. Stages may add others."""

    precision: str | None = None
    device: str | None = None
    bytes: float | None = None
    queries: float | None = None
    search_seconds: float | None = None
    documents_per_second: float | None = None
    pairs: float | None = None
    pairs_per_second: float | None = None


class _Input(_Strict):
    path: str
    bytes: int = 0
    sha256: str = ""


class _Fact(_Strict):
    value: Any
    path: str = ""


class _Rows(_Fact):
    value: Annotated[list[int], Field(min_length=3, max_length=3)]


class _Lineage(_Strict):
    __pydantic_extra__: dict[str, _Fact]
    documents: _Rows | None = None


_Outputs = dict[Annotated[str, Field(min_length=1)], _File]


class _Record(_Strict):
    """The keys of a record. Records of earlier versions may lack keys that have a default."""

    stage: str
    settings: dict[str, Any]
    facts: _Facts
    seconds: Annotated[float, Field(ge=0)]
    peak_memory_mb: float
    outputs: _Outputs = {}
    inputs: dict[str, list[_Input]] = {}
    lineage: _Lineage = _Lineage()
    command: str = ""
    job: dict[str, Any] = {}
    packages: dict[str, Any] = {}
    cpus: int = 0
    finished: Annotated[str, AfterValidator(_check_moment)] = ""


RECORD, OUTPUTS, LINEAGE = TypeAdapter(_Record), TypeAdapter(_Outputs), TypeAdapter(_Lineage)


def check(kind: TypeAdapter[Any], content: Any, path: str | Path) -> None:
    """Raise DataError if a value of a record or of its part has the wrong type or a lone surrogate."""
    if half := lone_surrogate(json.dumps(content, ensure_ascii=False)):
        raise DataError(f"{path} is not a record of beirgrid (a lone surrogate, {half}). {files.REMEDY}")
    try:
        kind.validate_python(content)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        place = ".".join(map(str, first["loc"])) or "content"
        raise DataError(f"{path} is not a record of beirgrid ({place}: {first['msg']}). {files.REMEDY}") from None
