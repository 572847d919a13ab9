"""``beirgrid run`` and ``beirgrid demo``: run Snakemake with this workflow, in any folder.

Unknown words are passed to Snakemake. The process is replaced by Snakemake, so signals, terminal and exit status are
Snakemake's.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ..config import CHECKOUT, is_folder
from ..core import files, interrupts, paths
from ..core.errors import BeirgridError, ConfigError, nearest, say
from ..core.families import families_with_role
from . import events
from .configfiles import CONFIGFILE, DIRECTORY, merged

_GRIDS = CHECKOUT / "config" / "grids"
_PROFILES = CHECKOUT / "profiles"
_EXAMPLES = """\
examples:
  beirgrid run grid.yaml                                   a file of your own
  beirgrid run paper --profile slurm                       a ready-made grid, on a cluster
  beirgrid run --systems bm25,minilm --datasets scifact    no file; -n shows the jobs only
  beirgrid run --model ./my-model --against bm25,minilm --datasets scifact,nfcorpus
  beirgrid run --model ./my-model --datasets ./my-collection
  beirgrid run --model BAAI/bge-small-en-v1.5 --datasets scifact
  beirgrid run grid.yaml --cores 8 --resources gpu=2       options of Snakemake"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``beirgrid run``."""
    parser.usage = "beirgrid run [GRID] [options] [options and targets of Snakemake]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"GRID is a configfile, or one of {', '.join(ready_made())}.\n\n{_EXAMPLES}"
    parser.allow_abbrev = False  # the rest is Snakemake's
    add_choices(parser)
    parser.add_argument("--configfile", "--configfiles", metavar="FILE", **CONFIGFILE)
    add_places(parser)
    parser.set_defaults(run=run, snakemake=[])


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Declare the options for a grid without a file."""
    parser.add_argument("--systems", type=names, default=[], metavar="A,B", help="systems, with commas between them")
    parser.add_argument(
        "--datasets",
        type=names,
        default=[],
        metavar="A,B",
        help="datasets, or folders in BEIR layout (default: scifact)",
    )
    parser.add_argument("--model", default="", help="a model: its folder, its id on the Hugging Face hub, or its name")
    parser.add_argument("--family", default="", help="family of the model (default: from its files or mteb)")
    parser.add_argument(
        "--against", type=names, default=[], metavar="A,B", help="systems to compare the model with (default: bm25)"
    )
    parser.add_argument("--metrics", type=names, default=[], metavar="A,B", help="metrics, such as nDCG@10,R@100")
    parser.add_argument("--name", default="", help="name of the grid (default: made of systems and datasets)")


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``beirgrid demo``."""
    parser.usage = "beirgrid demo [--published] [options] [options and targets of Snakemake]"
    parser.add_argument(
        "--published",
        action="store_true",
        help="write a report of published values alone, at once: 17 systems × 14 datasets",
    )
    parser.allow_abbrev = False
    add_places(parser)
    parser.set_defaults(run=demo, snakemake=[])


def add_places(parser: argparse.ArgumentParser) -> None:
    """Declare the options for Snakemake's profile and directory."""
    parser.add_argument("--profile", default="local", help="local, slurm, conda, or a profile of your own")
    parser.add_argument("--directory", **DIRECTORY)
    parser.add_argument("-v", dest="plain", action="store_true", help="show Snakemake's own lines")


def names(text: str) -> list[str]:
    """Split a text at commas and white space."""
    return text.replace(",", " ").split()


def demo(args: argparse.Namespace) -> None:
    """Run the grid of the demo, or write a page of published values."""
    if args.published:
        from . import published_page

        if args.snakemake:
            raise BeirgridError(f"--published runs nothing: leave out {' '.join(args.snakemake)}")
        published_page.write(_GRIDS / "published.yaml", args.directory)
    else:
        become_snakemake([_GRIDS / "demo.yaml"], args)


def run(args: argparse.Namespace) -> NoReturn:
    """Run a grid."""
    described = bool(args.systems or args.model)
    first = args.snakemake[0] if args.snakemake else "-"
    is_grid = first in ready_made() or first.endswith((".yaml", ".yml"))  # beside --configfile; else a target
    if not described and not first.startswith("-") and (is_grid or not args.configfile):
        args.configfile = [find_grid(args.snakemake.pop(0)), *args.configfile]
    elif described:
        if args.configfile:
            raise BeirgridError("--systems and --model describe a grid: leave out --configfile, or describe it there")
        args.configfile = [keep_grid(describe(args), args.directory)]
    elif not args.configfile:
        raise BeirgridError("which grid? Name a configfile, a ready-made grid, or --systems and --datasets")
    elif args.datasets:
        raise BeirgridError("--datasets goes with --systems or --model; a configfile has its own datasets")
    become_snakemake(args.configfile, args)


