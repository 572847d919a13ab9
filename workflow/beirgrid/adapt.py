"""Stage adapt: a dense model tuned to a corpus with the sentence-transformers trainer.

GenQ (Thakur et al. 2021) tells the document that a query was written for from the others of its batch;
GPL (Wang et al. 2022) learns a cross-encoder's margins; TSDAE (Wang et al. 2021) restores documents from
the vector of what is left of them when most words are deleted, as a pre-training before either.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import checkpoints, files, generate, provenance
from .collection import count
from .encoders import DenseEncoder, add_compute_arguments, pick_device, pick_precision
from .environment import BATCH_TOKENS
from .errors import DataError

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

# What similarities are multiplied by: cosines span too little for a softmax, or for margins of logits.
SCALE = {"cosine": 20.0, "dot": 1.0}
# Share of the words that TSDAE deletes.
DELETED = 0.6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid adapt``."""
    parser.add_argument("--recipe", required=True, type=json.loads, help="recipe and settings of the model, as JSON")
    parser.add_argument("--base", required=True, type=Path, help="checkpoint to start from")
    parser.add_argument(
        "--examples", required=True, type=Path, help="queries.parquet (GenQ), margins.parquet (GPL), corpus.parquet"
    )
    parser.add_argument("--output", required=True, type=Path, help="checkpoint folder to write")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Train and save the model."""
    recipe = args.recipe
    with provenance.record("adapt", args.made, recipe) as facts:
        device = pick_device(args.device)
        # On a CPU in float32 unless the entry says otherwise: only some multiply bfloat16.
        wanted = recipe.get("precision", args.precision if device == "cuda" else "float32")
        precision = pick_precision(wanted, device)
        with files.atomic(args.output, directory=True) as temporary, files.scratch(f"{args.output}-cache") as cache:
            facts.update(_train(recipe, args, device, precision, cache, temporary))
            facts["files"] = checkpoints.verify(args.output.parent.name, {}, temporary)
        facts.update(device=device, precision=precision, bytes=files.size(args.output))


def _train(
    recipe: dict[str, Any], args: argparse.Namespace, device: str, precision: str, cache: Path, output: Path
) -> dict[str, Any]:
    """Train with the settings of the recipe, save to ``output`` and return steps, seconds and losses."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from transformers import set_seed

    set_seed(recipe["seed"])
    model = _open(args.base, recipe, device)
    examples = _examples(recipe, args.examples, cache)
    tsdae = recipe["recipe"] == "tsdae"
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(cache),
        num_train_epochs=recipe.get("epochs", 1),
        max_steps=recipe.get("steps", -1),
        per_device_train_batch_size=recipe["batch"],
        learning_rate=recipe["learning_rate"],
        warmup_steps=recipe["warmup"],
        lr_scheduler_type="constant_with_warmup" if tsdae else "linear",
        weight_decay=0.0 if tsdae else 0.01,
        prompts=_prompts(recipe, examples.column_names),
        batch_sampler=_distinct(examples) if recipe["recipe"] == "genq" else "batch_sampler",
        seed=recipe["seed"],
        bf16=precision == "bfloat16",
        fp16=precision == "float16",
        use_cpu=device == "cpu",
        save_strategy="no",
        logging_steps=0.01,  # of all steps
        report_to="none",
        disable_tqdm=True,
    )
    shown = examples.select_columns([name for name in examples.column_names if name != "document"])
    trainer = SentenceTransformerTrainer(
        model=model, args=settings, train_dataset=shown, loss=_loss(model, recipe, args.base)
    )
    trained = trainer.train()
    model.save_pretrained(str(output), create_model_card=False)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "examples": len(examples),
        "steps": trained.global_step,
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

    if recipe["recipe"] != "tsdae":
        return Dataset.from_parquet(str(path), cache_dir=str(cache))
    settings = {"corpus": path, "most": recipe["documents"], "seed": recipe["seed"]}
    return Dataset.from_generator(_damaged, cache_dir=str(cache), gen_kwargs=settings)


def _damaged(corpus: Path, most: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield documents and what is left of each when words are deleted at random, at least one."""
    choose = random.Random(seed)
    for documents in generate.read_rows(corpus, generate.sample_rows(count(corpus), most, seed), generate.BLOCK):
        for text in (document.joined for document in documents):
            if words := text.split():
                left = [word for word in words if choose.random() >= DELETED] or [choose.choice(words)]
                yield {"damaged": " ".join(left), "text": text}


def _prompts(recipe: dict[str, Any], columns: list[str]) -> dict[str, str] | None:
    """Return the prompt of each column that has one."""
    roles = {"query": "query", "positive": "document", "negative": "document", "damaged": "document"}
    prompts = recipe.get("prompts", {})
    return {column: prompts[roles[column]] for column in columns if roles.get(column) in prompts} or None


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
    scale, cosine = SCALE[recipe["similarity"]], recipe["similarity"] == "cosine"
    if recipe["recipe"] == "genq":
        similarity = _in_float32(util.cos_sim if cosine else util.dot_score)
        return losses.MultipleNegativesRankingLoss(model, scale=scale, similarity_fct=similarity)
    return losses.MarginMSELoss(
        model, similarity_fct=_in_float32(util.pairwise_cos_sim if cosine else util.pairwise_dot_score, scale)
    )


def _in_float32(similarity: Callable[..., torch.Tensor], scale: float = 1.0) -> Callable[..., torch.Tensor]:
    """Return the similarity, times ``scale``, outside autocast: dot products near 100 have steps of 0.5 in bfloat16."""
    import torch

    def of(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        with torch.autocast(left.device.type, enabled=False):
            return scale * similarity(left.float(), right.float())

    return of
