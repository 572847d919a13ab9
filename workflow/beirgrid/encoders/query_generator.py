"""Query generators: sampled queries that a document may answer (docT5query, GenQ, GPL)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..progress import Progress
from .base import Encoder, check_finite, load_checkpoint, token_batches

if TYPE_CHECKING:
    import torch

# Word pieces of a generated query at most, and of a document (Nogueira and Lin, docTTTTTquery).
QUERY_LENGTH = 64
DOCUMENT_LENGTH = 512


class QueryGenerator(Encoder):
    """Queries sampled from a sequence-to-sequence model (AutoModelForSeq2SeqLM), T5 above all.

    The entry's ``top_k`` (10) and ``top_p`` (1) cut the distribution that each word piece is drawn from.
    The random numbers come from the seed and the document's text alone, so its queries do not depend on
    its batch, shard or position (up to rounding, which another batch changes a little).
    """

    def __init__(
        self, folder: Path, spec: dict[str, Any], device: str, precision: str, batch_tokens: dict[str, int]
    ) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        super().__init__(spec, device, precision, batch_tokens)
        if self.precision == "float16" and spec.get("precision", precision) == "auto":
            self.precision = "float32"  # T5 overflows in float16
        remote = spec.get("trust_remote_code", False)
        self.tokenizer = load_checkpoint(AutoTokenizer, folder, trust_remote_code=remote)
        self.model = load_checkpoint(AutoModelForSeq2SeqLM, folder, trust_remote_code=remote).to(self.device)
        self.model.eval()
        self.set_precision()
        self._keep_token_ids_only()

    def set_precision(self) -> None:
        """Keep low precision to the transformer: the logits, and so what is drawn, stay float32."""
        import torch

        head = self.model.get_output_embeddings()
        if self.precision != "float32":
            for layer in self.model.modules():
                if isinstance(layer, torch.nn.Linear) and layer is not head:
                    layer.to(getattr(torch, self.precision))
        head.forward = torch.autocast(self.device, enabled=False)(head.forward)

    def _keep_token_ids_only(self) -> None:
        """Drop the checkpoint's own settings for generation: beams or penalties would change the sampling."""
        from transformers import GenerationConfig

        names = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        ids = {name: getattr(self.model.generation_config, name, None) for name in names}
        self.model.generation_config = GenerationConfig(**ids)

    def generate(
        self, texts: list[str], per_text: int, seed: int, progress: Progress | None = None
    ) -> list[list[str]]:
        """Return ``per_text`` sampled queries of each text; a blank text has none.

        The first queries of a text are the same whatever ``per_text`` is.
        """
        found: list[list[str]] = [[] for _ in texts]
        written = [row for row, text in enumerate(texts) if text.strip()]
        if progress:
            progress.add(len(texts) - len(written))
        prompt = self.spec.get("prompts", {}).get("document", "")
        encoded = [self._encode(prompt + texts[row]) for row in written]
        for batch in token_batches([len(ids) * per_text for ids in encoded], self.budget):
            rows = [written[i] for i in batch]
            queries = self._sample([encoded[i] for i in batch], [texts[row] for row in rows], per_text, seed)
            for row, start in zip(rows, range(0, len(queries), per_text), strict=True):
                found[row] = queries[start : start + per_text]
            if progress:
                progress.add(len(rows))
        return found

    def _encode(self, text: str) -> list[int]:
        limit = self.spec.get("max_length", DOCUMENT_LENGTH)
        ids: list[int] = self.tokenizer(text, truncation=True, max_length=limit, verbose=False)["input_ids"]
        return ids

    def _sample(self, encoded: list[list[int]], texts: list[str], per_text: int, seed: int) -> list[str]:
        """Return ``per_text`` queries of each text of a batch, one text after the other."""
        import torch

        inputs = self.tokenizer.pad({"input_ids": encoded}, return_tensors="pt").to(self.device)
        numbers = np.concatenate([_random_numbers(seed, text, per_text) for text in texts])
        draw = Draw(
            torch.from_numpy(numbers).to(self.device),
            [f"text {text[:60]!r}" for text in texts for _ in range(per_text)],
            self.spec.get("top_k", 10),
            self.spec.get("top_p", 1.0),
        )
        with torch.inference_mode(), self.autocast():
            tokens = self.model.generate(
                **inputs,
                do_sample=True,
                top_k=0,
                num_return_sequences=per_text,
                max_new_tokens=QUERY_LENGTH,
                logits_processor=[draw],
            )
        decoded: list[str] = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [query.strip() for query in decoded]


class Draw:
    """A logits processor of transformers that draws each row's next token itself, and leaves only that one.

    ``numbers``: float32 [rows, steps] in [0, 1), what each row draws with at each step.
    """

    def __init__(self, numbers: torch.Tensor, names: list[str], top_k: int, top_p: float) -> None:
        self.numbers, self.names, self.top_k, self.top_p = numbers, names, top_k, top_p
        self.step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return ``scores``, float32 [rows, vocabulary], with -inf for all but the token that is drawn."""
        import torch

        best, tokens = scores.float().topk(min(self.top_k, scores.shape[-1]), dim=-1)
        check_finite(best.cpu().numpy(), self.names)
        chances = best.softmax(dim=-1)
        reached = chances.cumsum(dim=-1)
        # The nucleus: tokens before which less than top_p was reached. Drawing within it rescales the number.
        mass = (chances * (reached - chances < self.top_p)).sum(dim=-1, keepdim=True)
        place = (reached <= self.numbers[:, self.step, None] * mass).sum(dim=-1, keepdim=True)
        self.step += 1
        drawn = tokens.gather(-1, place.clamp(max=tokens.shape[-1] - 1))
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def _random_numbers(seed: int, text: str, rows: int) -> np.ndarray:
    """Return float32 [rows, QUERY_LENGTH] in [0, 1) that follow from seed and text alone."""
    digest = hashlib.sha256(f"{seed}\0{text}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
    return generator.random((rows, QUERY_LENGTH), np.float32)
