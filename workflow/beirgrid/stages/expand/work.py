"""Stage expand: predict queries or term weights for the documents of one shard of a corpus, for BM25."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from ...collections import collection
from ...collections.parts import join_parts, read_part, write_part
from ...config.models import QueryGenerator, TermWeightsModel
from ...config.values import Size
from ...core import files, provenance
from ...core.compute import Compute
from ...core.errors import quantity, say
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_model

# Documents per part, which are tokenized and sorted together and written as one row group.
BLOCK = 1024


def expand(
    *,
    model: Annotated[QueryGenerator | TermWeightsModel, Field(discriminator="family")],
    checkpoint: Annotated[Artifact, "folder of the model's checkpoint"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    shard: Annotated[int, "number of the shard, from 0"] = 0,
    shard_size: Annotated[Size, "documents per shard"],
    last: Annotated[bool, "the shard is the last one, which must end with the corpus"] = False,
    compute: Compute,
    output: Annotated[Path, ".parquet to write, a row per document: its queries, or its terms with their frequencies"],
) -> Facts:
    """Expand the documents of one shard of a corpus for BM25.

    Finished parts of a killed attempt are kept beside the output, and the next attempt resumes from there.

    Raises:
        DataError: the shard does not fit the corpus, or the checkpoint does not match the entry.
    """
    start, stop = collection.shard_rows(corpus, shard, shard_size, last)
    runtime = compute.start()
    opened = open_model(checkpoint, model, runtime)
    state = provenance.state_folder(output, precision=opened.precision)
    schema = collection.EXPANSION_SCHEMAS[model.family]
    firsts = range(start, stop, BLOCK)
    parts = {state / f"{first}.parquet": range(first, min(first + BLOCK, stop)) for first in firsts}
    missing = {part: rows for part, rows in parts.items() if read_part(part, schema, len(rows)) is None}
    new = sum(map(len, missing.values()))
    if missing != parts:
        say(f"expand shard {shard}: an earlier attempt finished {quantity(stop - start - new, 'document')}")
    progress = Progress(f"expand shard {shard}", new, "documents")
    for part, of_part in missing.items():
        documents = chain.from_iterable(collection.read_documents(corpus, of_part.start, of_part.stop))
        rows = opened.expansions([document.full_text for document in documents], progress)
        write_part(part, pa.table(rows, schema))
    join_parts(parts, output, schema)
    shutil.rmtree(state)
    return {
        **opened.facts(),
        "documents": stop - start,
        "rows": [start, stop],
        "documents_expanded": progress.done,
        "documents_per_second": round(progress.rate if progress.done else 0.0, 2),
        "bytes": files.size(output),
    }