def become_snakemake(configfiles: Iterable[Path], args: argparse.Namespace) -> NoReturn:
    """Replace this process by Snakemake.

    Raises:
        BeirgridError: a configfile is missing.
    """
    configfiles = list(configfiles)
    if missing := [path for path in configfiles if not path.is_file()]:
        raise BeirgridError(f"there is no configfile {missing[0]}")
    command = snakemake(configfiles, args.profile, args.directory, args.snakemake, args.plain)
    if _was_killed(args.directory):
        subprocess.run([*command, "--unlock"], capture_output=True, check=False)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _was_killed(directory: Path) -> bool:
    """Tell whether the last run in a folder was killed on this machine, so that Snakemake's lock is left over."""
    with contextlib.suppress(BeirgridError):
        if any((directory / ".snakemake/locks").glob("*")):
            last = events.read(directory / events.EVENTS)
            return last.alive is False and not last.over
    return False


def snakemake(
    configfiles: Iterable[Path], named: str, directory: Path, options: Iterable[str], plain: bool = False
) -> list[str]:
    """Return the command that runs Snakemake with this workflow, with Snakemake's own lines if ``plain``."""
    command = [sys.executable, "-P", interrupts.__file__, "snakemake", "--snakefile", str(CHECKOUT / "Snakefile")]
    command += ["--logger", "beirgrid"] * (not plain)
    command += ["--configfile", *(str(path.absolute()) for path in configfiles)]
    # Otherwise Snakemake would use profiles/default of the working directory.
    command += ["--workflow-profile", str(_PROFILES / "default")]
    # An option with one value comes last: a target after --configfile would be a file of it.
    return [*command, "--profile", profile(named), "--directory", str(directory), *options]


def ready_made() -> list[str]:
    """Return the names of the grids that come with beirgrid."""
    return sorted(path.stem for path in _GRIDS.glob("*.yaml"))


def find_grid(word: str) -> Path:
    """Return the configfile of a word: a file, or the name of a ready-made grid.

    Raises:
        BeirgridError: there is neither.
    """
    path = Path(word).expanduser()
    if path.is_file():
        return path
    if word in ready_made():
        return _GRIDS / f"{word}.yaml"
    hint = nearest(word, ready_made()) or f"; the ready-made grids are {', '.join(ready_made())}"
    raise BeirgridError(f"there is no file {word!r} and no ready-made grid of that name{hint}")


def profile(name: str) -> str:
    """Return Snakemake's argument for a profile: the folder of a profile of beirgrid, or the name unchanged.

    From any folder, ``profiles/slurm`` is beirgrid's profile ``slurm``, as in a checkout.
    """
    ours = _PROFILES / name.removeprefix("profiles/")
    return str(ours) if (ours / "config.yaml").is_file() and not is_folder(Path(name)) else name


# Grids without a file


def keep_grid(content: dict[str, Any], directory: Path) -> Path:
    """Check a configuration, and write it into the folder of its grid.

    Raises:
        ConfigError: the configuration is wrong, as it would be in a file.
    """
    merged([], more=content)
    name = content["grid"]["name"]
    path: Path = directory / paths.GRID_FOLDER.format(grid=name) / "grid.yaml"
    files.replace_text(path, f"# Written by beirgrid run. Copy this file before you edit it.\n{as_yaml(content)}")
    say(f"The grid {name}, as {path} describes it")
    return path


def as_yaml(content: dict[str, Any]) -> str:
    """Return a configuration as a configfile."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)


def describe(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of the grid that options describe."""
    content: dict[str, Any] = {}
    systems = list(args.systems)
    if args.model:
        system, entries = describe_model(args.model, args.family)
        systems = [*dict.fromkeys([*(args.against or ["bm25"]), *systems]), system]
        content |= entries
    datasets = []
    for name in args.datasets or ["scifact"]:
        if is_folder(Path(name).expanduser()) and ("/" in name or name not in merged([]).datasets):
            name, entries = describe_collection(name)
            for key, of in entries.items():
                content[key] = {**content.get(key, {}), **of}
        datasets.append(name)
    grid: dict[str, Any] = {"name": args.name or grid_name(systems, datasets), "systems": systems, "datasets": datasets}
    if args.model and len(systems) > 1:
        grid["compare"] = [systems[-1], *systems[:-1]]
    return {**content, "grid": grid, **({"metrics": args.metrics} if args.metrics else {})}


def grid_name(systems: list[str], datasets: list[str]) -> str:
    """Return a readable and unique name for a grid of these systems and datasets."""
    whole = "-".join([*systems, *datasets])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip("-._")
    digest = hashlib.sha256(json.dumps([systems, datasets]).encode()).hexdigest()
    return name if len(name) <= 50 and name == whole else f"{name[:50]}-{digest[:8]}"


