"""Run grids from Python: ``beirgrid.grid`` and ``beirgrid.evaluate``. Snakemake runs in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.checkout import is_file
from ..core.errors import BeirgridError
from ..measures import STANDARD, metric_key
from ..results.scores import load_scores
from ..tools.run import Snakemake, configuration, keep_grid


def grid(
    *,
    systems: Sequence[str],
    datasets: Sequence[str],
    metrics: Sequence[str] = (),
    name: str = "",
    directory: str | Path = ".",
    profile: str = "local",
    options: Sequence[str] = (),
) -> pd.DataFrame:
    """Run a grid in a directory, which keeps finished steps, and return its scores.

    Args:
        systems: registered systems, and models by their id on the hub.
        metrics: metrics, name@k; the standard ones unless given.
        name: name of the grid; by default, made of systems and datasets.
        profile: Snakemake's profile, such as ``slurm``.
        options: more options of Snakemake, such as ``["--cores", "4"]``.

    Returns:
        columns ``system``, ``dataset``, ``metric``, ``value`` and ``queries``, as ``load_scores``.

    Raises:
        ConfigError: a name is not registered.
        BeirgridError: a job failed.

    Example:
        >>> beirgrid.grid(systems=["bm25", "minilm"], datasets=["scifact"])  # doctest: +SKIP
    """
    return _run(configuration(systems, datasets, metrics, name), directory, profile, options)


def evaluate(
    model_or_run: Any,
    dataset: str,
    *,
    metrics: Sequence[str] = (),
    family: str = "",
    directory: str | Path = ".",
    **how: Any,
) -> pd.DataFrame:
    """Evaluate a model, or a run of other software, on a registered dataset and return the scores.

    Args:
        model_or_run: the folder of a checkpoint, a model's id on the hub, the name of a registered system or model, a
            file in TREC format, or an object that encodes texts, such as a SentenceTransformer (``Evaluator``).
        metrics: metrics, name@k; the standard ones unless given.
        family: family of the model, if its files do not say it.
        how: ``profile`` and ``options``, as for ``grid``.

    Returns:
        columns ``system``, ``dataset``, ``metric``, ``value`` and ``queries``, as ``load_scores``.

    Raises:
        ConfigError: there is no such model or dataset.
        BeirgridError: a job failed.

    Example:
        >>> beirgrid.evaluate("./my-model", "scifact")  # doctest: +SKIP
    """
    if not isinstance(model_or_run, str | os.PathLike):
        from .evaluator import Evaluator

        return Evaluator(dataset, metrics=metrics or STANDARD, directory=directory).table(model_or_run)
    path = Path(model_or_run).expanduser()
    if is_file(path):
        system = path.name.partition(".")[0]
        content = configuration([system], [dataset], metrics) | {"systems": {system: {"run": str(path.resolve())}}}
    else:
        content = configuration([], [dataset], metrics, model=str(model_or_run), family=family)
    return _run(content, directory, **how)


def _run(
    content: dict[str, Any], directory: str | Path, profile: str = "local", options: Sequence[str] = ()
) -> pd.DataFrame:
    path = keep_grid(content, Path(directory))
    how = Snakemake(profile=profile, directory=Path(directory), snakemake=("--quiet", "host", "rules", *options))
    if how.run([path]):
        raise BeirgridError(f"the grid did not finish: beirgrid status --directory {directory} shows why")
    scores = load_scores(path.parent)
    metrics = list(map(metric_key, content.get("metrics", ())))
    return scores[scores["metric"].isin(metrics)] if metrics else scores
