"""Export an evaluation set to one folder that beir, mteb, Hugging Face's datasets and ir_datasets read."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from ..collections.sources import LocalSource
from ..core import files
from ..core.checkout import full_version
from ..core.errors import BeirgridError
from .evaluation_set import EvaluationSet, Version, write_json_lines


def write(made: EvaluationSet, output: Path) -> Version:
    """Write the newest version of a set and return it.

    The folder has ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv`` (BEIR), ``qrels/test.trec`` (TREC, which
    ir_datasets reads), ``qrels/test.jsonl`` and ``README.md``, a dataset card whose header lists the files for mteb.
    Names of judges are not exported.

    Raises:
        BeirgridError: the folder exists, or the set has no version.
        DataError: a file of the set is damaged.
    """
    if not made.description.versions:
        raise BeirgridError(f"{made.folder} has no version of its qrels yet: beirgrid set accept makes one")
    if output.exists():
        raise BeirgridError(f"{output} exists already: name a new folder")
    version = made.description.versions[-1]
    grades = made.qrels(version.number)
    with files.atomic(output, directory=True) as folder:
        shutil.copyfile(made.folder / "corpus.jsonl", folder / "corpus.jsonl")
        # Loaders expect the same keys in each line. The frequency of a query in a log stays private.
        queries = LocalSource(made.corpus).queries(made.dataset)
        rows = ({"_id": query.id, "text": query.text, "metadata": {"synthetic": query.synthetic}} for query in queries)
        write_json_lines(folder / "queries.jsonl", rows)
        (folder / "qrels").mkdir()
        shutil.copyfile(made.folder / f"versions/{version.number}.tsv", folder / "qrels/test.tsv")
        judged = [(query, document, grade) for query, of in grades.items() for document, grade in of.items()]
        trec = (f"{query} 0 {document} {grade}\n" for query, document, grade in judged)
        (folder / "qrels/test.trec").write_text("".join(trec), encoding="utf-8")
        # Hugging Face's datasets reads a folder in one format. A .tsv would make it parse JSON as CSV.
        keys = ("query-id", "corpus-id", "score")
        write_json_lines(folder / "qrels/test.jsonl", (dict(zip(keys, row, strict=True)) for row in judged))
        (folder / "README.md").write_text(_card(made, version), encoding="utf-8")
    return version


def _card(made: EvaluationSet, version: Version) -> str:
    """Format the dataset card. Hugging Face's datasets reads its header."""
    about = made.description
    files_of = {"default": "qrels/test.jsonl", "corpus": "corpus.jsonl", "queries": "queries.jsonl"}
    configs = [
        {"config_name": name, "data_files": [{"split": "test" if name == "default" else name, "path": path}]}
        for name, path in files_of.items()
    ]
    header = {"pretty_name": about.name, "task_categories": ["text-retrieval"], "configs": configs}
    scale = "\n".join(f"- {grade}: {meaning}" for grade, meaning in sorted(about.grades.items()))
    return f"""\
---
{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---

# {about.name}

{about.documents.get("number", 0):,} documents. {version.judgements:,} judgements of {version.queries:,} queries.
Version {version.number} of {version.date}, {version.by} ({version.resolution}).
{"A model wrote the queries: they are synthetic." if about.queries.get("synthetic") else ""}
Made by beirgrid {full_version()}.

## Licence

{about.licence or "Not stated. Ask the owner of the documents."}

## Guideline

{version.guideline}

{scale}

## Files

`corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv` are BEIR's layout. `qrels/test.jsonl` has the same judgements for
MTEB, and `qrels/test.trec` for ir_datasets and trec_eval.
"""
