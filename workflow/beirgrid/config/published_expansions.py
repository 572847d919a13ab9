"""Expansions that others published: queries for the documents of a corpus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .values import LIST, Entry, HubId, PathName, Revision, Size


class PublishedExpansion(Entry):
    """Keys that published expansions of every source have."""

    queries: Size | None = Field(None, description="Queries to take per document, from the first. By default, all.")
    allow: Annotated[tuple[Literal["missing-documents"], ...], LIST] = Field(
        (), description="Flaws to accept: documents of the corpus without queries."
    )


class LocalExpansion(PublishedExpansion):
    """Expansions in a file or folder."""

    source: Literal["local"] = Field(description="Where the expansions come from.")
    path: PathName = Field(
        description="A .jsonl file (may be .gz) with an id and queries in each line, or a folder of such files. "
        "{corpus} stands for the corpus."
    )


class HubExpansion(PublishedExpansion):
    """Expansions in files of a dataset on the Hugging Face hub at a pinned commit."""

    source: Literal["huggingface"] = Field(description="Where the expansions come from.")
    id: HubId = Field(description="Dataset on the Hugging Face hub.")
    revision: Revision = Field(description="Commit of the dataset, 40 hex digits.")
    files: Annotated[tuple[str, ...], LIST, Field(min_length=1)] = Field(
        description="Files of the dataset, or patterns such as d2q/*.jsonl.gz. {corpus} stands for the corpus."
    )


Published = Annotated[LocalExpansion | HubExpansion, Field(discriminator="source")]


# The name of a model, or published expansions.
Expansion = str | Published
