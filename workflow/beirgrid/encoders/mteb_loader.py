"""Models opened by mteb's own loaders (``engine: mteb``): slower than our engine, with exactly mteb's computation.

A loader gets the fetched checkpoint's folder in place of the model's name, and no network access.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..config.models import CrossEncoder, DenseModel, LateInteractionModel, SparseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models import saved
from ..search.maxsim import TokenVectors
from .protocol import DenseVectors, OpenModel, Scorer, SparseRows, TokenRows, parts, unit_length

Loaded = DenseModel | SparseModel | LateInteractionModel | CrossEncoder
# Pairs per call of a loader, and its batch size.
_BATCH = 32
# How far the length of a token's vector may be from 1, where a loader computes in bfloat16.
_LENGTH = 0.02


class MtebModel(OpenModel):
    """A model that mteb's loader opened.

    Attributes:
        precision: a text for records, because each loader chooses its own precision.
        model: mteb's wrapper of the model.
    """

    precision = "that of mteb's loader"

    def __init__(self, folder: Path, entry: Loaded, runtime: Runtime) -> None:
        name = entry.checkpoint
        assert name, "the configuration is checked"
        self.runtime = runtime
        saved.refuse_outside(folder)
        _stay_offline()
        import mteb

        meta = mteb.get_model_meta(name)
        arguments = dict(meta.loader_kwargs)
        if not entry.trust_remote_code:
            arguments.pop("trust_remote_code", None)
        try:
            meta._check_requirements()
            assert meta.loader is not None, "the configuration is checked"
            self.model: Any = meta.loader(str(folder), revision=meta.revision, device=runtime.device, **arguments)
        except Exception as error:  # loaders may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"mteb's loader of {name} cannot open {folder} without network access: {reason}") from error
        split = {"hf_split": "test", "hf_subset": "default", "show_progress_bar": False}
        self.options = {"task_metadata": _task(entry.task), **split}

    def facts(self) -> dict[str, str]:
        """Return device, precision and mteb's version for the record of an artifact."""
        return {"device": self.runtime.hardware, "precision": self.precision, "loader": f"mteb {version('mteb')}"}

    def output(self, texts: list[str], role: str) -> Any:
        """Return what mteb's wrapper makes of texts. Those of token vectors name the method ``_encode``."""
        from mteb.types import PromptType

        encode = getattr(self.model, "encode", None) or self.model._encode
        return encode(_loaded(text=texts), prompt_type=PromptType(role), batch_size=_BATCH, **self.options)


class MtebDense(MtebModel, DenseVectors):
    """An encoder of one vector per text, of length 1 for cosine similarity."""

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime) -> None:
        super().__init__(folder, entry, runtime)
        self.unit = entry.similarity == "cosine"
        self.dimension = self.encoded(["a"], "document").shape[1]

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of one block."""
        vectors = _numbers(self.output(texts, role))
        return unit_length(vectors) if self.unit else vectors


class MtebSparse(MtebModel, SparseRows):
    """An encoder of one weight per term."""

    def __init__(self, folder: Path, entry: SparseModel, runtime: Runtime) -> None:
        super().__init__(folder, entry, runtime)
        self.dimension = self.encoded(["a"], "document").shape[1]

    def encoded(self, texts: list[str], role: str) -> scipy.sparse.csr_matrix:
        """Return the weights of one block."""
        weights = self.output(texts, role)
        if not getattr(weights, "is_sparse", False):
            return scipy.sparse.csr_matrix(_numbers(weights))
        weights = weights.detach().coalesce()
        places = tuple(weights.indices().cpu().numpy())
        return scipy.sparse.csr_matrix((_numbers(weights.values()), places), shape=tuple(weights.shape))


class MtebTokens(MtebModel, TokenRows):
    """An encoder of one vector per token. Rows of zeros, with which some loaders fill short texts, are none."""

    def __init__(self, folder: Path, entry: LateInteractionModel, runtime: Runtime) -> None:
        super().__init__(folder, entry, runtime)
        self.name = entry.checkpoint
        self.dimension = self.encoded(["a"], "document").vectors.shape[1]

    def encoded(self, texts: list[str], role: str) -> TokenVectors:
        """Return the token vectors of one block.

        Raises:
            DataError: their lengths are not 1, so float16 may not hold them.
        """
        by_text = list(map(_numbers, self.output(texts, role)))
        vectors = []
        for rows in by_text:
            lengths = np.linalg.norm(rows, axis=1)
            kept = lengths > 0
            if (np.abs(lengths[kept] - 1) > _LENGTH).any():
                raise DataError(f"mteb's loader of {self.name} gives token vectors whose lengths are not 1")
            vectors.append(rows[kept])
        return TokenVectors(np.concatenate(vectors), np.array([len(rows) for rows in vectors], np.int64))


class MtebScorer(MtebModel, Scorer):
    """A scorer of pairs."""

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs]."""
        scores = [np.empty(0, np.float32)]
        for part in parts(list(zip(queries, documents, strict=True)), _BATCH):
            asked, read = map(list, zip(*part, strict=True))
            predicted = self.model.predict(_loaded(text=asked, query=asked), _loaded(text=read), **self.options)
            scores.append(_numbers(predicted).reshape(len(part)))
            if progress:
                progress.add(len(part))
        return np.concatenate(scores)


_BY_FAMILY = {"dense": MtebDense, "sparse": MtebSparse, "late-interaction": MtebTokens, "cross-encoder": MtebScorer}


def open_by_mteb(folder: Path, entry: Loaded, runtime: Runtime) -> MtebModel:
    """Open a model by mteb's loader.

    Raises:
        DataError: the loader cannot open the folder.
    """
    opened: MtebModel = _BY_FAMILY[entry.family](folder, entry, runtime)
    return opened


def _stay_offline() -> None:
    """Put the hub's client offline, even if it is already imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = True


def _task(name: str) -> Any:
    """Return mteb's metadata of a task or, without a name, of retrieval in general."""
    import mteb
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    if name:
        return mteb.get_task(name).metadata
    changed = {"name": "Retrieval", "prompt": AbsTaskRetrieval.abstask_prompt}
    return mteb.get_task("NQ").metadata.model_copy(update=changed)


def _loaded(**columns: list[str]) -> Any:
    """Wrap texts in the data loader that mteb passes to a model."""
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict(columns), batch_size=_BATCH)


def _numbers(output: Any) -> np.ndarray:
    if hasattr(output, "cpu"):
        output = output.detach().cpu().float().numpy()
    return np.asarray(output, np.float32)
