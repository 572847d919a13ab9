"""Format messages about entries that do not match their class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..core.errors import nearest
from . import entries, indexes

_TYPES = {
    "int": "integer",
    "string": "string",
    "bool": "boolean",
    "float": "number",
    "tuple": "list",
    "dict": "mapping",
}
_TYPES |= dict.fromkeys(("model", "model_attributes", "mapping"), "mapping") | {"list": "list"}
# The classes of each registry or key. A key of another class is reported with that class.
_MODELS: tuple[type[entries.ModelEntry], ...] = get_args(get_args(entries.Model)[0])
_CORPORA: tuple[type[entries.CorpusEntry], ...] = get_args(get_args(entries.Corpus)[0])
_RECIPES: tuple[type[entries.Adaptive], ...] = get_args(get_args(entries.Adaptation)[0])
_INDEXES: tuple[type[indexes.Index], ...] = get_args(get_args(indexes.AnyIndex)[0])
_SYSTEMS: tuple[type[entries.SystemEntry], ...] = get_args(entries.System)
# Why a late-interaction model has no such key.
_NOT_LATE = {
    "similarity": "tokens are compared by dot product, documents by MaxSim",
    "prompts": "the checkpoint has its own markers for queries and documents",
}
_WHY_REVISION = " (40 hex digits), so that the numbers stay the same when the hub changes"


# Pydantic's name of the word that may stand for a list of weights. The mistake in the list is reported alone.
_TUNED = "literal['tuned']"


def explain(error: ValidationError, where: str, kind: type[entries.Entry] | None) -> Iterator[str]:
    """Yield one line per mistake: the key, its value, and the allowed values."""
    for details in error.errors():
        if _TUNED not in details["loc"]:
            yield _line(details, where, kind)


def _line(details: ErrorDetails, where: str, kind: type[entries.Entry] | None) -> str:
    path = [str(part) for part in details["loc"]]
    tags = _tags(path)
    place = ".".join([*filter(None, [where]), *(part for part in path if part not in tags)]) or "top level"
    what, value, context = details["type"], details["input"], details.get("ctx", {})
    if what in ("extra_forbidden", "missing"):
        holder, _, key = place.rpartition(".")
        holder = holder or "top level"
        tell = _unknown_key if what == "extra_forbidden" else _missing_key
        return tell(holder, key, where, tags, kind, path)
    if what in ("literal_error", "union_tag_invalid"):
        return _no_choice(place, details, kind)
    if what == "union_tag_not_found":
        return _missing_key(place, str(context["discriminator"]).strip("'()"), where, tags, kind, path)
    if what == "string_pattern_mismatch":
        return f"{place}: {value!r} does not fit. {entries.FORMS[context['pattern']]}"
    if what == "value_error":
        return f"{place}: {context['error']}"
    if (name := what.removesuffix("_type")) in _TYPES:
        actual = type(value).__name__
        hint = " (put it in quotes)" if name == "string" and actual in ("int", "float", "bool", "date") else ""
        return f"{place}: {value!r} should be of type {_TYPES[name]}, not {actual}{hint}"
    shown = repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:100]}…"
    return f"{place}: {shown} {_BOUNDS[what].format(**context) if what in _BOUNDS else details['msg']}"


_BOUNDS = {
    "greater_than_equal": "is less than the minimum of {ge}",
    "greater_than": "is less than or equal to the minimum of {gt}, which is excluded",
    "less_than_equal": "is greater than the maximum of {le}",
    "finite_number": "is not a finite number",
    "too_short": "should not be empty",
    "string_too_long": "is longer than {max_length} characters",
}


def _tags(path: list[str]) -> set[str]:
    """Return the parts of a path that name a union's class and are not keys."""
    known = {*_values(_MODELS, "family"), *_values(_CORPORA, "source"), *_values(_RECIPES, "recipe"), entries.NAMED}
    if "index" in path:
        known |= set(_values(_INDEXES, "kind"))
    if "queries_are_documents" in path:
        known |= {"bool", "literal['auto']"}
    if "weights" in path:
        known |= {"tuned", "listed"}
    return {part for part in path if part in known or part.startswith("function-before[_as_tuple()")}


def _values(kinds: Iterable[type[entries.Entry]], key: str) -> list[str]:
    return [get_args(kind.model_fields[key].annotation)[0] for kind in kinds]


