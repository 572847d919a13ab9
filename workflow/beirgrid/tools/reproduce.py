"""``beirgrid reproduce``: run a system on datasets with published values, and report which are reproduced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator

from ..config.entries import Config
from ..config.load import merged
from ..config.names import local_name
from ..core import paths
from ..core.errors import BeirgridError, nearest
from ..graph.summaries import PUBLISHED
from ..measures import metric_key, written
from ..results import published
from ..results.answer_files import read_answers
from .run import Snakemake, configuration, entries_of_model, keep_grid

# Verdicts that are not deviations.
_AGREES = ("reproduced", "close", published.OTHER_PROTOCOL)
# Columns of the verdicts that may tell why a score is not the published one.
_ABOUT = ("checkpoints", "commit", "precision", "mteb", "dataset_revision", "note", "protocol")


def reproduce(
    model: Annotated[str, "a system, or a model by its id on the hub"],
    benchmark: Annotated[str, "a benchmark or dataset"] = "",
    *,
    metric: Annotated[str, AfterValidator(metric_key), "metric to compare"] = "ndcg@10",
    how: Snakemake,
) -> int:
    """Run a system where values of it are published, and compare; return 0 if each is reproduced or close.

    Raises:
        BeirgridError: nothing is published of the model on the benchmark.
    """
    system, entries = entries_of_model(model)
    rows = _datasets(system, benchmark, metric, entries)
    content = entries | configuration([system], rows, [metric])
    name = content["grid"]["name"] = f"reproduce-{content['grid']['name']}"
    path = keep_grid(content, how.directory)
    status = how.run([path])
    if status or {"-n", "--dry-run", "--dryrun"} & {*how.snakemake}:
        return status
    verdicts = read_answers(how.directory / paths.TABLES.format(grid=name)).verdicts
    of_rows = verdicts["dataset"].isin(rows) | (verdicts["class"] == published.MEAN)
    own = verdicts[(verdicts["system"] == local_name(system)) & of_rows]
    print(*report(own), sep="\n")
    return int(bool((~own["verdict"].isin(_AGREES)).any()))


def _datasets(system: str, benchmark: str, metric: str, entries: Mapping[str, Any]) -> list[str]:
    """Return the datasets with published values of a system, those of a benchmark alone if one is named.

    Args:
        entries: those that the system needs beside the registered ones.
    """
    config = merged(more=entries)
    values = _values_of(system, config)
    published_on = {value.dataset for value in values if value.metric == metric and not value.protocol}
    listed: Iterable[str] = config.datasets
    if benchmark:
        grid = {"name": "asked", "systems": ["bm25"], "datasets": [benchmark]}
        config = merged(more={"grid": grid})
        listed = config.grid.datasets
    asked = [name for row in listed for name in (row, *config.datasets[row].mean_of)]
    in_means = {part for row in published_on & {*config.datasets} for part in config.datasets[row].mean_of}
    if rows := [*dict.fromkeys(row for row in asked if row in published_on - in_means)]:
        return rows
    raise BeirgridError(
        f"config/published has no {written(metric)} of {system} on {benchmark or 'registered datasets'}"
    )


def _values_of(system: str, config: Config) -> list[published.Published]:
    """Return the published values of a system; raise BeirgridError if there are none."""
    values = list(published.read(PUBLISHED, config.tolerances))
    names = published.names_of(config, system) if system in config.systems else [local_name(system)]
    own = [value for _, value in published.of_systems(values, {system: names})]
    if not own:
        known = {name for value in values for name in (value.system, value.checkpoint) if name}
        raise BeirgridError(f"config/published has no values of {system!r}{nearest(system, known)}")
    return own


def report(verdicts: pd.DataFrame) -> Iterator[str]:
    """Yield a table of verdicts, what is known of both sides where a score is not reproduced, and counts.

    Args:
        verdicts: rows of the table ``verdicts``.
    """
    columns = ["dataset", "value", "published", "difference", "tolerance", "verdict"]
    yield from verdicts[columns].to_string(index=False, float_format="%.4f", na_rep="").splitlines()
    rows: Any = verdicts[verdicts["verdict"] != "reproduced"].to_dict("records")
    for row in rows:
        yield f"\n{row['dataset']}: {row['verdict']} from {row['source'] or 'no source'}"
        yield from (f"  {name}: {row[name]}" for name in _ABOUT if row[name])
    counts = verdicts["verdict"].value_counts()
    yield "\n" + ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