def describe_model(model: str, family: str = "") -> tuple[str, dict[str, Any]]:
    """Return the system of a model, and the entries that it needs beside those of the registry.

    Args:
        model: a folder with a checkpoint, an id on the hub, or the name of a registered system or model.
        family: its family, if its files do not say it.

    Raises:
        ConfigError: there is no such model, or its family is not known.
    """
    folder = Path(model).expanduser()
    if is_folder(folder):
        found = _of_folder(folder.resolve(), family)
        name = _entry_name(folder.resolve().name)
    elif "/" in model and not model.startswith((".", "/", "~")):
        if not family:  # from mteb
            return model, {}
        found = {"checkpoint": model, "revision": "resolve", "family": family}
        found |= {"similarity": "cosine"} if family == "dense" else {}
        name = _entry_name(model.rpartition("/")[2])
    else:
        config = merged([])
        if model not in {*config.systems, *config.models}:
            near = nearest(model, {*config.systems, *config.models})
            raise ConfigError(
                f"--model: {model!r} is no folder, no registered model, and no id owner/name of the hub{near}"
            )
        if model in config.systems:
            return model, {}
        found, name = {}, model
        family = config.models[model].family
    system, kind = name, found.get("family", family)
    if kind in families_with_role("reranker"):
        system = f"bm25+{name}"
        entry = {"first_stage": "bm25", "reranker": name}
    else:
        entry = {"retriever": name}
    return system, {**({"models": {name: found}} if found else {}), "systems": {system: entry}}


def describe_collection(folder: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the entries of the dataset in a folder in BEIR layout.

    Raises:
        ConfigError: the folder has no qrels, or those of several splits and none called test.
    """
    path = Path(folder).expanduser().resolve()
    splits = sorted({file.name.partition(".")[0] for file in path.glob("qrels/*.tsv*")})
    if not splits or (len(splits) > 1 and "test" not in splits):
        found = f"it has those of {', '.join(splits)}" if splits else "there are none"
        raise ConfigError(f"{path} needs relevance judgements in qrels/test.tsv; {found}")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-._") or "mine"
    config = merged([])
    name = f"my-{name}" if name in {*config.datasets, *config.corpora} else name
    dataset = {"corpus": name, "split": "test" if "test" in splits else splits[0]}
    return name, {"corpora": {name: {"source": "local", "path": str(path)}}, "datasets": {name: dataset}}


def _entry_name(text: str) -> str:
    """Return a name for a model: what messages, tables and paths call it."""
    name = re.sub(r"[^A-Za-z0-9._@-]+", "-", text).strip("-._@")[:60] or "model"
    registered = merged([])
    return f"my-{name}" if {*registered.systems, *registered.models} & {name, f"bm25+{name}"} else name


def _of_folder(folder: Path, family: str) -> dict[str, Any]:
    """Return the entry of a checkpoint in a folder, as its own files describe it."""
    modules = _read(folder / "modules.json", list)
    config = _read(folder / "config.json", dict)
    types = [str(module.get("type", "")).rpartition(".")[2] for module in modules if isinstance(module, dict)]
    saved = _read(folder / "config_sentence_transformers.json", dict)
    named = config.get("architectures")
    architectures = [str(name) for name in named] if isinstance(named, list) else []
    similarity = saved.get("similarity_fn_name") or ("cosine" if not types or "Normalize" in types else "dot")
    if not (modules or config):
        raise ConfigError(f"--model: {folder} has neither config.json nor modules.json: it is no checkpoint")
    if not family:
        family = _family(types, architectures, str(similarity))
    if not family:
        raise ConfigError(
            f"--model: the files of {folder} do not say its family ({', '.join(architectures) or 'no architectures'}); "
            "add --family dense (or another family of docs/models.md)"
        )
    entry = {"family": family, "path": str(folder)}
    return entry | ({"similarity": "dot" if similarity == "dot" else "cosine"} if family == "dense" else {})


def _family(types: list[str], architectures: list[str], similarity: str) -> str:
    """Return the family that a checkpoint's modules and architecture have; empty if they do not say one."""
    if similarity == "MaxSim":
        return "late-interaction"
    if {"SpladePooling", "MLMTransformer"} & {*types}:
        return "sparse"
    if "Pooling" in types:
        return "dense"
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return "cross-encoder"
    if any(name.startswith("HF_ColBERT") for name in architectures):
        return "late-interaction"
    return ""


def _read(path: Path, kind: type[Any]) -> Any:
    if not path.is_file():
        return kind()
    with files.reading(path):
        found = files.read_json(path)
    if not isinstance(found, kind):
        raise ConfigError(f"--model: {path} holds no JSON {'object' if kind is dict else 'list'}")
    return found
