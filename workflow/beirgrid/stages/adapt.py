"""Stage adapt: a dense model tuned to a corpus with the sentence-transformers trainer.

GenQ (Thakur et al. 2021) tells the document that a query was written for from the others of its batch;
GPL (Wang et al. 2022) learns a cross-encoder's margins. Either can go on from a pre-training on documents alone:
TSDAE (Wang et al. 2021) restores documents from the vector of what is left of them when most words are deleted;
MLM (Devlin et al. 2019) restores masked tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import PRETRAINING
from ..core import files, provenance
from ..core.environment import BATCH_TOKENS
from ..core.errors import DataError
from ..data import checkpoints
from ..data.collection import count
from ..encoders import DenseEncoder, add_compute_arguments, pick_device, pick_precision
from . import generate

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

# What similarities are multiplied by: cosines span too little for a softmax, or for margins of logits.
SCALE = {"cosine": 20.0, "dot": 1.0}
# Share of the words that TSDAE deletes, and of the tokens that a masked language model restores.
DELETED, MASKED = 0.6, 0.15
# Steps after which the state of a training is written (weights, and twice as much of the optimizer's), for one that is
# killed to go on from.
SAVED_STEPS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid adapt``."""
    parser.add_argument("--recipe", required=True, type=json.loads, help="recipe and settings of the model, as JSON")
    parser.add_argument("--base", required=True, type=provenance.artifact, help="checkpoint to start from")
    parser.add_argument(
        "--examples",
        required=True,
        type=provenance.artifact,
        help="queries.parquet (GenQ), margins.parquet (GPL), corpus.parquet (TSDAE, MLM)",
    )
    parser.add_argument("--output", required=True, type=Path, help="checkpoint folder to write")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Train and save the model."""
    recipe = args.recipe
    with provenance.record("adapt", args.made, recipe, [args.output]) as facts:
        device = pick_device(args.device)
        # On a CPU in float32 unless the entry says otherwise: only some multiply bfloat16.
        wanted = recipe.get("precision", args.precision if device == "cuda" else "float32")
        precision = pick_precision(wanted, device)
        state = _state_folder(args, precision)
        with files.atomic(args.output, directory=True) as temporary, files.scratch(f"{args.output}-cache") as cache:
            facts.update(_train(recipe, args, device, precision, cache, state, temporary))
            facts["files"] = checkpoints.verify(args.output.parent.name, {}, temporary)
        shutil.rmtree(state)
        facts.update(device=device, precision=precision, bytes=files.size(args.output))


def _state_folder(args: argparse.Namespace, precision: str) -> Path:
    """Return the folder beside the output that holds the state of just this training; those of others are deleted.

    Its name follows from all that decides on the weights, so that nothing else goes on from that state.
    """
    made_from = {
        "version": provenance.STAGE_VERSIONS["adapt"],
        "recipe": args.recipe,
        "precision": precision,
        "base": checkpoints.verify(args.output.parent.name, {}, args.base),
        "examples": files.sha256(args.examples),
    }
    fingerprint = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
    folder: Path = args.output.parent / f".{args.output.name}-state-{fingerprint}"
    for other in args.output.parent.glob(f".{args.output.name}-state-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _last_state(folder: Path) -> Path | None:
    """Return the last state that was written whole, if there is one: its trainer_state.json is written last."""

    def whole(path: Path) -> bool:
        try:
            return bool(files.read_json(path))
        except ValueError:
            return False

    states = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json") if whole(path)]
    return max(states, key=lambda path: int(path.name.split("-")[1]), default=None)


def _trainer(**options: Any) -> Any:
    """Return a trainer that saves and restores the loss with all of its weights: a decoder's, or a head's."""
    from safetensors.torch import load_model, save_model
    from sentence_transformers import SentenceTransformerTrainer

    class Trainer(SentenceTransformerTrainer):  # type: ignore[misc]
        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_model(self.loss, str(folder / "loss.safetensors"))

        def _load_from_checkpoint(self, checkpoint_path: str) -> None:
            load_model(self.loss, Path(checkpoint_path) / "loss.safetensors")

    return Trainer(**options)


def _train(
    recipe: dict[str, Any],
    args: argparse.Namespace,
    device: str,
    precision: str,
    cache: Path,
    state: Path,
    output: Path,
) -> dict[str, Any]:
    """Train with the settings of the recipe, save to ``output`` and return steps, seconds and losses.

    A training that was killed goes on from the last of its states in ``state``, to the same weights.
    """
    from sentence_transformers import SentenceTransformerTrainingArguments
    from transformers import set_seed

    set_seed(recipe["seed"])
    model = _open(args.base, recipe, device)
    examples = _examples(recipe, args.examples, cache)
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(state),
        num_train_epochs=recipe.get("epochs", 1),
        max_steps=recipe.get("steps", -1),
        per_device_train_batch_size=recipe["batch"],
        learning_rate=recipe["learning_rate"],
        warmup_steps=recipe["warmup"],
        lr_scheduler_type="constant_with_warmup" if recipe["recipe"] == "tsdae" else "linear",
        weight_decay=0.0 if recipe["recipe"] in PRETRAINING else 0.01,
        prompts=_prompts(recipe, examples.column_names),
        batch_sampler=_distinct(examples) if recipe["recipe"] == "genq" else _shuffled,
        seed=recipe["seed"],
        bf16=precision == "bfloat16",
        fp16=precision == "float16",
        use_cpu=device == "cpu",
        save_strategy="steps",
        save_steps=SAVED_STEPS,
        save_total_limit=1,
        logging_steps=0.01,  # of all steps
        report_to="none",
        disable_tqdm=True,
    )
    shown = examples.select_columns([name for name in examples.column_names if name != "document"])
    trainer = _trainer(model=model, args=settings, train_dataset=shown, loss=_loss(model, recipe, args.base))
    last = _last_state(state)
    if last:
        print(f"going on from {last}", file=sys.stderr)
    trained = trainer.train(resume_from_checkpoint=str(last) if last else None)
    model.save_pretrained(str(output), create_model_card=False)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "examples": len(examples),
        "steps": trained.global_step,
        "resumed_from_step": int(last.name.split("-")[1]) if last else 0,
        "training_seconds": round(trained.metrics["train_runtime"], 1),
        "losses": losses,
    }


def _open(base: Path, recipe: dict[str, Any], device: str) -> SentenceTransformer:
    """Open the base as its entry says, with weights in float32, in which they are updated."""
    entry = {**recipe["base"], **{key: recipe[key] for key in ("max_length", "similarity") if key in recipe}}
    model: SentenceTransformer = DenseEncoder(base, entry, device, "float32", BATCH_TOKENS).model.float()
    if device == "cpu":  # the backward pass of plain attention is 1.5 times as fast there as that of sdpa
        model.transformers_model.set_attn_implementation("eager")
    return model


def _examples(recipe: dict[str, Any], path: Path, cache: Path) -> Dataset:
    """Return the training examples, on disk: only the batch at hand is in memory."""
    from datasets import Dataset

    if recipe["recipe"] not in PRETRAINING:
        return Dataset.from_parquet(str(path), cache_dir=str(cache))
    settings = {"corpus": path, "most": recipe["documents"], "seed": recipe["seed"]}
    examples = _damaged if recipe["recipe"] == "tsdae" else _whole
    return Dataset.from_generator(examples, cache_dir=str(cache), gen_kwargs=settings)


def _texts(corpus: Path, most: int, seed: int) -> Iterator[str]:
    """Yield the texts of at most so many documents, drawn with the seed; blank ones teach nothing."""
    for documents in generate.read_rows(corpus, generate.sample_rows(count(corpus), most, seed), generate.BLOCK):
        yield from (document.joined for document in documents if document.joined.strip())


def _damaged(corpus: Path, most: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield documents and what is left of each when words are deleted at random, at least one."""
    choose = random.Random(seed)
    for text in _texts(corpus, most, seed):
        words = text.split()
        left = [word for word in words if choose.random() >= DELETED] or [choose.choice(words)]
        yield {"damaged": " ".join(left), "text": text}


