"""Format messages about entries that do not match their class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..core.errors import nearest
from . import entries, indexes

# What a missing key is for, unless its name says it.
_HINTS = {
    "revision": " (40 hex digits), so that the numbers stay the same when the hub changes",
    "similarity": " (cosine or dot)",
    "recipe": f" ({', '.join(entries.ADAPTATIONS)})",
    "teacher": ", the cross-encoder whose margins are learnt",
    "first_stage": ", the system whose run is reranked",
    "reranker": ", the model that scores the pairs",
}


def _by_name(union: object, key: str) -> dict[str, type[entries.Entry]]:
    """Return the classes of a union by the value of the key that tells them apart."""
    kinds: tuple[type[entries.Entry], ...] = get_args(get_args(union)[0])
    return {get_args(kind.model_fields[key].annotation)[0]: kind for kind in kinds}


def kind_name(kind: type[entries.Entry]) -> str:
    """Return the name of a class of systems in messages."""
    fusions: dict[type[entries.Entry], str] = {entries.Rrf: "rrf", entries.WeightedSum: "wsum"}
    return fusions.get(kind) or str(getattr(kind, "kind", kind.__name__))


# The classes of each registry, and of a model's training, by name. A key of another class is reported with that class.
_CLASSES: dict[str, dict[str, type[entries.Entry]]] = {
    "corpora": _by_name(entries.Corpus, "source"),
    "models": _by_name(entries.Model, "family"),
    "systems": {kind_name(kind): kind for kind in get_args(entries.System)},
    "recipes": {"cross-encoder": entries.CrossEncoderTraining, **_by_name(entries.Adaptation, "recipe")},
}
_INDEXES = _by_name(indexes.AnyIndex, "kind")


def explain(error: ValidationError, where: str, kind: type[entries.Entry] | None) -> Iterator[str]:
    """Yield one line per mistake: the key, its value, and the allowed values."""
    for details in error.errors():
        yield _line(details, where, kind)


def _line(details: ErrorDetails, where: str, kind: type[entries.Entry] | None) -> str:
    path = [str(part) for part in details["loc"]]
    tags = _tags(path)
    place = ".".join([*filter(None, [where]), *(part for part in path if part not in tags)])
    what, value, context = details["type"], details["input"], details.get("ctx", {})
    decides = str(context.get("discriminator")).strip("'()")
    if what == "union_tag_not_found":
        what, place = "missing", f"{place}.{decides}"
    holder, _, key = place.rpartition(".")
    if what == "missing":
        needed = f"{int(key) + 1} values are needed" if key.isdigit() else f"needs the key {key!r}{_HINTS.get(key, '')}"
        return f"{holder or 'top level'}: {needed}"
    if what == "extra_forbidden":
        return f"{holder or 'top level'}: {_unknown_key(holder, key, where, kind, path)}"
    if what in ("literal_error", "union_tag_invalid"):
        return _no_choice(place, details, kind)
    if what == "string_pattern_mismatch":
        said = f"{value!r} does not fit. {entries.FORMS[context['pattern']]}"
    elif what == "value_error":
        said = str(context["error"])
    else:
        shown = repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:100]}…"
        said = re.sub(r"^\w+(?= should)", lambda _: shown, details["msg"])  # pydantic's subject is Input, Tuple, …
        said = re.sub("dictionary( or instance of .+)?", "mapping", said.replace("tuple", "list"))
        said += " (put it in quotes)" if what == "string_type" and isinstance(value, int | float | date) else ""
    return f"{place or 'top level'}: {said}"


def _tags(path: list[str]) -> set[str]:
    """Return the parts of a path that name a union's class and are not keys."""
    known = {entries.NAMED}.union(*(_CLASSES[name] for name in ("corpora", "models", "recipes")))
    if "index" in path:
        known |= set(_INDEXES)
    if "queries_are_documents" in path:
        known |= {"bool", "literal['auto']"}
    if "weights" in path:
        known |= {"tuned", "listed"}
    return {part for part in path if part in known or part.startswith("function-before[_as_tuple()")}


def _unknown_key(holder: str, key: str, where: str, kind: type[entries.Entry] | None, path: list[str]) -> str:
    """Name the other classes that have a key or, if none has it, the known key that is spelt most alike."""
    registry = where.partition(".")[0] if holder == where else ""
    own = kind_name(kind) if kind else path[0]
    if holder == f"{where}.train":
        registry = "recipes"
        own = path[-2] if path[-2] in _CLASSES[registry] else "cross-encoder"
    classes = _CLASSES.get(registry, {})
    if owners := [name for name, other in classes.items() if key in _keys(other)]:
        return f"the key {key!r} goes with {listed(owners)} {registry}, not with {own}"
    return f"unknown key {key!r}{nearest(key, _keys(*classes.values()) or _known_at(kind, path))}"


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
    if place.endswith(".weights"):
        known.append("a list of numbers")
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


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence: a, b and c."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
