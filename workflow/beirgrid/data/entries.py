"""Registry entries as commands receive them: JSON text with the keys that change the command's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ..config.messages import explain
from ..config.models import (
    CrossEncoder,
    DenseModel,
    LateInteractionModel,
    QueryGenerator,
    Seq2SeqReranker,
    SparseModel,
    TermWeightsModel,
)
from ..core.errors import ConfigError


def from_json(kind: Any) -> Callable[[str], Any]:
    """Return the function that reads a value of a class (or of a union of classes) from JSON text.

    The function raises ConfigError, one message for all mistakes: unknown keys, missing keys, wrong values.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(text: str) -> Any:
        with _refusing(kind):
            return adapter.validate_json(text)

    return read


@contextmanager
def _refusing(kind: Any) -> Iterator[None]:
    """Turn the mistakes of an entry into one ConfigError."""
    try:
        yield
    except ValidationError as error:
        problems = explain(error, "", kind if isinstance(kind, type) else None)
        raise ConfigError(f"the entry cannot be used: {'; '.join(problems)}") from None


_FAMILY = Field(discriminator="family")
_Encoding = Annotated[DenseModel | SparseModel | LateInteractionModel, _FAMILY]
_Expanding = Annotated[QueryGenerator | TermWeightsModel, _FAMILY]
_Scoring = Annotated[CrossEncoder | Seq2SeqReranker, _FAMILY]
_HELP = "registry entry of the model, JSON"
# Types of the options that take a model's entry.
EncodingModel = Annotated[DenseModel | SparseModel | LateInteractionModel, from_json(_Encoding), _HELP]
ExpandingModel = Annotated[QueryGenerator | TermWeightsModel, from_json(_Expanding), _HELP]
ScoringModel = Annotated[CrossEncoder | Seq2SeqReranker, from_json(_Scoring), _HELP]


def encoding_model(keys: Mapping[str, Any]) -> DenseModel | SparseModel | LateInteractionModel:
    """Return the entry of a model that encodes texts, from its keys.

    Raises:
        ConfigError: a key is unknown or missing, or has a wrong value.
    """
    adapter: TypeAdapter[DenseModel | SparseModel | LateInteractionModel] = TypeAdapter(_Encoding)
    with _refusing(_Encoding):
        return adapter.validate_python(dict(keys))
