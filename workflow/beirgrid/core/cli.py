"""Build command lines from functions. A parameter becomes an option; its annotation gives the type and the help.

A stage is a function with keyword-only parameters::

    def evaluate(*, run: Annotated[Path, "run, TREC format"], metrics: Annotated[list[str], "metrics, name@k"]) -> None:
        \"""Compute the metrics of a run.\"""

becomes ``evaluate --run RUN --metrics METRICS [METRICS ...]``. A parameter without a default is required; ``bool`` is a
switch; a ``Literal`` lists its choices; a registry entry is JSON text; a dataclass spreads its fields over options.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .errors import BeirgridError

# The job that a rule passed as JSON on standard input (``@-``).
JOB: ContextVar[Mapping[str, Any]] = ContextVar("job", default=MappingProxyType({}))
# The parts of a job that are options.
_OPTIONS = ("inputs", "outputs", "settings", "options")
# Name of the parsed attribute that holds the command's function. No option can have this name.
CALL = "call the command"
# Marks a parameter that is the second word of the command (``index dense``), not an option.
WORD = "kind"


def read_files(words: Iterable[str]) -> list[str]:
    """Replace ``@FILE`` by the lines of FILE, and ``@-`` by the options of a job, or of a JSON object, on
    standard input.

    A line ``@FILE`` inside FILE is kept as it is. argparse's own ``@FILE`` would decode in the locale's encoding and
    loop on a file that names itself.

    Raises:
        BeirgridError: a file cannot be read, or is not text.
    """
    return [found for word in words for found in (_read(word[1:]) if word.startswith("@") else [word])]


def _read(name: str) -> list[str]:
    if name != "-":
        return _lines(Path(name))
    try:
        options = json.load(sys.stdin.buffer)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise BeirgridError("@-: standard input is not a JSON object of options")
    if "settings" not in options:
        return as_words(options)
    JOB.set(options)
    return [word for part in _OPTIONS for word in as_words(options.get(part, {}))]


def is_given(value: Any) -> bool:
    """Tell whether an option has a value other than None, False or an empty list."""
    return not (value is None or value is False or (isinstance(value, list | tuple) and not value))


def as_words(options: Mapping[str, Any]) -> list[str]:
    """Return options as command-line words. Options without a value are omitted."""
    words: list[str] = []
    for name, value in options.items():
        if not is_given(value):
            continue
        values = [] if value is True else value if isinstance(value, list | tuple) else [value]
        words.append(f"--{name.replace('_', '-')}")
        words += [json.dumps(item) if isinstance(item, dict) else str(item) for item in values]
    return words


def _lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: its name contains a zero byte
        raise BeirgridError(f"@{path}: {getattr(error, 'strerror', '') or error}") from None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BeirgridError(f"@{path} is not a list of arguments, one per line: it is not UTF-8 text")
    return text.splitlines()


def add_options(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Declare the parameters of a function as options, and set the function as the command's action."""
    spread: dict[str, type] = {}
    for name, annotation, default in _parameters(function):
        kind = _plain(annotation)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            spread[name] = kind
            for field_name, field_annotation, field_default in _parameters(kind):
                _add(parser, field_name, field_annotation, field_default)
        elif WORD not in _metadata(annotation):
            _add(parser, name, annotation, default)
    parser.set_defaults(**{CALL: lambda args: function(**_arguments(function, spread, args))})


def _parameters(function: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        yield name, hints[name], parameter.default


def _add(parser: argparse.ArgumentParser, name: str, annotation: Any, default: Any) -> None:
    settings = _settings(annotation)
    if default is inspect.Parameter.empty:
        settings["required"] = True
    elif settings.get("action") != "store_true":
        settings["default"] = default
        if default not in (None, (), [], ""):
            plain = type(default) in (list, tuple)  # a NamedTuple formats itself
            shown = " ".join(map(str, default)) if plain else default
            settings["help"] = f"{settings.get('help', '')} (default: {shown})".strip()
    parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **settings)


def _settings(annotation: Any) -> dict[str, Any]:
    kind, metadata = _plain(annotation), _metadata(annotation)
    settings: dict[str, Any] = {}
    if help_text := next((item for item in metadata if isinstance(item, str)), None):
        settings["help"] = help_text.replace("%", "%%")
    converter = next((item for item in metadata if callable(item)), None)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is bool:
        return settings | {"action": "store_true"}
    if origin in (list, tuple):
        inner = _settings(arguments[0])
        return {**inner, **settings, "nargs": "*", **({"type": converter} if converter else {})}
    if origin is Literal:
        return settings | {"choices": list(arguments)}
    if converter is None and kind in (str, float, Path):
        converter = kind
    elif converter is None and kind is int:
        converter = whole
    return settings | {"type": converter or json.loads}


def whole(text: str) -> int:
    """Parse a whole number, 0 or more."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a whole number")
    return int(text)


def _plain(annotation: Any) -> Any:
    """Strip an annotation of its metadata and of None."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        alternatives = [kind for kind in get_args(annotation) if kind is not type(None)]
        if len(alternatives) == 1:
            return _plain(alternatives[0])
    return annotation


def _metadata(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of an annotation, outermost first."""
    if get_origin(annotation) is Annotated:
        inner, *outer = get_args(annotation)
        return (*outer, *_metadata(inner))
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(item for kind in get_args(annotation) for item in _metadata(kind))
    return ()


def _arguments(function: Callable[..., Any], spread: dict[str, type], args: argparse.Namespace) -> dict[str, Any]:
    values = {}
    for name, annotation, _ in _parameters(function):
        if kind := spread.get(name):
            values[name] = kind(**{field: getattr(args, field) for field, _, _ in _parameters(kind)})
        else:
            values[name] = getattr(args, WORD if WORD in _metadata(annotation) else name)
    return values
