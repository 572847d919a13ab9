"""Types of command arguments: counts, and registry entries as JSON text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from ..config.messages import explain
from ..config.models import (
    CrossEncoder,
    DecoderReranker,
    LateInteractionModel,
    ListwiseReranker,
    Model,
    ModelEntry,
    QueryGenerator,
    Seq2SeqReranker,
    TermWeightsModel,
)
from ..config.values import MOST_SIZE
from ..core import files
from ..core.cli import whole
from ..core.errors import ConfigError
from ..core.families import RETRIEVERS


def size(text: str) -> int:
    """Parse a depth, a number of threads or another count of at least 1."""
    if not 1 <= (number := whole(text)) <= MOST_SIZE:
        raise argparse.ArgumentTypeError(f"{number:,} is not between 1 and {MOST_SIZE:,}")
    return number


# Type of options that are counts.
SizeOption = Annotated[int, size]


def from_json(kind: Any) -> Callable[[str], Any]:
    """Return a parser of JSON text to a class (or union of classes).

    The parser raises one ConfigError for all mistakes: unknown, missing and duplicate keys, and wrong values.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(text: str) -> Any:
        try:
            value = json.loads(text, object_pairs_hook=files.distinct)
            return adapter.validate_json(text)
        except ValidationError as error:
            problems = explain(error, "", value)
            raise ConfigError(f"the entry is not valid: {'; '.join(problems)}") from None
        except ValueError as error:
            raise ConfigError(f"the entry is not valid: {error}") from None

    return read


_FAMILY = Field(discriminator="family")
_KINDS: tuple[type[ModelEntry], ...] = get_args(get_args(Model)[0])
_RETRIEVING = tuple(kind for kind in _KINDS if get_args(kind.model_fields["family"].annotation)[0] in RETRIEVERS)
_Encoding: Any = Annotated[reduce(or_, _RETRIEVING), _FAMILY]
_Expanding = Annotated[QueryGenerator | TermWeightsModel, _FAMILY]
_Rerankers = CrossEncoder | Seq2SeqReranker | DecoderReranker | ListwiseReranker | LateInteractionModel
_Scoring = Annotated[_Rerankers, _FAMILY]
_HELP = "registry entry of the model, JSON"
# Types of the options that take a model's entry.
EncodingModel = Annotated[ModelEntry, from_json(_Encoding), _HELP]
ExpandingModel = Annotated[QueryGenerator | TermWeightsModel, from_json(_Expanding), _HELP]
ScoringModel = Annotated[_Rerankers, from_json(_Scoring), _HELP]


def encoding_model(keys: Mapping[str, Any]) -> ModelEntry:
    """Parse the entry of an encoder from its keys.

    Raises:
        ConfigError: a key is unknown or missing, or has a wrong value.
    """
    found: ModelEntry = from_json(_Encoding)(json.dumps(dict(keys)))
    return found
