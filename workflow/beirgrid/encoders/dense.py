"""Dense encoders: one vector per text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers.processors import Sequence, TemplateProcessing

from ..config.models import DenseModel
from ..core.compute import Runtime
from ..core.errors import DataError
from ..models import saved
from .base import TextEncoder
from .loading import first_module, load_checkpoint, pad_with_the_end
from .protocol import DenseVectors


def pooled_transformer(folder: str, pooling: str, **options: Any) -> Any:
    """Build a SentenceTransformer from a plain transformers checkpoint, which does not specify its pooling."""
    more: dict[str, Any] = {}
    if saved.read(Path(folder, "config.json")).get("model_type") == "dpr":
        # transformers opens both DPR encoders as the question encoder, whose weights have another prefix.
        more["model_kwargs"] = {"key_mapping": {"^ctx_encoder": "question_encoder"}}
    if pooling == "pooler":
        output = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
        more |= {"modality_config": output, "module_output_name": "sentence_embedding"}
    modules = [first_module(folder, options, **more)]
    if pooling != "pooler":
        modules.append(Pooling(modules[0].get_embedding_dimension(), pooling))
    model = SentenceTransformer(modules=modules, **options)
    pad_with_the_end(model.tokenizer)
    model.encode("a")  # not every architecture has this output
    return model


def open_dense(folder: Path, entry: DenseModel, runtime: Runtime) -> DenseEncoder | StaticEncoder:
    """Open a transformer or a static table of token vectors."""
    saved.refuse_outside(folder)
    static = any(module["type"].endswith(".StaticEmbedding") for module in saved.modules(folder)[:1])
    return (StaticEncoder if static else DenseEncoder)(folder, entry, runtime)


class DenseEncoder(TextEncoder[DenseModel, np.ndarray], DenseVectors):
    """Encodes a text to one vector (SentenceTransformer): float32 [texts, dimension], of length 1 for cosine
    similarity.
    """

    # The only output that is read, so that the last layer need not compute the others.
    output = "sentence_embedding"

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime, *, trainable: bool = False) -> None:
        super().__init__(entry, runtime, trainable=trainable)
        saved.check_use(folder, "SentenceTransformer", entry.similarity)
        self._load(folder)
        if entry.max_length is not None:
            self.model.max_seq_length = entry.max_length
        self.wrappers = self._wrappers(folder)
        self.set_precision(self.output)
        try:
            with self.autocast():
                self.dimension = len(self.model.encode_document("a"))
        except Exception as error:  # a module without its input may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"{folder}: its modules (modules.json) do not fit together: {reason}") from error

    def _load(self, folder: Path) -> None:
        """Open a checkpoint with the pooling of its modules.json or, without one, of the entry."""
        pooling = self.entry.pooling
        stated = (folder / "modules.json").is_file()
        if pooling == "own":
            pooling = None if stated else "mean"
        options = {"prompts": saved.prompts(folder, self.entry), "special_tokens": self.entry.special_tokens}
        if not stated:
            if not pooling:
                raise DataError(f"{folder} does not specify its pooling (no modules.json): set 'pooling' in the entry")
            self.load(pooled_transformer, folder, "" if pooling == "pooler" else "pooler", pooling=pooling, **options)
            return
        self.load(SentenceTransformer, folder, "pooler", **options)
        if not hasattr(self.model[0], "auto_model"):
            kind = type(self.model[0]).__name__
            raise DataError(f"{folder} starts with a {kind}: only models that start with a transformer are supported")
        pad_with_the_end(self.tokenizer)
        own = [module.pooling_mode for module in self.model if isinstance(module, Pooling)]
        if pooling and own != [pooling]:
            of_file = own[0] if own else "without a pooling module"
            raise DataError(
                f"pooling is {pooling}, but the checkpoint's modules.json has it {of_file}: leave 'pooling' out"
            )

    def _wrappers(self, folder: Path) -> dict[str, Any]:
        """Return a tokenizer post-processor per role with brackets, which puts them around a text's tokens.

        Brackets are separate tokens: they never merge with the text's tokens, and truncation leaves room for them.
        """
        tokenizer = self.tokenizer
        own = tokenizer.backend_tokenizer.post_processor
        known = tokenizer.get_vocab()
        wrappers = {}
        sides = self.entry.brackets.own_keys("query", "document") if self.entry.brackets else {}
        if sides and (added := tokenizer.num_special_tokens_to_add()):
            raise DataError(f"brackets: the tokenizer of {folder} adds {added} tokens itself, so it takes no brackets")
        for role, brackets in sides.items():
            if lacking := [bracket for bracket in brackets if bracket not in known]:
                raise DataError(f"brackets.{role}: the tokenizer of {folder} has no token {lacking[0]!r}")
            before, after = [(f"bracket-{side}", known[token]) for side, token in enumerate(brackets)]
            template = TemplateProcessing(single=[before[0], "$A", after[0]], special_tokens=[before, after])
            wrappers[role] = Sequence([*filter(None, [own]), template])
        return wrappers

    def prepare(self, role: str) -> None:
        """Set the tokenizer's brackets for a role."""
        if self.wrappers:
            self.tokenizer.backend_tokenizer.post_processor = self.wrappers[role]

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Select the text vectors: [texts, dimension]."""
        vectors = features["sentence_embedding"].float()
        return (torch.nn.functional.normalize(vectors) if self.entry.similarity == "cosine" else vectors,)


class StaticEncoder(DenseVectors):
    """Encodes a text to the mean of its tokens' vectors in a table (model2vec), of length 1 for cosine similarity.

    It runs on the CPU in float32: sending tokens to a GPU would take longer than averaging their vectors.
    """

    precision = "float32"

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime) -> None:
        saved.check_use(folder, "SentenceTransformer", entry.similarity)
        if entry.max_length or entry.brackets or entry.pooling not in (None, "own", "mean"):
            raise DataError(
                f"{folder} is a table of token vectors, which averages whole texts: remove max_length, brackets and "
                "pooling from the model's entry"
            )
        self.kernels = runtime.kernels
        self.unit = entry.similarity == "cosine"
        prompts = saved.prompts(folder, entry)
        self.model: Any = load_checkpoint(SentenceTransformer, folder, device="cpu", prompts=prompts)
        self.dimension = len(self.model.encode("a"))

    def facts(self) -> dict[str, str]:
        """Return device and precision for the record of an artifact."""
        return {"device": "cpu", "precision": self.precision, "kernels": self.kernels}

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of one block, from sentence-transformers."""
        options = {"normalize_embeddings": self.unit, "show_progress_bar": False, "batch_size": 1024}
        vectors: np.ndarray = self.model.encode(texts, prompt=self.model.prompts.get(role) or "", **options)
        return vectors
