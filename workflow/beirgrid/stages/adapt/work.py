"""Stage adapt: adapt a dense model to a corpus.

GenQ (Thakur et al. 2021) learns which document of a batch a query was written for, and GPL (Wang et al. 2022) the
margins of a cross-encoder. Both can start from a model that was pre-trained on documents alone. TSDAE (Wang et al.
2021) deletes most words of a document and restores the document from the vector of the rest. MLM (Devlin et al. 2019)
restores masked tokens.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from datasets import Dataset
from safetensors.torch import load_model, save_model
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, util
from sentence_transformers.base.sampler import BatchSamplers, NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer import losses
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, set_seed

from ...collections import collection, training_data
from ...config.models import DenseModel, Prompts
from ...config.recipes import PRETRAINING
from ...config.values import Count, Entry, Length, NotNegative, Positive, Seed, Size
from ...core import files, provenance
from ...core.compute import Compute, Precision, Runtime
from ...core.errors import DataError, say
from ...core.provenance import Artifact, Facts
from ...encoders.dense import DenseEncoder
from ...encoders.trainers import TrainingSteps, arguments
from ...models import checkpoints

# Scale of similarities: the range of cosines is too small for a softmax or for margins of logits.
SCALE = {"cosine": 20.0, "dot": 1.0}
# Share of words that TSDAE deletes.
DELETED = 0.6
# Share of tokens that masked language modelling predicts.
MASKED = 0.15
# Steps between checkpoints of the training state (weights and twice as much optimizer state), from which a killed
# adaptation resumes.
SAVED_STEPS = 1000
# What these recipes need of transformers for the base's kind of model.
_NEEDED = {"tsdae": "a decoder", "mlm": "a masked language model"}
# Columns of examples, and whose prompt their texts have.
_SIDES = {"query": "query", **dict.fromkeys(("positive", "negative", "damaged", "whole"), "document")}


class AdaptRecipe(Entry):
    """The keys of a recipe and of the model's entry that affect training, and the base's entry."""

    recipe: Literal["genq", "gpl", "tsdae", "mlm"]
    base: DenseModel
    similarity: Literal["cosine", "dot"]
    documents: Count | None = None
    epochs: Size = 1
    steps: Count | None = None
    batch: Size
    learning_rate: Positive
    warmup: NotNegative
    seed: Seed = 0
    max_length: Length | None = None
    prompts: Prompts = Prompts()
    precision: Precision | None = None


def adapt(
    *,
    recipe: Annotated[AdaptRecipe, "recipe and settings of the model, JSON"],
    base: Annotated[Artifact, "checkpoint to start from"],
    examples: Annotated[Artifact, "queries.parquet (GenQ), margins.parquet (GPL), corpus.parquet (TSDAE, MLM)"],
    compute: Compute,
    output: Annotated[Path, "checkpoint folder to write"],
) -> Facts:
    """Adapt a dense model to a corpus. A killed training resumes from its last state and reaches the same weights.

    Raises:
        DataError: an input is damaged, or the base has no decoder (TSDAE) or is not a masked language model (MLM).
    """
    runtime = compute.start()
    precision = runtime.resolve(recipe.precision, wide=True)
    state = provenance.state_folder(output, precision=precision)
    with files.atomic(output, directory=True) as temporary, files.scratch(f"{output}-cache") as cache:
        set_seed(recipe.seed)
        model = _open(base, recipe, runtime)
        rows = _examples(recipe, examples, cache)
        loss = _loss(model, recipe, base)
        facts = _adapt(model, loss, rows, recipe, runtime, precision, state)
        model.save_pretrained(str(temporary), create_model_card=False)
        digests = checkpoints.digests(temporary)
    shutil.rmtree(state)
    size = files.size(output)
    return {**facts, "files": digests, "device": runtime.kind, "precision": precision, "bytes": size}


def _open(base: Path, recipe: AdaptRecipe, runtime: Runtime) -> SentenceTransformer:
    """Open the base under its entry, with float32 weights for the updates."""
    own = {"similarity": recipe.similarity, **({"max_length": recipe.max_length} if recipe.max_length else {})}
    entry = recipe.base.model_copy(update=own)
    encoder = DenseEncoder(base, entry, replace(runtime, precision="float32"), trainable=True)
    model: SentenceTransformer = encoder.model.float()
    if runtime.kind == "cpu":  # eager attention has the faster backward pass there
        model.transformers_model.set_attn_implementation("eager")
    return model


def _examples(recipe: AdaptRecipe, path: Path, cache: Path) -> Dataset:
    """Build the training examples on disk; only the current batch is in memory."""
    if recipe.recipe not in PRETRAINING:
        return Dataset.from_parquet(str(path), cache_dir=str(cache))
    settings = {
        "corpus": path,
        "most": recipe.documents or collection.count(path),
        "seed": recipe.seed,
        "damage": recipe.recipe == "tsdae",
    }
    return Dataset.from_generator(_documents, cache_dir=str(cache), gen_kwargs=settings)


def _documents(corpus: Path, most: int, seed: int, damage: bool) -> Iterator[dict[str, str]]:
    """Yield a sample of at most ``most`` documents, without blank ones.

    TSDAE also gets a copy of each, of which random words are deleted, but not all.
    """
    choose = random.Random(seed)
    for documents in training_data.sample_documents(corpus, most, seed):
        for document in documents:
            words = document.full_text.split()
            if words and damage:
                left = [word for word in words if choose.random() >= DELETED] or [choose.choice(words)]
                yield {"damaged": " ".join(left), "text": document.full_text}
            elif words:
                yield {"whole": document.full_text}


def _adapt(
    model: SentenceTransformer,
    loss: torch.nn.Module,
    examples: Dataset,
    recipe: AdaptRecipe,
    runtime: Runtime,
    precision: str,
    folder: Path,
) -> dict[str, Any]:
    """Train by the recipe, with states in ``folder``; return steps, seconds and losses."""
    prompts = recipe.prompts.own_keys("query", "document")
    settings = arguments(
        Trainer,
        folder,
        recipe,
        runtime,
        precision,
        max_steps=recipe.steps or -1,
        warmup_steps=recipe.warmup,
        lr_scheduler_type="constant_with_warmup" if recipe.recipe == "tsdae" else "linear",
        weight_decay=0.0 if recipe.recipe in PRETRAINING else 0.01,
        prompts={name: prompts[side] for name, side in _SIDES.items() if side in prompts} or None,
        batch_sampler=_distinct(examples) if recipe.recipe == "genq" else BatchSamplers.BATCH_SAMPLER,
        save_strategy="steps",
        save_steps=SAVED_STEPS,
        save_total_limit=1,
        logging_steps=0.01,  # a share of all steps
    )
    shown = examples.select_columns([name for name in examples.column_names if name != "document"])
    if last := _last_state(folder):
        say(f"resuming from {last}")
    trainer = Trainer(model=model, args=settings, train_dataset=shown, loss=loss, callbacks=[TrainingSteps()])
    trained = trainer.train(resume_from_checkpoint=str(last) if last else None)
    return {
        "examples": len(examples),
        "steps": trained.global_step,
        "resumed_from_step": _step(last) if last else 0,
        "training_seconds": round(trained.metrics["train_runtime"], 1),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
    }


def _last_state(folder: Path) -> Path | None:
    """Return the last complete state, if any. A state's trainer_state.json is written last."""
    for state in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        with suppress(FileNotFoundError, ValueError):
            files.read_json(state / "trainer_state.json")
            return state
    return None


