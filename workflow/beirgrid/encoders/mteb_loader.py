"""Models that mteb's own loaders open (``engine: mteb``): slower than beirgrid's engine, and as mteb computes them.

A loader gets the folder of the fetched checkpoint in place of the model's name, and no network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import CrossEncoder, DenseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models import saved
from .cutting import Beginning
from .engine import parts

# Texts or pairs that a loader gets at a time, and those that it computes at a time.
_TEXTS, _BATCH = 1024, 32


class MtebModel:
    """What both kinds of models share.

    Attributes:
        precision: what records say: each loader has its own precision.
        model: mteb's wrapper of the model.
    """

    precision = "that of mteb's loader"

    def __init__(self, folder: Path, entry: DenseModel | CrossEncoder, runtime: Runtime) -> None:
        assert entry.checkpoint, "the configuration is checked"
        self.runtime = runtime
        self.name = entry.checkpoint
        saved.refuse_outside(folder)
        _stay_offline()
        import mteb

        meta = mteb.get_model_meta(self.name)
        arguments = dict(meta.loader_kwargs)
        if not entry.trust_remote_code:
            arguments.pop("trust_remote_code", None)
        try:
            meta._check_requirements()
            assert meta.loader is not None, "the configuration is checked"
            self.model: Any = meta.loader(str(folder), revision=meta.revision, device=runtime.device, **arguments)
        except Exception as error:  # a loader may raise anything
            raise DataError(
                f"mteb's loader of {self.name} cannot open {folder}, which it does without a network: "
                f"{type(error).__name__}: {error}"
            ) from error

    def facts(self) -> dict[str, str]:
        """Return device and precision, for the record of an artifact, and the version of mteb."""
        return {"device": self.runtime.hardware, "precision": self.precision, "loader": f"mteb {version('mteb')}"}

    def read(self, texts: list[str]) -> list[list[int]]:
        """Return what tells texts apart: a loader does not say which tokens it reads."""
        return [list(text.encode()) for text in texts]


class MtebEncoder(MtebModel):
    """One vector per text (``protocol.Encoder``): float32 [texts, dimension], of length 1 for cosine similarity."""

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime) -> None:
        super().__init__(folder, entry, runtime)
        self.task = _task(entry.task)
        self.normalise = entry.similarity == "cosine"
        self.dimension = self._encoded(["a"], "document").shape[1]

    def encode_documents(self, texts: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of documents, in the order of the texts."""
        return self._vectors(texts, "document", progress)

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of queries, in the order of the texts."""
        return self._vectors(texts, "query", progress)

    def encode_blocks(self, blocks: Iterable[list[str]], *, progress: Progress | None = None) -> Iterator[np.ndarray]:
        """Yield the vectors of each block of documents."""
        for texts in blocks:
            yield self.encode_documents(texts, progress=progress)

    def _vectors(self, texts: list[str], role: str, progress: Progress | None) -> np.ndarray:
        found = [np.empty((0, self.dimension), np.float32)]
        for part in parts(texts, _TEXTS):
            found.append(self._encoded(part, role))
            if progress:
                progress.add(len(part))
        vectors = np.concatenate(found)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if self.normalise else vectors

    def _encoded(self, texts: list[str], role: str) -> np.ndarray:
        from mteb.types import PromptType

        vectors = self.model.encode(
            _loaded(text=texts), **_of_task(self.task), prompt_type=PromptType(role), batch_size=_BATCH
        )
        return _numbers(vectors)


class MtebScorer(MtebModel):
    """One score per (query, document) pair (``protocol.Scorer``), as mteb's wrapper gives it."""

    def begin(self, text: str, *, counted: bool = True) -> Beginning:
        """Return the whole text: a loader cuts texts itself."""
        return Beginning(text)

    def score_beginnings(
        self, queries: list[Beginning], documents: list[Beginning], *, progress: Progress | None = None
    ) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs]."""
        scores = [np.empty(0, np.float32)]
        for part in parts(list(zip(queries, documents, strict=True)), _BATCH):
            asked, read = [query.text for query, _ in part], [document.text for _, document in part]
            found = self.model.predict(_loaded(text=asked, query=asked), _loaded(text=read), **_of_task(_task("")))
            scores.append(_numbers(found).reshape(len(part)))
            if progress:
                progress.add(len(part))
        return np.concatenate(scores)

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs]."""
        return self.score_beginnings([*map(Beginning, queries)], [*map(Beginning, documents)], progress=progress)


def _stay_offline() -> None:
    """Keep the hub's client from the network, also if it is imported already."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = True


def _task(name: str) -> Any:
    """Return mteb's facts of a task or, without a name, of retrieval in general."""
    import mteb
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    if name:
        return mteb.get_task(name).metadata
    changed = {"name": "Retrieval", "prompt": AbsTaskRetrieval.abstask_prompt}
    return mteb.get_task("NQ").metadata.model_copy(update=changed)


def _of_task(task: Any) -> dict[str, Any]:
    return {"task_metadata": task, "hf_split": "test", "hf_subset": "default", "show_progress_bar": False}


def _loaded(**columns: list[str]) -> Any:
    """Return texts as mteb hands them to a model."""
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict(columns), batch_size=_BATCH)


def _numbers(found: Any) -> np.ndarray:
    if hasattr(found, "cpu"):
        found = found.detach().cpu().float().numpy()
    return np.asarray(found, np.float32)