def _unknown_key(
    holder: str, key: str, where: str, tags: set[str], kind: type[entries.Entry] | None, path: list[str]
) -> str:
    other, fusions = "", (entries.Rrf, entries.WeightedSum)
    if where.startswith("models.") and holder == where:
        known, (family,) = _keys(*_MODELS), tags
        families = zip(_values(_MODELS, "family"), _MODELS, strict=True)
        if owners := [name for name, model in families if key in _keys(model)]:
            why = f" ({_NOT_LATE[key]})" if family == "late-interaction" and key in _NOT_LATE else ""
            other = f"goes with {listed(owners)} models, not with {family} ones{why}"
    elif where.startswith("models.") and "train" in path:
        known = _keys(*_RECIPES, entries.CrossEncoderTraining)
        other = f"does not go with {next(iter(tags - set(_values(_MODELS, 'family'))), 'a cross-encoder')}"
    elif where.startswith("corpora."):
        known, (source,) = _keys(*_CORPORA), tags
        other = f"does not go with source {source}"
    elif where.startswith("systems.") and holder == where and kind:
        known, other = _keys(*_SYSTEMS), f"does not go with {kind_name(kind)} systems"
        if kind in fusions and key in _keys(*fusions):
            other = f"goes with {'wsum' if kind is entries.Rrf else 'rrf'}, not with {kind_name(kind)}"
    else:
        known = _known_at(kind, path)
    if other and key in known:
        return f"{holder}: the key {key!r} {other}"
    return f"{holder}: unknown key {key!r}{nearest(key, known)}"


def _missing_key(
    holder: str, key: str, where: str, tags: set[str], kind: type[entries.Entry] | None, path: list[str]
) -> str:
    why = _WHY_REVISION if key == "revision" else ""
    if key.isdigit():
        return f"{holder}: {int(key) + 1} values are needed"
    if kind is entries.Reranked:
        return f"{holder}: " + (
            "a reranker needs a first_stage, the system whose run it reorders"
            if key == "first_stage"
            else "first_stage needs a reranker, a cross-encoder model"
        )
    if where.startswith("corpora.") and tags:
        return f"{holder}: source {next(iter(tags))} needs the key {key!r}{why}"
    if holder.endswith(".train") and key == "recipe":
        return f"{holder}: a dense model needs its recipe ({', '.join(_values(_RECIPES, 'recipe'))})"
    if key == "teacher":
        return f"{holder}: gpl needs a teacher, the cross-encoder whose margins are learnt"
    if key == "similarity":
        return f"{holder}: a dense model needs its similarity (cosine or dot)"
    return f"{holder}: needs the key {key!r}{why}"


def _no_choice(place: str, details: ErrorDetails, kind: type[entries.Entry] | None) -> str:
    context, value = details.get("ctx", {}), details["input"]
    options = str(context.get("expected", context.get("expected_tags", "")))
    known = [option.strip(" '") for option in options.replace(" or ", ", ").split(",")]
    known = [option for option in known if option != entries.NAMED]
    if details["type"] == "union_tag_invalid":
        key = str(context["discriminator"]).strip("'()")
        place, value = f"{place}.{key}", context["tag"]
    hint = nearest({"gpu": "cuda"}.get(value, value), known) if isinstance(value, str) else ""
    if kind is entries.Rrf and place.endswith(".fusion"):
        known.append("wsum")
    if place.endswith(".similarity") and known == ["dot"]:
        return f"{place.removesuffix('.similarity')}: sparse models compare by dot product"
    if place.endswith(".weights"):
        return f"{place}: {value!r} is neither tuned nor a list of numbers"
    return f"{place}: {value!r} is not one of {', '.join(known)}{hint}"


def _keys(*kinds: type[entries.Entry]) -> set[str]:
    return {field.alias or name for kind in kinds for name, field in kind.model_fields.items()}


def _known_at(kind: type[entries.Entry] | None, path: list[str]) -> set[str]:
    """Return the keys of the class at the end of a path."""
    for part in path[:-1]:
        field = kind.model_fields.get(part) if kind else None
        inner = field.annotation if field else None
        kind = inner if isinstance(inner, type) and issubclass(inner, entries.Entry) else None
    return _keys(kind) if kind else set()


def kind_name(kind: type[entries.Entry]) -> str:
    """Return the name of a class of systems in messages."""
    fusions: dict[type[entries.Entry], str] = {entries.Rrf: "rrf", entries.WeightedSum: "wsum"}
    return fusions.get(kind) or str(getattr(kind, "kind", kind.__name__))


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence: a, b and c."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
