"""Models opened by mteb's own loaders (``engine: mteb``): slower than our engine, with exactly mteb's computation.

A loader gets the fetched checkpoint's folder in place of the model's name, and no network access.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import CrossEncoder, DenseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models import saved
from .protocol import DenseVectors, Scorer, parts, unit_length

# Pairs per call of a loader, and its batch size.
_BATCH = 32


class MtebModel(DenseVectors, Scorer):
    """An encoder of one vector per text, of length 1 for cosine similarity, or a scorer of pairs, as its entry says.

    Attributes:
        precision: a text for records, because each loader chooses its own precision.
        model: mteb's wrapper of the model.
    """

    precision = "that of mteb's loader"

    def __init__(self, folder: Path, entry: DenseModel | CrossEncoder, runtime: Runtime) -> None:
        name = entry.checkpoint
        assert name, "the configuration is checked"
        self.runtime = runtime
        self.unit = isinstance(entry, DenseModel) and entry.similarity == "cosine"
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
        if isinstance(entry, DenseModel):
            self.dimension = self.encoded(["a"], "document").shape[1]

    def facts(self) -> dict[str, str]:
        """Return device, precision and mteb's version for the record of an artifact."""
        return {"device": self.runtime.hardware, "precision": self.precision, "loader": f"mteb {version('mteb')}"}

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of one block, from mteb's wrapper."""
        from mteb.types import PromptType

        options = {"prompt_type": PromptType(role), "batch_size": _BATCH, **self.options}
        vectors = _numbers(self.model.encode(_loaded(text=texts), **options))
        return unit_length(vectors) if self.unit else vectors

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