def _step(state: Path) -> int:
    return int(state.name.rpartition("-")[2])


class Trainer(SentenceTransformerTrainer):  # type: ignore[misc]
    """A trainer that saves and restores the loss's own weights (a decoder or a head), too."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.loss, str(folder / "loss.safetensors"))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        load_model(self.loss, Path(checkpoint_path) / "loss.safetensors")


def _distinct(examples: Dataset) -> Callable[..., Any]:
    """Return a batch sampler without duplicate queries or documents in a batch, which would be false negatives."""
    keys = examples.select_columns(["query", "document"])
    return lambda dataset, **options: NoDuplicatesBatchSampler(keys, **options)


def _loss(model: SentenceTransformer, recipe: AdaptRecipe, base: Path) -> Any:
    """Return the recipe's loss, with the model's similarity in float32.

    Raises:
        DataError: transformers has no decoder or no masked language model of the base's kind.
    """
    if recipe.recipe in PRETRAINING:
        try:
            if recipe.recipe == "mlm":
                return MaskedLanguageModelLoss(model, recipe.seed)
            return losses.DenoisingAutoEncoderLoss(model).float()
        except (ValueError, AttributeError, KeyError) as error:
            raise DataError(
                f"{base} is a {model.transformers_model.config.model_type} model: {recipe.recipe} needs "
                f"{_NEEDED[recipe.recipe]}, and transformers has none of that kind"
            ) from error
    scale = SCALE[recipe.similarity]
    cosine = recipe.similarity == "cosine"
    if recipe.recipe == "genq":
        similarity = _in_float32(util.cos_sim if cosine else util.dot_score)
        return losses.MultipleNegativesRankingLoss(model, scale=scale, similarity_fct=similarity)
    return losses.MarginMSELoss(
        model, similarity_fct=_in_float32(util.pairwise_cos_sim if cosine else util.pairwise_dot_score, scale)
    )


class MaskedLanguageModelLoss(torch.nn.Module):
    """A masked language modelling loss on a dense model's transformer.

    It predicts 15% of a document's tokens; of these, the input masks 80%, replaces 10% by random tokens, and keeps 10%.
    The head is the checkpoint's or, without one, a new one. The dense model does not use it afterwards.
    """

    def __init__(self, model: SentenceTransformer, seed: int) -> None:
        super().__init__()
        transformer = model.transformers_model
        self.seed = seed
        self.masking = DataCollatorForLanguageModeling(model.tokenizer, mlm_probability=MASKED)
        name = transformer.config._name_or_path
        self.language_model = AutoModelForMaskedLM.from_pretrained(name, local_files_only=True).float()
        setattr(self.language_model, self.language_model.base_model_prefix, transformer)
        self.language_model.tie_weights()  # ties the head to the dense model's word embeddings

    def forward(self, sentence_features: Any, labels: Any = None) -> torch.Tensor:
        """Return the mean loss of the predicted tokens."""
        [features] = sentence_features
        tokens = features["input_ids"].cpu()
        # The masks depend only on seed and batch, so a resumed training repeats them. Batches differ between epochs, so
        # a document's masks do too.
        digest = hashlib.sha256(f"{self.seed}".encode() + tokens.numpy().tobytes()).digest()
        self.masking.generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
        masked, answers = (part.to(features["input_ids"].device) for part in self.masking.torch_mask_tokens(tokens))
        inputs = {name: value for name, value in features.items() if name in ("attention_mask", "token_type_ids")}
        logits = self.language_model(input_ids=masked, **inputs).logits
        chosen = answers >= 0
        restored = torch.nn.functional.cross_entropy(logits[chosen].float(), answers[chosen], reduction="sum")
        loss: torch.Tensor = restored / chosen.sum().clamp(min=1)  # a small batch may have no chosen token
        return loss


def _in_float32(similarity: Callable[..., torch.Tensor], scale: float = 1.0) -> Callable[..., torch.Tensor]:
    """Scale a similarity and exclude it from autocast: near 100, bfloat16 has steps of 0.5."""

    def scaled(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        with torch.autocast(left.device.type, enabled=False):
            return scale * similarity(left.float(), right.float())

    return scaled
