"""Run Snakemake with this workflow, in any folder: ``beirgrid run`` and ``beirgrid demo``."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import yaml

from ..config.datasets import lack_of_qrels, splits
from ..config.load import merged
from ..config.models import similarity_of
from ..core import files, paths
from ..core.checkout import CHECKOUT, MODULES, is_folder
from ..core.errors import BeirgridError, ConfigError, nearest, say, warn
from ..core.families import families_with_role
from ..models import saved
from ..options import ConfigFiles, Directory, Names

_GRIDS = CHECKOUT / "config" / "grids"
_PROFILES = CHECKOUT / "profiles"
# Its command line, a program of its own.
_SNAKEMAKE = MODULES / "beirgrid" / "snakemake_command.py"
# Families by the class of sentence-transformers or PyLate that saved a checkpoint.
_OF_CLASS = {
    "SentenceTransformer": "dense",
    "SparseEncoder": "sparse",
    "CrossEncoder": "cross-encoder",
    "ColBERT": "late-interaction",
    "MultiVectorEncoder": "late-interaction",
}
SLURM_PLUGIN = "snakemake-executor-plugin-slurm"


@dataclass(frozen=True, kw_only=True)
class Snakemake:
    """How Snakemake runs. ``snakemake`` has the words that a command does not know."""

    profile: Annotated[str, "local, slurm, conda, or a profile of your own"] = "local"
    directory: Directory = Path()
    plain: Annotated[bool, "show Snakemake's own lines", "-v"] = False
    snakemake: tuple[str, ...] = ()

    def command(self, configfiles: Sequence[Path]) -> list[str]:
        """Return the command that runs Snakemake with this workflow."""
        command = [sys.executable, "-P", str(_SNAKEMAKE), "snakemake", "--snakefile", str(CHECKOUT / "Snakefile")]
        command += ["--logger", "beirgrid"] * (not self.plain)
        command += ["--configfile", *(str(path.absolute()) for path in configfiles)]
        # Otherwise Snakemake would use profiles/default of the working directory.
        command += ["--workflow-profile", str(_PROFILES / "default")]
        # An option with one value comes last: a target after --configfile would be a file of it.
        return [*command, "--profile", profile(self.profile), "--directory", str(self.directory), *self.snakemake]

    def run(self, configfiles: Sequence[Path]) -> int:
        """Run Snakemake, and return its exit status."""
        return subprocess.run(self.command(configfiles), check=False).returncode

    def replace_this_process(self, configfiles: Sequence[Path]) -> NoReturn:
        """Run Snakemake in place of this process, so that signals, terminal and exit status are Snakemake's.

        Raises:
            BeirgridError: a configfile is missing.
        """
        if missing := [path for path in configfiles if not path.is_file()]:
            raise BeirgridError(f"there is no configfile {missing[0]}")
        command = self.command(configfiles)
        sys.stdout.flush()
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def demo(
    *,
    published: Annotated[bool, "write a report of published values alone, at once: 17 systems × 14 datasets"] = False,
    how: Snakemake,
) -> None:
    """Run the workflow on the embedded collection, or write a page of published values."""
    if not published:
        how.replace_this_process([_GRIDS / "demo.yaml"])
    from .reporting import write_published

    write_published(_GRIDS / "published.yaml", how.directory)


def run(
    *,
    systems: Annotated[Names, "systems, with commas between them"] = (),
    datasets: Annotated[Names, "datasets, or folders in BEIR layout (default: scifact)"] = (),
    model: Annotated[str, "a model: its folder, its id on the Hugging Face hub, or its name"] = "",
    family: Annotated[str, "family of the model (default: from its files or mteb)"] = "",
    against: Annotated[Names, "systems to compare the model with"] = ("bm25",),
    metrics: Annotated[Names, "metrics, such as nDCG@10,R@100"] = (),
    name: Annotated[str, "name of the grid (default: made of systems and datasets)"] = "",
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, "where models run, in place of the configuration's"
    ] = None,
    configfile: ConfigFiles = (),
    how: Snakemake,
) -> NoReturn:
    """Run a grid: a configfile, a ready-made grid by name (beirgrid list grids), or systems and datasets.

    examples:
      beirgrid run grid.yaml                                   a file of your own
      beirgrid run paper --profile slurm                       a ready-made grid, on a cluster
      beirgrid run --systems bm25,minilm --datasets scifact    no file; -n shows the jobs only
      beirgrid run --model ./my-model --against bm25,minilm --datasets scifact,nfcorpus
      beirgrid run --model ./my-model --datasets ./my-collection
      beirgrid run --model BAAI/bge-small-en-v1.5 --datasets scifact
      beirgrid run grid.yaml --cores 8 --resources gpu=2       options of Snakemake

    Raises:
        BeirgridError: no grid is named, or one is named twice.
    """
    configfiles = list(configfile)
    words = list(how.snakemake)
    described = systems or model or datasets
    first = words[0] if words and not words[0].startswith("-") else ""
    is_grid = first in ready_made() or first.endswith((".yaml", ".yml"))  # beside --configfile; else a target
    if first and (is_grid or not (configfiles or described)):
        configfiles.insert(0, find_grid(words.pop(0)))
    if bool(described) == bool(configfiles):
        near = nearest(words[0], (f"--{option}" for option in run.__annotations__)) if words else ""
        grid = "which grid? Name a configfile, a ready-made grid, or --systems or --model with --datasets"
        raise BeirgridError(f"{grid}{near}")
    if described:
        content = configuration(systems, datasets or ("scifact",), metrics, name, model, family, against)
        configfiles = [keep_grid(content, how.directory)]
    if device:  # the last --config is Snakemake's only one
        at = words.index("--config") + 1 if "--config" in words else len(words)
        words[at:at] = [*["--config"] * ("--config" not in words), f"device={device}"]
    replace(how, snakemake=tuple(words)).replace_this_process(configfiles)


# Grids and profiles


def ready_made() -> dict[str, Path]:
    """Return the grids that come with beirgrid, by name."""
    return {path.stem: path for path in sorted(_GRIDS.glob("*.yaml"))}


def find_grid(word: str) -> Path:
    """Return the configfile of a word: a file, or the name of a ready-made grid.

    Raises:
        BeirgridError: there is neither.
    """
    path = Path(word).expanduser()
    grids = ready_made()
    if path.is_file() or word in grids:
        return path if path.is_file() else grids[word]
    hint = nearest(word, grids) or f"; the ready-made grids are {', '.join(grids)}"
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
    merged(more=content)
    path: Path = directory / paths.GRID_FOLDER.format(grid=content["grid"]["name"]) / "grid.yaml"
    files.replace(path, f"# Written by beirgrid run. Copy this file before you edit it.\n{as_yaml(content)}")
    say(f"The grid {content['grid']['name']}, as {path} describes it")
    return path


def as_yaml(content: dict[str, Any]) -> str:
    """Return a configuration as a configfile."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)