def _whole(corpus: Path, most: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield documents as they are; the loss masks their tokens."""
    return ({"whole": text} for text in _texts(corpus, most, seed))


def _prompts(recipe: dict[str, Any], columns: list[str]) -> dict[str, str] | None:
    """Return the prompt of each column that has one."""
    roles = {"query": "query", **dict.fromkeys(("positive", "negative", "damaged", "whole"), "document")}
    prompts = recipe.get("prompts", {})
    return {column: prompts[roles[column]] for column in columns if roles.get(column) in prompts} or None


def _shuffled(dataset: Dataset, generator: torch.Generator, **options: Any) -> Any:
    """Return a batch sampler whose order follows from seed and epoch, so that it is the same after a resume."""
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from torch.utils.data import RandomSampler

    class Sampler(DefaultBatchSampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[int]]:
            self.generator.manual_seed(self.seed + self.epoch)
            yield from super().__iter__()

    return Sampler(RandomSampler(dataset, generator=generator), generator=generator, **options)


def _distinct(examples: Dataset) -> Callable[..., Any]:
    """Return a batch sampler that keeps queries and documents apart from themselves, their false negatives."""
    from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

    keys = examples.select_columns(["query", "document"])
    return lambda dataset, **options: NoDuplicatesBatchSampler(keys, **options)


def _loss(model: SentenceTransformer, recipe: dict[str, Any], base: Path) -> Any:
    """Return the recipe's loss over similarities as the model's, in float32."""
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer import losses

    if recipe["recipe"] == "tsdae":
        try:
            return losses.DenoisingAutoEncoderLoss(model).float()
        except (ValueError, AttributeError, KeyError) as error:
            kind = model.transformers_model.config.model_type
            raise DataError(
                f"{base} is a {kind} model: transformers has no decoder of that kind, which tsdae needs (BERT and "
                f"RoBERTa have one)"
            ) from error
    if recipe["recipe"] == "mlm":
        return _masked_language_model(model, base, recipe["seed"])
    scale, cosine = SCALE[recipe["similarity"]], recipe["similarity"] == "cosine"
    if recipe["recipe"] == "genq":
        similarity = _in_float32(util.cos_sim if cosine else util.dot_score)
        return losses.MultipleNegativesRankingLoss(model, scale=scale, similarity_fct=similarity)
    return losses.MarginMSELoss(
        model, similarity_fct=_in_float32(util.pairwise_cos_sim if cosine else util.pairwise_dot_score, scale)
    )


def _masked_language_model(model: SentenceTransformer, base: Path, seed: int) -> torch.nn.Module:
    """Return the loss of a masked language model over the dense model's transformer.

    Of a document's tokens 15% are restored; the input has a mask in place of 80% of these, a random token in place
    of 10%, and leaves 10% as they are. The language model's head is the checkpoint's, or a new one where it has none;
    the dense model does without it.
    """
    import torch
    from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling

    transformer = model.transformers_model
    try:
        language_model = AutoModelForMaskedLM.from_pretrained(transformer.config._name_or_path, local_files_only=True)
        masking = DataCollatorForLanguageModeling(model.tokenizer, mlm_probability=MASKED)
    except ValueError as error:
        kind = transformer.config.model_type
        raise DataError(f"{base} is a {kind} model, which is no masked language model, as mlm needs") from error
    language_model.float()
    setattr(language_model, language_model.base_model_prefix, transformer)
    language_model.tie_weights()  # the head's to the dense model's word embeddings

    class MaskedLanguageModelLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.language_model = language_model

        def forward(self, sentence_features: Any, labels: Any = None) -> torch.Tensor:
            [features] = sentence_features
            tokens = features["input_ids"].cpu()
            # The masks follow from seed and batch, so they are the same after a resume. Another epoch has other
            # batches, so a document has other masks.
            digest = hashlib.sha256(f"{seed}".encode() + tokens.numpy().tobytes()).digest()
            masking.generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
            masked, wanted = (part.to(features["input_ids"].device) for part in masking.torch_mask_tokens(tokens))
            inputs = {name: value for name, value in features.items() if name in ("attention_mask", "token_type_ids")}
            logits = self.language_model(input_ids=masked, **inputs).logits
            chosen = wanted >= 0
            restored = torch.nn.functional.cross_entropy(logits[chosen].float(), wanted[chosen], reduction="sum")
            loss: torch.Tensor = restored / chosen.sum().clamp(min=1)  # a short batch may have no token chosen
            return loss

    return MaskedLanguageModelLoss()


def _in_float32(similarity: Callable[..., torch.Tensor], scale: float = 1.0) -> Callable[..., torch.Tensor]:
    """Return the similarity, times ``scale``, outside autocast: dot products near 100 have steps of 0.5 in bfloat16."""
    import torch

    def of(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        with torch.autocast(left.device.type, enabled=False):
            return scale * similarity(left.float(), right.float())

    return of
