"""Declare the parameters of a function as options of a command; pydantic validates their values."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..config.values import MOST_SIZE
from ..core import provenance
from ..pipeline.job import arguments


def add_options(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Declare the keyword-only parameters of a function as options, and set the function as the command's action.

    The help of an option is the text in the parameter's annotation.
    """
    kinds, annotated = get_type_hints(function), get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        kind, default = kinds[name], parameter.default
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "required": default is parameter.empty}
        settings["help"] = next(text for text in get_args(annotated[name]) if isinstance(text, str)).replace("%", "%%")
        if kind is bool:
            settings["action"] = "store_true"
        elif get_origin(kind) in (list, tuple):
            settings["nargs"] = "*"
        elif get_origin(kind) is Literal:
            settings["choices"] = get_args(kind)
        if default not in (parameter.empty, None, (), "", False):
            settings["help"] += f" (default: {' '.join(default) if isinstance(default, tuple) else default})"
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, **settings)

    def run(args: argparse.Namespace) -> Any:
        values = arguments(function, {name: value for name, value in vars(args).items() if name in parameters})
        provenance.use_command(args.typed, {})
        return function(**values)

    parser.set_defaults(call=run)  # an option of evaluate is --run


def whole(text: str) -> int:
    """Parse a whole number, 0 or more."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a whole number")
    return int(text)


def size(text: str) -> int:
    """Parse a depth, a number of threads or another count of at least 1."""
    if not 1 <= (number := whole(text)) <= MOST_SIZE:
        raise argparse.ArgumentTypeError(f"{number:,} is not between 1 and {MOST_SIZE:,}")
    return number
