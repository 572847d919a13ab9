"""How systems change queries: by RM3, by feedback, and by texts in their place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from ..core.families import WRITERS
from .values import Entry, NotNegative, PathName, Refers, Seed, Size, SizeOrZero


class Rm3(Entry):
    """Words of the first documents that a query gets (RM3). Defaults and limits are those of Anserini."""

    terms: Size = Field(10, description="Words that a query gets.")
    documents: Annotated[int, Field(ge=1, le=50)] = Field(10, description="First documents, whose words these are.")
    weight: Annotated[float, Field(ge=0, le=1)] = Field(0.5, description="Weight of the query's own words.")


class Moves(Entry):
    """How documents move a query. The defaults are those of pyserini."""

    method: Literal["rocchio", "average"] = Field(
        "rocchio",
        description="The query is alpha × its vector + beta × the mean of the documents' vectors (rocchio), or the "
        "mean of its vector and theirs (average).",
    )
    documents: Size = Field(3, description="First documents that move a query towards them.")
    alpha: NotNegative = Field(0.9, description="Weight of the query.")
    beta: NotNegative = Field(0.1, description="Weight of the mean of the first documents.")
    negatives: SizeOrZero = Field(0, description="Last documents of the run that move a query away from them.")
    gamma: NotNegative = Field(0.1, description="Weight of the mean of these last documents.")

    def _problems(self) -> Iterator[str]:
        given = self.model_fields_set
        if self.method == "average":
            yield from (f"{key}: average takes documents alone" for key in sorted(given - {"method", "documents"}))
        elif "gamma" in given and not self.negatives:
            yield "gamma: weighs the last documents: say how many in negatives"

    def sides(self, ids: list[str]) -> tuple[list[str], list[str]]:
        """Return the documents of a ranking that a query moves to, and those that it moves away from."""
        return ids[: self.documents], ids[-self.negatives :] if self.negatives else []


# What a generator is asked for a query, and how many texts, by method. HyDE: Gao et al. 2022 (arXiv 2212.10496), the
# prompt for web search and the number of passages of the authors' code. query2doc: Wang et al. 2023 (arXiv 2303.07678),
# without the four examples, which the authors draw from MS MARCO. keywords: Q2E/ZS of Jagerman et al. 2023 (arXiv
# 2305.03653).
PROMPTS = {
    "hyde": ("Please write a passage to answer the question.\nQuestion: {query}\nPassage:", 8),
    "query2doc": ("Write a passage that answers the given query:\n\nQuery: {query}\nPassage:", 1),
    "keywords": ("Write a list of keywords for the following query: {query}", 1),
    "own": ("", 1),
}


class Rewriting(Entry):
    """Texts for each query, which a model writes or a file has, and how a system searches with them."""

    method: Literal["hyde", "query2doc", "keywords", "own"] = Field(
        description="hyde: the mean of the vectors of query and passages; BM25 reads all of them. query2doc, keywords: "
        "the text follows the query, which BM25 reads five times. own: the text stands in place of the query."
    )
    generator: Annotated[str | None, Refers(("models",), WRITERS)] = Field(
        None, description="Model that writes the texts."
    )
    file: PathName | None = Field(
        None,
        description="File .jsonl (may be .gz) with the texts in place of a generator: an id and a text in each line. "
        "{dataset} stands for the dataset's name.",
    )
    prompt: str | None = Field(
        None, description="What the generator reads, with {query} in it. By default, as published; own needs it."
    )
    texts: Size | None = Field(None, description="Texts of a query. By default 8 for hyde, as its authors, and 1 else.")
    seed: Seed = Field(0, description="Seed of the generator.")

    def request(self) -> dict[str, Any]:
        """Return what decides the texts, beside the generator."""
        if self.file:
            return {"file": self.file}
        prompt, texts = PROMPTS[self.method]
        return {"prompt": self.prompt or prompt, "texts": self.texts or texts, "seed": self.seed}

    @property
    def name(self) -> str:
        """The name of the texts in paths: it is that of all systems and retrievers that share them."""
        text = json.dumps([self.generator, self.request()])
        return f"{self.generator or 'file'}-{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def _problems(self) -> Iterator[str]:
        if (self.generator is None) == (self.file is None):
            yield "needs a generator or a file, one of them"
        for key in sorted({"prompt", "texts", "seed"} & self.model_fields_set if self.file else ()):
            yield f"{key}: a file has its texts already; leave it out"
        if self.generator and "{query}" not in (self.prompt or PROMPTS[self.method][0]):
            yield "prompt: needs {query}, in whose place the query is put"