def configuration(
    systems: Sequence[str],
    datasets: Sequence[str],
    metrics: Sequence[str] = (),
    name: str = "",
    model: str = "",
    family: str = "",
    against: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the configuration of a grid: of systems and of a model, which is compared with all of them.

    Datasets may be folders in BEIR layout. Without a name, the grid has one made of systems and datasets.
    """
    content: dict[str, Any] = {}
    columns = list(systems)
    rows: list[str] = []
    if model:
        system, content = entries_of_model(model, family)
        columns = [*dict.fromkeys([*against, *systems]), system]
    for row in datasets:
        _refuse_missing(row)
        if is_own_collection(row):
            row, entries = entries_of_collection(row)
            content |= {key: {**content.get(key, {}), **added} for key, added in entries.items()}
        rows.append(row)
    grid: dict[str, Any] = {"name": name or _grid_name(columns, rows), "systems": columns, "datasets": rows}
    if model and len(columns) > 1:
        grid["compare"] = [columns[-1], *columns[:-1]]
    return {**content, "grid": grid, **({"metrics": list(metrics)} if metrics else {})}


def _grid_name(systems: Sequence[str], datasets: Sequence[str]) -> str:
    """Return a readable and unique name for a grid of these systems and datasets."""
    whole = "-".join([*systems, *datasets])
    name = _slug(whole)
    digest = hashlib.sha256(json.dumps([list(systems), list(datasets)]).encode()).hexdigest()
    return name if len(name) <= 50 and name == whole else f"{name[:50]}-{digest[:8]}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")


def entries_of_model(model: str, family: str = "") -> tuple[str, dict[str, Any]]:
    """Return the system of a model, and the entries that it needs beside those of the registry.

    Args:
        model: a folder with a checkpoint, an id on the hub, or the name of a registered system or model.
        family: its family, if its files do not say it.

    Raises:
        ConfigError: there is no such model, or its family is not known.
    """
    _refuse_missing(model)
    folder = Path(model).expanduser()
    config = merged()
    entry: dict[str, Any] = {}
    name = model
    if is_folder(folder):
        entry = _of_folder(folder.resolve(), family)
        name = folder.resolve().name
        family = entry["family"]
    elif "/" in model and not model.startswith((".", "/", "~")):
        if not family:  # from mteb
            return model, {}
        entry = {"checkpoint": model, "revision": "resolve", "family": family}
        name = model.rpartition("/")[2]
        entry |= {"similarity": _taken_similarity(model, None)} if family == "dense" else {}
    elif model in config.systems:
        return model, {}
    elif model in config.models:
        family = config.models[model].family
    else:
        near = nearest(model, {*config.systems, *config.models})
        raise ConfigError(f"--model: {model!r} is no folder, no registered model, and no id owner/name{near}")
    taken = {*config.systems, *config.models, *(name.removeprefix("bm25+") for name in config.systems)}
    name = _free_name(name, taken) if entry else name
    system = name
    parts = {"retriever": name}
    if family in families_with_role("reranker"):
        system = f"bm25+{name}"
        parts = {"first_stage": "bm25", "reranker": name}
    return system, {**({"models": {name: entry}} if entry else {}), "systems": {system: parts}}


def _refuse_missing(text: str) -> None:
    """Raise ConfigError if a text is the path of a folder that there is not."""
    if text.startswith((".", "/", "~")) and not is_folder(Path(text).expanduser()):
        raise ConfigError(f"there is no folder {text}")


def is_own_collection(row: str) -> bool:
    """Tell whether a row is a folder; a registered dataset is named without a slash."""
    return is_folder(Path(row).expanduser()) and ("/" in row or row not in merged().datasets)


def entries_of_collection(folder: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the entries of the dataset in a folder in BEIR layout.

    Raises:
        ConfigError: the folder has no qrels, or those of several splits and none called test.
    """
    path = Path(folder).expanduser().resolve()
    known = splits(path)
    if "test" not in known and len(known) != 1:
        has = f"has qrels of {' and '.join(known)}, and none of test" if known else lack_of_qrels(path, "test")
        raise ConfigError(f"{path} needs relevance judgements in qrels/test.tsv: it {has}")
    config = merged()
    name = _free_name(path.name, {*config.datasets, *config.corpora})
    split = "test" if "test" in known else known[0]
    if split != "test":
        warn(f"{path} {lack_of_qrels(path, 'test')}: its scores are those of qrels/{split}.tsv")
    dataset = {"corpus": name, "split": split}
    return name, {"corpora": {name: {"source": "local", "path": str(path)}}, "datasets": {name: dataset}}


def _free_name(text: str, taken: Collection[str]) -> str:
    """Return a name for an entry: what messages, tables and paths call it."""
    name = _slug(text)[:60] or "mine"
    return f"my-{name}" if name in taken else name


def _of_folder(folder: Path, family: str) -> dict[str, Any]:
    """Return the entry of a checkpoint in a folder, as its own files describe it."""
    with files.reading(folder):
        modules = saved.modules(folder)
        config = saved.read(folder / "config.json")
        stated = saved.settings(folder)
    if not (modules or config):
        raise ConfigError(f"--model: {folder} has neither config.json nor modules.json: it is no checkpoint")
    types = {module["type"].rpartition(".")[2] for module in modules}
    architectures = config.get("architectures") or []
    similarity = stated.get("similarity_fn_name") or ("cosine" if "Normalize" in types else None)
    of_class = _OF_CLASS.get(str(stated.get("model_type")), "")
    family = family or of_class or _seen_family(types, architectures, similarity)
    if not family:
        raise ConfigError(
            f"--model: the files of {folder} do not say its family ({', '.join(architectures) or 'no architectures'}); "
            "add --family dense (or another family of docs/models.md)"
        )
    entry: dict[str, Any] = {"family": family, "path": str(folder)}
    # Of prompts with other names, the entry must say which one is meant: the fetch asks.
    prompts = {name for name, text in (stated.get("prompts") or {}).items() if text}
    if prompts and prompts <= {"query", "document"} and not stated.get("default_prompt_name"):
        entry |= {"prompts": {"own": True}} if family in ("dense", "sparse") else {}
    return entry | ({"similarity": _taken_similarity(folder, similarity)} if family == "dense" else {})


def _seen_family(types: set[str], architectures: Sequence[str], similarity: str | None) -> str:
    """Return the family that modules, architectures and similarity of a checkpoint show, or an empty string."""
    signs = {
        "late-interaction": similarity == "MaxSim" or any(name.startswith("HF_ColBERT") for name in architectures),
        "sparse": types & {"SpladePooling", "MLMTransformer"},
        "dense": "Pooling" in types,
        "cross-encoder": any(name.endswith("ForSequenceClassification") for name in architectures),
    }
    return next((name for name, is_seen in signs.items() if is_seen), "")


def _taken_similarity(model: str | Path, stated: str | None) -> str:
    """Return the similarity for a dense model's entry; say so if the model states none."""
    if not stated:
        say(f"{model} states no similarity: vectors are compared by cosine, as in sentence-transformers and mteb.")
    return similarity_of(stated)
