"""Export a Workflow Run RO-Crate: the workflow, its inputs and outputs, and their provenance as linked data."""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core import files
from ..core.checkout import CHECKOUT
from ..core.errors import BeirgridError, DataError
from ..core.version import full_version
from .finished import SOFTWARE, Directory, ExportedCell, GridName, Output, finished

if TYPE_CHECKING:
    from rocrate.model.entity import Entity
    from rocrate.rocrate import ROCrate

# The profiles of version 0.5, and the specifications that they extend, for one run of a workflow.
_RO_CRATE = "1.1"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
_WORKFLOW = "workflow/Snakefile"
# Files of the workflow in the checkout.
_SOURCES = ("Snakefile", "workflow", "config", "envs", "profiles", "requirements", "LICENSE", "CITATION.cff")
_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".gz": "application/gzip",
    ".html": "text/html",
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".py": "text/x-python",
    ".tsv": "text/tab-separated-values",
    ".yaml": "application/yaml",
}


def export_ro_crate(
    *,
    output: Output,
    directory: Directory = Path(),
    grid: GridName = "",
    licence: Annotated[str, "URL of the licence of the crate"] = "https://spdx.org/licenses/Apache-2.0",
    name: Annotated[str, "name of the crate"] = "",
    author: Annotated[str, "name of the person who ran the grid"] = "",
    orcid: Annotated[str, "URL of the author's ORCID"] = "",
) -> None:
    """Write a Workflow Run RO-Crate: the workflow, the records of all steps, runs, scores and tables.

    Corpora, checkpoints, vectors and indexes are not included; the records name them with their hashes.

    Raises:
        DataError: there is no finished cell, a file is damaged, or the output is not empty.
        BeirgridError: the package rocrate is not installed.
    """
    try:
        from rocrate.rocrate import ROCrate
    except ImportError:
        raise BeirgridError("the package rocrate is not installed: pip install rocrate") from None
    if orcid and not re.fullmatch(r"https://orcid\.org/([0-9]{4}-){3}[0-9]{3}[0-9X]", orcid):
        raise DataError(f"--orcid: {orcid!r} is not of the form https://orcid.org/0000-0002-1825-0097")
    found, cells = finished(directory, grid, output)
    records = [step.record for cell in cells for step in cell.steps] + [cell.evaluation for cell in cells]
    ends = [(datetime.datetime.fromisoformat(record["finished"]), record["seconds"]) for record in records]
    began = min(end - datetime.timedelta(seconds=seconds) for end, seconds in ends)
    ended = max(end for end, _ in ends)
    crate = ROCrate(version=_RO_CRATE)
    crate.name = name or f"{grid or 'Grid'} ({len(cells)} cells, {ended:%Y-%m-%d})"
    crate.description = _description(cells)
    crate.license = crate.add_jsonld({"@id": licence, "@type": "CreativeWork", "name": licence.rpartition("/")[2]})
    crate.datePublished = datetime.datetime.now(datetime.UTC)
    workflow = _add_workflow(crate)
    inputs, outputs = _add_results(crate, found.folder, found.summary, cells)
    action = crate.add_action(
        workflow,
        object=inputs,
        result=outputs,
        properties={
            "name": f"Run of {crate.name}",
            "description": crate.description,
            "startTime": began.isoformat(timespec="seconds"),
            "endTime": ended.isoformat(timespec="seconds"),
            "actionStatus": "http://schema.org/CompletedActionStatus",
        },
    )
    if author:
        person = crate.add_jsonld({"@id": orcid or "#author", "@type": "Person", "name": author})
        crate.root_dataset["author"] = person
        action["agent"] = person
    _add_readme(crate)
    crate.root_dataset["mentions"] = action
    crate.root_dataset["conformsTo"] = [
        crate.add_jsonld({"@id": url, "@type": "CreativeWork", "name": name, "version": version})
        for url, (name, version) in _PROFILES.items()
    ]
    with files.atomic(output, directory=True) as folder:
        crate.write(folder)


def _description(cells: Iterable[ExportedCell]) -> str:
    systems = dict.fromkeys(cell.result.system for cell in cells)
    datasets = dict.fromkeys(cell.result.dataset for cell in cells)
    return (
        f"Retrieval experiments by {SOFTWARE}: {', '.join(systems)} on {', '.join(datasets)}. Runs, scores per query, "
        "tables, and a record of every step."
    )


def _add_workflow(crate: ROCrate) -> Entity:
    """Add the workflow's files, and return its main file."""
    workflow = crate.add_workflow(
        CHECKOUT / _WORKFLOW,
        _WORKFLOW,
        main=True,
        lang="snakemake",
        properties={"name": "beirgrid", "version": full_version(), "description": "The BEIR benchmark as a workflow"},
    )
    workflow["license"] = crate.license
    workflow["encodingFormat"] = "text/plain"
    for path in _sources():
        if path != CHECKOUT / _WORKFLOW:
            _add_file(crate, path, path.relative_to(CHECKOUT))
    return workflow


def _sources() -> Iterator[Path]:
    """Yield the workflow's files in the checkout, without compiled Python files."""
    for name in _SOURCES:
        place = CHECKOUT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _add_readme(crate: ROCrate) -> None:
    text = (
        f"# {crate.name}\n\n{crate.description}\n\n`ro-crate-metadata.json` describes each file. The `.json` record "
        "beside an artifact holds the command that computed it, its settings and the versions of packages. The "
        "workflow is `workflow/Snakefile`.\n"
    )
    about = {"about": {"@id": "./"}, "encodingFormat": "text/markdown", "name": "README.md"}
    crate.add_file(io.StringIO(text), "README.md", properties=about)


def _add_file(crate: ROCrate, path: Path, place: Path) -> Entity:
    media_type = _MEDIA_TYPES.get(place.suffix, "text/plain")
    properties = {"name": place.name, "contentSize": str(path.stat().st_size), "encodingFormat": media_type}
    return crate.add_file(path, place.as_posix(), properties=properties)


def _add_results(
    crate: ROCrate, folder: Path, summary: Path | None, cells: Iterable[ExportedCell]
) -> tuple[list[Entity], list[Entity]]:
    summaries = [summary] if summary else sorted(folder.glob("grids/*/grid.json"))
    given = {*summaries, *(step.path for cell in cells for step in cell.steps_of("fetch", "fetch_dataset"))}
    left = {path for grid in summaries for path in grid.parent.rglob("*") if path.is_file()}
    left |= {step.path for cell in cells for step in cell.steps}
    left |= {path for cell in cells for path in (cell.result.run, cell.result.scores, cell.result.per_query)}

    def added(paths: Iterable[Path]) -> list[Entity]:
        return [_add_file(crate, path, Path("results") / path.relative_to(folder)) for path in sorted(paths)]

    return added(given), added(left - given)
