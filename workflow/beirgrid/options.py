"""Declare the parameters of a function as the command line of a command; pydantic validates the words."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BeforeValidator

from .core.errors import BeirgridError, ConfigError
from .graph.job import arguments


def names(text: str) -> list[str]:
    """Split a text at commas and white space."""
    return text.replace(",", " ").split()


# Names in one word, or in several, with commas between them.
Names = Annotated[tuple[str, ...], BeforeValidator(names)]
NameLists = Annotated[tuple[str, ...], AfterValidator(lambda words: tuple(names(" ".join(words))))]
# Options of Snakemake that commands share.
ConfigFiles = Annotated[tuple[Path, ...], "same as Snakemake's --configfile", "--configfile", "--configfiles"]
Directory = Annotated[Path, "same as Snakemake's --directory: the folder that contains results/"]


class UsageError(BeirgridError):
    """An option has a wrong value."""

    exit_status = 2  # as for an option that argparse does not know


def add_options(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Declare the parameters of a function: keyword-only ones as options, others as words without a name.

    The first text in a parameter's annotation is its help; further ones are its names, unless these follow from the
    parameter. A list that a BeforeValidator reads takes one word, other lists take several. The parameter ``snakemake``
    takes the words that the command does not know. A parameter that is a dataclass stands for its fields. The
    function's docstring is the description, without its errors.
    """
    parameters = _parameters(function)
    parser.description, _, parser.epilog = inspect.cleandoc(function.__doc__ or "").replace("``", "`").partition("\n")
    parser.epilog = parser.epilog.partition("Raises:\n")[0].strip()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False
    for parameter, annotation in parameters.values():
        if parameter.name == "snakemake":
            parser.set_defaults(snakemake=[])
        else:
            _add_option(parser, parameter, annotation)

    def run(args: argparse.Namespace) -> Any:
        try:
            values = arguments(function, {name: value for name, value in vars(args).items() if name in parameters})
        except ConfigError as error:
            raise UsageError(str(error)) from None
        return function(**values)

    if "snakemake" in parameters:
        parser.usage = f"{parser.format_usage().removeprefix('usage: ').rstrip()} [options and targets of Snakemake]"
    parser.set_defaults(call=run)


def _parameters(function: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Return the parameters of a function by name, each with its annotation; of a dataclass, those of its fields."""
    sources: list[Any] = [function, *filter(dataclasses.is_dataclass, get_type_hints(function).values())]
    parameters: dict[str, tuple[inspect.Parameter, Any]] = {}
    for source in sources:
        annotations = get_type_hints(source, include_extras=True)
        for name, parameter in inspect.signature(source).parameters.items():
            if not dataclasses.is_dataclass(annotations[name]):
                parameters[name] = parameter, annotations[name]
    return parameters


def _add_option(parser: argparse.ArgumentParser, parameter: inspect.Parameter, annotation: Any) -> None:
    """Declare one parameter: its words, values and help."""
    kind, *metadata = get_args(annotation)
    kind = _without_none(kind)
    purpose, *words = [item for item in metadata if isinstance(item, str)]
    required = parameter.default is parameter.empty
    takes_list = get_origin(kind) in (list, tuple) and not any(isinstance(item, BeforeValidator) for item in metadata)
    settings: dict[str, Any] = {"help": _help(purpose, parameter), "default": argparse.SUPPRESS}
    if get_origin(kind) is Literal:
        settings["choices"] = get_args(kind)
    if kind is bool:
        settings["action"] = "store_true"
    elif takes_list:
        settings["nargs"] = "+" if required else "*"
    if parameter.kind is parameter.KEYWORD_ONLY:
        words = words or [f"--{parameter.name.replace('_', '-')}"]
        parser.add_argument(*words, dest=parameter.name, required=required, **settings)
    else:
        parser.add_argument(parameter.name, **({} if required or takes_list else {"nargs": "?"}) | settings)


def _help(purpose: str, parameter: inspect.Parameter) -> str:
    """Return the help of a parameter, with its default if that says something."""
    default = parameter.default
    purpose = purpose.replace("%", "%%")
    if default in (parameter.empty, None, (), "", False, Path()):
        return purpose
    return f"{purpose} (default: {' '.join(default) if isinstance(default, tuple) else default})"


def _without_none(kind: Any) -> Any:
    others = [member for member in get_args(kind) if member is not type(None)]
    return others[0] if get_origin(kind) in (Union, UnionType) else kind
