"""Kinds of indexes of dense vectors: one class per kind. All but ``flat`` trade quality for bytes or milliseconds."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from .values import Entry, Size


class Index(Entry):
    """An index of dense vectors."""

    # Keys that an index is built with, in the order of its name; the others belong to the search.
    built_with: ClassVar[tuple[str, ...]] = ("kind",)

    @property
    def name(self) -> str:
        """The index's name in paths: its kind and what it is built with."""
        return "-".join(str(getattr(self, key)) for key in self.built_with)

    def built(self) -> dict[str, Any]:
        """Return the keys that the index is built with, defaults filled in."""
        return self.model_dump(mode="json", include=set(self.built_with))


class Flat(Index):
    """All vectors in float32, searched exactly."""

    kind: Literal["flat"] = Field("flat", description="Kind of index.")


class Hnsw(Index):
    """A graph of neighbours, with vectors in float32."""

    built_with: ClassVar[tuple[str, ...]] = ("kind", "links", "construction")
    kind: Literal["hnsw"] = Field(description="Kind of index.")
    links: Annotated[int, Field(ge=2, le=256)] = Field(32, description="Neighbours per vector and layer.")
    construction: Size = Field(200, description="Candidates that are kept while a vector is added.")
    search: Size = Field(1000, description="Candidates that are kept during a search.")


class Int8(Index):
    """One byte per dimension, scaled to the range of the dimension."""

    kind: Literal["int8"] = Field(description="Kind of index.")


AnyIndex = Annotated[Flat | Hnsw | Int8, Field(discriminator="kind")]


def token_lists(tokens: float) -> int:
    """Return the inverted lists of an index of token vectors: 2 √tokens, rounded to a power of two."""
    return 1 << round(math.log2(2 * math.sqrt(tokens)))
