"""Export runs and qrels in TREC format, optionally with an ir_metadata header (Breuer et al., SIGIR 2022)."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import yaml

from ..collections import qrels
from ..core import files
from ..core.errors import DataError
from .finished import SOFTWARE, Directory, ExportedCell, ExportedStep, GridName, Output, finished

SCHEMA_VERSION = 0.1
# trec_eval's names of our metrics, which the schema requires.
_MEASURES = {"ndcg": "ndcg_cut_{k}", "recall": "recall_{k}", "map": "map_cut_{k}", "p": "P_{k}"}
# Packages that count as retrieval toolkits in the schema.
_TOOLKITS = ("pyserini", "faiss-cpu")


def export_trec(*, output: Output, directory: Directory = Path(), grid: GridName = "") -> None:
    """Write the runs of a grid as plain TREC files, and the qrels.

    Args:
        output: folder to write ``runs/{dataset}/{system}.trec`` and ``qrels/{dataset}.txt`` to; new or empty.
        directory: folder in which the grid ran, or its results folder.
        grid: name of the grid; all finished cells of the folder unless given.

    Raises:
        DataError: there is no finished cell, a file is damaged, or the output is not empty.
    """
    _, cells = finished(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            _write_run(folder, cell, header=() if _has_lines(cell.result.run) else header_lines({}))
        _write_qrels(folder, cells)


def export_ir_metadata(
    *,
    output: Output,
    directory: Directory = Path(),
    grid: GridName = "",
    metadata: Annotated[Path | None, "YAML file with more entries of the header, such as actor"] = None,
) -> None:
    """Write the runs of a grid as TREC files with an ir_metadata 0.1 header, and the qrels.

    Raises:
        DataError: there is no finished cell, a file is damaged, or the output is not empty.
    """
    more = _read_more(metadata) if metadata else {}
    _, cells = finished(directory, grid, output)
    with files.atomic(output, directory=True) as folder:
        for cell in cells:
            _write_run(folder, cell, header=header_lines({**describe(cell), **more}))
        _write_qrels(folder, cells)


def _read_more(path: Path) -> dict[str, Any]:
    with files.reading(path):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise DataError(f"{path} must map ir_metadata's components, such as actor, to their entries")
    return found


def _has_lines(run: Path) -> bool:
    """Tell whether a run ranks any document. An empty file would look truncated, so it gets an empty header."""
    with gzip.open(run, "rb") as stream:
        return bool(stream.read(1))


def _write_run(folder: Path, cell: ExportedCell, header: Iterable[str]) -> None:
    path = folder / "runs" / cell.result.dataset / f"{cell.result.system}.trec"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream, gzip.open(cell.result.run, "rb") as run:
        stream.writelines(f"{line}\n".encode() for line in header)
        shutil.copyfileobj(run, stream)


def _write_qrels(folder: Path, cells: Iterable[ExportedCell]) -> None:
    (folder / "qrels").mkdir()
    for dataset, cell in {cell.result.dataset: cell for cell in cells}.items():
        with (folder / "qrels" / f"{dataset}.txt").open("w", encoding="utf-8") as stream:
            stream.writelines(f"{query} 0 {document} {grade}\n" for query, document, grade, *_ in _judgements(cell))


def _judgements(cell: ExportedCell) -> Iterator[qrels.Judgement]:
    with files.reading(cell.qrels):
        yield from qrels.judgements(cell.qrels)


def header_lines(metadata: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a header."""
    text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=2**20)
    yield "# ir_metadata.start"
    yield from (f"# {line}" for line in text.splitlines())
    yield "# ir_metadata.end"


def describe(cell: ExportedCell) -> dict[str, Any]:
    """Return the metadata of a run from the records of its steps, by PRIMAD component."""
    if not (made := cell.steps_of("retrieve", "retrieve_program", "fetch_run", "rerank", "fuse")):
        raise DataError(f"no record of {cell.result.system} on {cell.result.dataset} describes how its run was made")
    return {
        "schema-version": SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": cell.result.system,
        "platform": _platform(cell),
        "research goal": {"evaluation": {"reported measures": [*map(_measure, cell.scores.means)]}},
        "implementation": {
            "executable": {"cmd": made[-1].record.get("command", "")},
            "source": {"lang": ["Python", "Java"], "name": SOFTWARE},
        },
        "method": {
            "automatic": True,
            "score ties": "reverse alphabetical order",
            "indexing": _plain(
                {
                    key: value
                    for step in cell.steps_of("encode", "index", "index_program")
                    for key, value in _settings(step).items()
                }
            ),
            "retrieval": [_component(cell, step) for step in made],
        },
        "actor": {},
        "data": {"test collection": _collection(cell)},
    }


def _platform(cell: ExportedCell) -> dict[str, Any]:
    records = [*(step.record for step in cell.steps), cell.evaluation]
    packages = sorted({f"{name}=={version}" for record in records for name, version in record["packages"].items()})
    toolkits = [package for package in packages if package.partition("==")[0] in _TOOLKITS]
    devices = sorted({record["facts"].get("device", "cpu") for record in records} - {"cpu"})
    hardware: dict[str, Any] = {"cpu": {"number of cores": max(record["cpus"] for record in records)}}
    if devices:
        hardware["gpu"] = {"model": ", ".join(devices)}
    return {
        "hardware": hardware,
        "software": {"libraries": {"python": packages}, "retrieval toolkit": [SOFTWARE.replace(" ", "=="), *toolkits]},
    }


def _measure(metric: str) -> str:
    name, _, k = metric.partition("@")
    return _MEASURES[name].format(k=k) if name in _MEASURES else metric


def _settings(step: ExportedStep) -> dict[str, Any]:
    """Return the settings of a step, including facts that act as settings."""
    facts = {name: step.record["facts"][name] for name in ("precision",) if name in step.record["facts"]}
    return {**step.record["settings"], **facts}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Convert values to the schema's parameters: scalars, or JSON text."""
    scalar = (str, int, float, bool)
    return {
        key: value if isinstance(value, scalar) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
        if value is not None
    }


def _component(cell: ExportedCell, step: ExportedStep) -> dict[str, Any]:
    settings = _plain(_settings(step))
    method = " ".join(filter(None, (step.stage, settings.pop("method", ""))))  # of a fusion
    component = {"name": step.system, "method": method, **settings}
    if model := step.option("--checkpoint"):
        component["model"] = Path(model[0]).parent.name
    if first := step.option("--first-stage"):
        component["reranks"] = Path(first[0]).parent.name
        component["model"] = Path(step.option("--scores")[0]).parent.parent.name
    if parts := step.option("--runs"):
        component["interpolates"] = [Path(part).parent.name for part in parts]
    return component


def _collection(cell: ExportedCell) -> dict[str, Any]:
    record = cell.dataset_record
    settings, source = record["settings"], record["settings"].get("source", {})
    found = {"name": cell.result.dataset, "source": source.get("id") or source.get("path", "")}
    if source.get("source") == "ir_datasets":
        found["ir_datasets"] = settings.get("id", "")
    sums = record["facts"].get("sha256", {})
    return found | {f"sha256 of {name}": digest for name, digest in sums.items()}
