"""Shared code of all models of this machine: precision, running texts and pairs through the engine.

``protocol``, ``guards`` and ``served`` do without PyTorch, which takes seconds to import; this module and those of the
families are imported where a model is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from transformers import AutoTokenizer

from ..config.models import ModelEntry
from ..core.compute import Runtime
from ..core.errors import DataError, warn
from ..core.progress import Progress
from . import cutting
from .engine import TOKENIZED, Engine, Forward, Tokens
from .kernels import last_layer, linear
from .loading import load_checkpoint, pad_with_the_end
from .protocol import Encoder, OpenModel, Scorer, parts

EntryT = TypeVar("EntryT", bound=ModelEntry)
VectorsT = TypeVar("VectorsT")
# Logits of a cross-encoder: one score, or two classes of which the second is "relevant".
MOST_LABELS = 2
# Maximum tokens per text of a model of transformers, unless the entry or the model has a smaller one.
LONGEST = 512
# Texts on which a model is tried: one that is short, and one of many words, numbers and signs.
_SHORT = "What does the thyroid gland regulate?"
_LONG = (
    "In 1969, Apollo 11 (NASA) landed on the Moon, 21 kg of rocks, 384,400 km from us; see https://a.org/b?c=1 «ß». "
)
# Tolerance between a text alone and in a batch, relative to the largest number, by precision.
_TOLERANCE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 0.1}
# Makes sentence-transformers return lists of token ids, which take less time than padded tensors.
_LISTS = {"common": {"return_tensors": None}, "text": {"padding": False, "return_attention_mask": False}}


class LoadedModel(OpenModel, Generic[EntryT]):
    """A model in evaluation mode, on a device, in a precision.

    Attributes:
        entry: the model's registry entry.
        runtime: the device that the process holds.
        engine: computes batches on the device.
        model: the library's model.
        narrow: whether the last layer computes only the first token of each text (``kernels``).
        trainable: whether the weights stay unchanged, so that they can be trained and saved.
    """

    def __init__(self, entry: EntryT, runtime: Runtime, *, trainable: bool = False) -> None:
        self.entry = entry
        self.runtime = runtime
        self.trainable = trainable
        self.precision = runtime.resolve(entry.precision)
        self.engine = Engine(runtime)
        self.reading = threading.Lock()  # tokenizers are not thread-safe
        self.counting = threading.Lock()
        self.model: Any = None
        self.narrow = False
        self.overflows: int | None = None  # texts so far that overflowed float16, where it was chosen automatically

    def facts(self) -> dict[str, str]:
        """Return device, precision and kernels for the record of an artifact.

        Call it after encoding: the facts include the number of texts that overflowed float16.
        """
        facts = {"device": self.runtime.hardware, "precision": self.precision, "kernels": self.runtime.kernels}
        if self.engine.one_length:
            facts["batches"] = "texts of one length: the model's numbers depend on padding"
        if self.overflows:
            facts["computed_in_bfloat16"] = f"{self.overflows} texts that overflow in float16"
        return facts

    @property
    def transformer(self) -> Any:
        """The transformer below the pooling or head."""
        return self.model[0].auto_model

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self.model.tokenizer

    @property
    def positions(self) -> int | None:
        """The number of tokens for which the model has positions, or None for any number."""
        return getattr(self.transformer.config.get_text_config(), "max_position_embeddings", None)

    def load(self, loader: Any, folder: Path, unused: str = "", **options: Any) -> None:
        """Load a checkpoint into ``model`` with a class of sentence-transformers (``loading.load_checkpoint``)."""
        options = {"device": self.runtime.device, "trust_remote_code": self.entry.trust_remote_code, **options}
        self.model = load_checkpoint(loader, folder, unused, **options)
        self.model.eval()

    def fit_precision(self) -> None:
        """Change from float16 to a wider precision if float16 was not requested and the model would overflow it."""
        if self.precision != "float16" or (wider := self.runtime.resolve(self.entry.precision, wide=True)) == "float16":
            return
        if self.fits_float16():
            self.overflows = 0
        else:
            self.precision = wider

    def fits_float16(self) -> bool:
        """Tell whether the transformer, with float32 weights, reads a text of up to 256 tokens without overflow.

        T5 never fits: it replaces what overflows by other numbers.
        """
        config = self.transformer.config
        if config.is_encoder_decoder or "t5" in config.model_type:
            return False
        length = min(256, (self.positions or 258) - 2)  # RoBERTa's positions start at 2
        ids = self.tokenizer(_LONG * 9, truncation=True, max_length=length, verbose=False)["input_ids"]
        with torch.inference_mode(), self.autocast("float16"):
            hidden = self.transformer(input_ids=torch.tensor([ids], device=self.runtime.device))[0]
        return bool(hidden.isfinite().all())

    def autocast(self, precision: str | None = None) -> AbstractContextManager[Any]:
        """Return the autocast context for the model's precision, or for another one."""
        precision = precision or self.precision
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self.runtime.kind, dtype=getattr(torch, precision))

    def compute(self, forward: Forward, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Compute a batch in the model's precision.

        If float16 was chosen automatically, texts that overflow are computed again in bfloat16.
        """
        with self.autocast():
            results = forward(dict(inputs))  # the library adds its outputs to the dict
        if self.overflows is None:
            return results
        of_results = [result.reshape(len(result), -1).isfinite().all(1) for result in results]
        finite = torch.stack(of_results).all(0)
        if bool(finite.all()):
            return results
        with self.counting:
            if not self.overflows:
                warn(
                    "some activations of the model overflow float16: these texts are computed in bfloat16 (to compute "
                    "all texts in bfloat16, set precision: bfloat16 in the model's entry)"
                )
            self.overflows += int((~finite).sum())
        with self.autocast("bfloat16"):
            others = forward(inputs)
        finite_of = (finite.view(-1, *[1] * (result.ndim - 1)) for result in results)
        return tuple(map(torch.where, finite_of, results, others))

    def set_precision(self, output: str = "") -> None:
        """Restrict low precision to the transformer; pooling, projection and normalisation run in float32.

        Args:
            output: name of the output with one row per text, if the family reads only that output.
        """
        self.fit_precision()
        fast = self.runtime.kernels == "auto" and not self.trainable
        if output and fast and self.tokenizer.padding_side == "right":
            self.narrow = last_layer.narrow(self.transformer, lambda inputs: self.model(inputs)[output], self.autocast)
        self.store_weights(self.transformer.get_output_embeddings())
        self.model[0].register_forward_hook(_embeddings_to_float32)
        for module in list(self.model)[1:]:
            module.forward = torch.autocast(self.runtime.kind, enabled=False)(module.forward)
        self.check_batches(self._transformed, self.model.max_seq_length)
        self.check_length()

    def _transformed(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the token vectors that a batch is pooled from, or else its text vectors or scores.

        Modules before the pooling can read padding too: the convolutions of CNN, as those of ConvBERT do.
        """
        names = ("token_embeddings", "sentence_embedding", "scores")
        features = self.model[0](inputs)
        output: torch.Tensor = next(features[name] for name in names if name in features)
        for module in list(self.model)[1:]:
            features = module(features)
            if "sentence_embedding" in features or "token_embeddings" not in features:
                break
            output = features["token_embeddings"]
        return output

    @property
    def _core(self) -> Any:
        """The encoder of the transformer, without heads."""
        transformer = self.transformer
        return transformer.get_encoder() if transformer.config.is_encoder_decoder else transformer.base_model

    def check_batches(self, compute: Callable[[dict[str, Any]], torch.Tensor], limit: int | None) -> None:
        """Restrict batches to texts of one length if padding changes the model's output.

        Args:
            compute: computes a batch's inputs to the transformer's output: [texts, longest, width] or [texts, width].
            limit: maximum tokens per text.
        """
        _check_rotary_positions(self.transformer.config.get_text_config(encoder=True), limit)
        with torch.inference_mode(), self.autocast():
            self.engine.one_length = self.depends_on_batch(compute, limit)

    def depends_on_batch(self, compute: Callable[[dict[str, Any]], torch.Tensor], limit: int | None) -> bool:
        """Tell whether the output of a short text changes when it is batched with a longer one.

        The convolutions of ConvBERT and the trigrams of MobileBERT read padding, and so do positions after left
        padding.
        """
        read = self.tokenizer([_SHORT, _LONG], truncation=True, max_length=min(limit or 64, 64), verbose=False)
        tokens = Tokens({"input_ids": [np.array(ids, np.int32) for ids in read["input_ids"]]})

        def output(*rows: int) -> torch.Tensor:
            padded = tokens.padded(rows, self.tokenizer).items()
            batch = {name: value.to(self.runtime.device) for name, value in padded}
            result = compute(dict(batch))[0].float()
            return result[batch["attention_mask"][0].bool()] if result.ndim == 2 else result

        alone = output(0)
        together = output(0, 1)
        # The comparison is written so that NaN counts as a difference.
        return not bool((alone - together).abs().max() <= _TOLERANCE[self.precision] * alone.abs().max())

    def store_weights(self, head: Any) -> None:
        """Convert the weights of linear layers to the model's precision and to the kernels' layout.

        Args:
            head: a layer to leave unchanged, or None. A language model's head shares the input embeddings' weights.
        """
        layers = [
            layer.to(getattr(torch, self.precision))
            for layer in self.transformer.modules()
            if isinstance(layer, torch.nn.Linear) and layer.out_features > MOST_LABELS and layer is not head
        ]
        if self.trainable or self.runtime.kernels == "plain" or self.runtime.kind != "cpu":
            return
        core = self._core
        with torch.inference_mode(), self.autocast():
            linear.reorder_all(layers, lambda: core(input_ids=torch.tensor([[0, 1, 2]])))
        linear.fuse_activations(self.transformer)

    def multiply_in_float32(self, head: Any) -> None:
        """Make a layer compute in float32 whatever the model's precision."""
        multiply = torch.autocast(self.runtime.kind, enabled=False)(head.forward)
        head.forward = lambda hidden: multiply(hidden.float())

    def check_length(self) -> None:
        """Refuse a max_length or query_length that exceeds the model's positions."""
        for key in ("max_length", "query_length"):
            length = getattr(self.entry, key, None)
            if length and self.positions and length > self.positions:
                raise DataError(f"{key} is {length}, but the model has only {self.positions} positions")

    def preprocess(self, inputs: list[Any], *, task: str | None = None, **options: Any) -> Mapping[str, Any]:
        """Tokenize texts or pairs with sentence-transformers, for ``Tokens``."""
        from sentence_transformers.base.modules import Transformer

        module = self.model[0]
        own = type(module) is Transformer  # a checkpoint's own module may not accept these arguments
        if own and set(module.modality_config) == {"text"} and not (task == "query" and module.query_expansion):
            options["processing_kwargs"] = _LISTS
        features: Mapping[str, Any] = self.model.preprocess(inputs, task=task, **options)
        return features


class HeadedModel(LoadedModel[EntryT]):
    """A model of a class of transformers, with its tokenizer: a transformer below one output layer.

    Attributes:
        limit: maximum tokens per text.
    """

    def __init__(
        self, folder: Path, entry: EntryT, runtime: Runtime, loader: Any, stored: str = "float32", **tokenizing: Any
    ) -> None:
        """Open a checkpoint with a class of transformers (``loader``).

        ``stored`` is the precision of the weights, and ``tokenizing`` are settings of the tokenizer.

        Raises:
            DataError: the folder does not hold such a model and a tokenizer.
        """
        super().__init__(entry, runtime)
        remote = entry.trust_remote_code
        tokenizer = load_checkpoint(AutoTokenizer, folder, trust_remote_code=remote, **tokenizing)
        pad_with_the_end(tokenizer)
        self.model = load_checkpoint(loader, folder, dtype=torch.float32, trust_remote_code=remote)
        self.model.to(runtime.device, getattr(torch, stored)).eval()
        self.model.tokenizer = tokenizer
        self.check_length()
        self.limit: int = entry.max_length or min(self.positions or LONGEST, LONGEST)

    @property
    def transformer(self) -> Any:
        """The model itself, which is not a list of modules."""
        return self.model

    def keep_apart(self, head: Any) -> None:
        """Restrict low precision to the transformer; its last layer computes in float32."""
        self.fit_precision()
        self.store_weights(head)
        if self.precision != "float32":
            self.multiply_in_float32(head)
        self.check_batches(lambda inputs: self._core(**inputs)[0], self.limit)

    def tokenized_texts(self, texts: list[str], prompt: str = "") -> Tokens:
        """Tokenize texts, each after the prompt, truncated to the model's length, as inputs of the engine."""
        read: list[list[int]] = []
        with self.reading:
            for part in parts(texts, TOKENIZED):
                cut = [prompt + cutting.cut(self.tokenizer, text, self.limit, prompt) for text in part]
                read += self.tokenizer(cut, truncation=True, max_length=self.limit, verbose=False)["input_ids"]
        return Tokens({"input_ids": [np.array(ids, np.int32) for ids in read]})


class TextEncoder(LoadedModel[EntryT], Encoder[VectorsT], Generic[EntryT, VectorsT]):
    """Base of text encoders: encodes documents and queries through the engine."""

    def vectors(self, blocks: Iterable[list[str]], role: str, progress: Progress | None = None) -> Iterator[VectorsT]:
        """Yield the vectors of each block of texts."""
        tokenized = (self.tokenized(texts, role) for texts in blocks)
        forward = partial(self.compute, lambda inputs: self.results(self.model(inputs, task=role)))
        for batches, order in self.engine.run(tokenized, self.tokenizer, forward, self.batch_vectors, progress):
            yield self.in_order(self.concatenation(batches), order)

    def tokenized(self, texts: list[str], role: str) -> Tokens:
        """Tokenize texts, each after the prompt of its role."""
        prompt = self.model.prompts.get(role) or ""
        tokens = Tokens()
        limit = self.limit(role) or self.model.max_seq_length
        with self.reading:
            self.prepare(role)
            for part in parts(texts, TOKENIZED):
                beginnings = [cutting.cut(self.tokenizer, text, limit, prompt) for text in part] if limit else part
                tokens.add(self.preprocess(beginnings, prompt=prompt, task=role))
        return tokens

    def truncated(self, texts: list[str], role: str) -> int:
        """Count the texts of which the model reads only the beginning."""
        prompt = self.model.prompts.get(role) or ""
        limit = self.limit(role) or self.model.max_seq_length or LONGEST
        with self.reading:
            self.prepare(role)
            read = self.tokenizer([prompt + text for text in texts], truncation=False, verbose=False)["input_ids"]
        return sum(len(ids) > limit for ids in read)

    def prepare(self, role: str) -> None:
        """Prepare the tokenizer for the texts of a role."""

    def limit(self, role: str) -> int | None:
        """Return the maximum tokens per text; None for the model's own limit."""
        return None

    def results(self, features: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Select the outputs to keep: float32 tensors whose first dimension is the texts."""
        raise NotImplementedError

    def in_order(self, vectors: VectorsT, rows: np.ndarray) -> VectorsT:
        """Select the vectors of texts by their rows."""
        selected: VectorsT = vectors[rows]  # type: ignore[index]
        return selected

    def batch_vectors(self, results: tuple[np.ndarray, ...]) -> VectorsT:
        """Convert a batch's results, on the host, to the family's vectors. A dense model's are its only result."""
        vectors: Any = results[0]
        return cast(VectorsT, vectors)


class PairScorer(LoadedModel[EntryT], Scorer):
    """Base of rerankers that read both texts of a pair together."""

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Score each pair (queries[i], documents[i]): float32 [pairs], higher is better.

        Pairs are tokenized window by window, so memory does not grow with their number.
        """
        scores = [np.empty(0, np.float32)]
        tokenized = map(self.tokenized, parts(list(zip(queries, documents, strict=True))))
        forward = partial(self.compute, self.results)
        for batches, order in self.engine.run(tokenized, self.tokenizer, forward, itemgetter(0), progress):
            scores.append(np.concatenate(batches)[order])
        return np.concatenate(scores)

    def tokenized(self, pairs: list[tuple[str, str]]) -> Tokens:
        """Tokenize pairs of query and document."""
        raise NotImplementedError

    def results(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Select the scores of a batch: float32 [pairs]."""
        raise NotImplementedError


def _embeddings_to_float32(module: Any, inputs: Any, features: dict[str, torch.Tensor]) -> None:
    for name in ("token_embeddings", "sentence_embedding"):
        if name in features:
            features[name] = features[name].float()


def _check_rotary_positions(config: Any, limit: int | None) -> None:
    """Refuse a limit of tokens per text at which rotary positions depend on the longest text of a batch."""
    rope = getattr(config, "rope_parameters", None) or {}
    key = "original_max_position_embeddings"
    for scaling in (rope, *rope.values()):  # one for all layers, or one per kind of layer
        if isinstance(scaling, dict) and scaling.get("rope_type") in ("dynamic", "longrope"):
            own = filter(None, (scaling.get(key), getattr(config, key, None)))
            most = min(own, default=config.max_position_embeddings)
            if not limit or limit > most:
                raise DataError(
                    f"beyond {most} tokens, the model's positions ({scaling['rope_type']}) depend on the longest text "
                    f"of a batch: set max_length to {most} or less"
                )
