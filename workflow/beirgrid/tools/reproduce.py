"""``beirgrid reproduce``: run a system on datasets with published values, and report which are reproduced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator

from ..config import Config
from ..config.entries import HubCorpus, MtebCorpus
from ..config.metric_names import metric_key, written
from ..config.names import local_name
from ..config.registry import mteb_models
from ..core import paths
from ..core.errors import BeirgridError, nearest
from ..pipeline.summaries import PUBLISHED
from ..results import published
from ..results.answers import DONE, read_answers
from .configfiles import merged
from .run import Snakemake, describe, describe_model, keep_grid
from .text import frame_lines

# Verdicts that are not deviations.
_AGREES = ("reproduced", "close", published.OTHER_PROTOCOL)


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
    system, entries = describe_model(model)
    rows = _datasets(system, benchmark, metric)
    content = entries | describe([system], rows, [metric])
    name = content["grid"]["name"] = f"reproduce-{content['grid']['name']}"
    path = keep_grid(content, how.directory)
    status = subprocess.run(how.command([path]), check=False).returncode
    if status or {"-n", "--dry-run", "--dryrun"} & {*how.snakemake}:
        return status
    verdicts = read_answers(how.directory / paths.TABLES.format(grid=name)).verdicts
    of_rows = verdicts["dataset"].isin(rows) | (verdicts["class"] == published.MEAN)
    own = verdicts[(verdicts["system"] == local_name(system)) & of_rows]
    print(*report(own, merged([path])), sep="\n")
    return int(bool((~own["verdict"].isin(_AGREES)).any()))


def _datasets(system: str, benchmark: str, metric: str) -> list[str]:
    """Return the datasets with published values of a system, those of a benchmark alone if one is named."""
    config = merged([])
    values = list(published.read(PUBLISHED, config.tolerances))
    own = [named[name] for value in values if (name := local_name(system)) in (named := value.by_name())]
    if not own:
        known = {name for value in values for name in (value.system, value.checkpoint) if name}
        raise BeirgridError(f"config/published has no values of {system!r}{nearest(system, known)}")
    rows = dict.fromkeys(value.dataset for value in own if value.metric == metric and not value.protocol)
    if benchmark:
        grid = {"name": "asked", "systems": ["bm25"], "datasets": [benchmark]}
        config = merged([], more={"grid": grid})
    listed = config.grid.datasets if benchmark else config.datasets
    asked = [one for row in listed for one in (row, *config.datasets[row].mean_of)]
    parts = {part for row in rows if row in config.datasets for part in config.datasets[row].mean_of}
    rows = dict.fromkeys(row for row in asked if row in rows and row not in parts)  # a part of a mean is in that mean
    if not rows:
        raise BeirgridError(
            f"config/published has no {written(metric)} of {system} on {benchmark or 'registered datasets'}"
        )
    return list(rows)


def report(verdicts: pd.DataFrame, config: Config) -> Iterator[str]:
    """Yield a table of verdicts, what differs from the source where a score is not reproduced, and counts.

    Args:
        verdicts: rows of the table ``verdicts``.
    """
    forms = {"dataset": "", "value": ".4f", "published": ".4f", "difference": "+.4f", "tolerance": ".4f", "verdict": ""}
    yield from frame_lines(verdicts, {name: (name, form) for name, form in forms.items()})
    rows: Any = verdicts.to_dict("records")
    for row in rows:
        if row["verdict"] != "reproduced":
            yield f"\n{row['dataset']}: {row['verdict']} from {row['source'] or 'no source'}"
            yield from (f"  - {text}" for text in differences(row, config))
    counts = verdicts["verdict"].value_counts()
    yield "\n" + ", ".join(f"{number} {verdict}" for verdict, number in counts.items())


def differences(row: dict[str, Any], config: Config) -> Iterator[str]:
    """Yield known and possible differences between a published value and ours, from the source and our records.

    Args:
        row: a row of the table ``verdicts``.
    """
    if row["status"] != DONE:
        yield f"no score: {row['status']}"
        return
    system = config.systems.get(row["system"])
    model = config.models.get(getattr(system, "retriever", None) or getattr(system, "reranker", None) or "")
    corpus = config.corpora.get(config.datasets[row["dataset"]].corpus or "")
    loaded = mteb_models().get(getattr(model, "checkpoint", None) or "")
    theirs = f"; mteb loads {loaded['output']}" if loaded and loaded["output"] else ""
    prompts, length = getattr(model, "prompts", None), getattr(model, "max_length", None)
    revision = corpus.revision if isinstance(corpus, HubCorpus | MtebCorpus) else ""
    here = f"commit {revision}" if revision else f"{corpus.source} {corpus.id}" if corpus else "several collections"
    is_other = "another" in (row["commit"] or "") or (row["checkpoints"] and not row["commit"])
    told = {
        "revision": is_other and f"{row['commit'] or 'the source names no commit'}; here {row['checkpoints']}",
        "prompts": prompts and f"here {prompts.model_dump(exclude_defaults=True)}",
        "length": length and f"texts are cut at {length} tokens here",
        "precision": row["precision"] and f"here {row['precision']}{theirs}",
        "task version": row["mteb"] and f"measured with mteb {row['mteb']}",
        "collection": row["dataset_revision"]
        and not revision.startswith(row["dataset_revision"])
        and f"measured on commit {row['dataset_revision']} of the hub's; here {here}",
        "note": row["note"],
        "protocol": row["protocol"],
    }
    yield from (f"{key}: {text}" for key, text in told.items() if text)
