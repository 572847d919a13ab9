"""Stage train: train a cross-encoder on pairs from a corpus.

It learns positive pairs: relevant judgements, titles with their documents, and sentences with the rest of their
documents. Negatives are other documents that BM25 finds for the query, and random documents. Labels are 1 and 0, or the
similarities of a dense teacher (listwise distillation).
"""

from __future__ import annotations

import json
import random
import re
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.cross_encoder import CrossEncoderTrainer
from sentence_transformers.cross_encoder.losses import ListNetLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer
from transformers import set_seed

from ...collections import collection, training_data
from ...collections import qrels as judgements
from ...config.models import DenseModel
from ...config.recipes import CrossEncoderTraining
from ...config.values import Language, Length, Size
from ...core import files
from ...core.compute import Compute, Runtime
from ...core.errors import DataError
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders.dense import DenseEncoder
from ...encoders.trainers import TrainingSteps, arguments
from ...models import checkpoints
from ...search import lucene

# The teacher's cosines are scaled before the softmax, and the positive gets a bonus over near-duplicates.
TEMPERATURE = 0.05
POSITIVE_BONUS = 1.0
# The head is initialised by ridge regression on HEAD_LISTS ranked lists; RIDGE scales the penalty by the features'
# variance.
HEAD_LISTS = 60
RIDGE = 0.15
# Places of frequent words in BERT's vocabulary, which a compact model keeps too.
FREQUENT = range(1996, 7000)
_WORD = re.compile(r"\w+")


class Positive(NamedTuple):
    """A query with the text of a relevant document."""

    query: str
    document: str
    text: str


class TrainRecipe(CrossEncoderTraining):
    """A reranker's recipe, with the teacher's entry in place of its name."""

    teacher: DenseModel | None = None  # type: ignore[assignment]
    language: Language = "en"
    max_length: Length | None = None


def train(
    *,
    recipe: Annotated[TrainRecipe, "training recipe of the model, JSON"],
    base: Annotated[Artifact, "checkpoint to start from"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    index: Annotated[Artifact, "flat Lucene index of the corpus, for negatives"],
    teacher: Annotated[Artifact | None, "checkpoint of a dense model that labels the pairs"] = None,
    queries: Annotated[Artifact | None, "queries.parquet of the training dataset"] = None,
    qrels: Annotated[Artifact | None, "qrels.tsv of the training dataset"] = None,
    compute: Compute,
    threads: Annotated[Size, "threads of the search for negatives"] = 1,
    output: Annotated[Path, "checkpoint folder to write"],
) -> Facts:
    """Train a cross-encoder on pairs from a corpus.

    Raises:
        DataError: an input is damaged, or there are no training pairs.
    """
    runtime = compute.start()
    documents = {d.id: d for rows in collection.read_documents(corpus) for d in rows}
    positives = _judged(queries, qrels, documents)
    choose = random.Random(recipe.seed)
    for document in documents.values():
        derived = training_data.derive(document, recipe.derive, 1, choose)
        positives += [Positive(query, document.id, text) for query, text in derived]
    if not positives:
        raise DataError("no training pairs: there are no relevant judgements, titles or sentences")
    random.Random(recipe.seed).shuffle(positives)
    positives = positives[: recipe.queries]
    if recipe.dropped_words:
        positives = _with_fewer_words(positives, recipe)
        recipe = recipe.model_copy(update={"epochs": 1})
    examples = _with_negatives(positives, documents, recipe, index, threads)
    if teacher and recipe.teacher:
        _label(examples, teacher, recipe.teacher, runtime)
    with files.atomic(output, directory=True) as temporary:
        seconds = fit_cross_encoder(examples, base, recipe, runtime, temporary)
        digests = checkpoints.digests(temporary)
    pairs = sum(len(example["labels"]) for example in examples)
    return {
        "files": digests,
        "queries": len(positives),
        "pairs": pairs,
        "training_seconds": seconds,
        "device": runtime.kind,
        "bytes": files.size(output),
    }


def _judged(queries: Path | None, qrels: Path | None, documents: dict[str, collection.Document]) -> list[Positive]:
    """Return the relevant pairs of the training dataset, if any."""
    if queries is None or qrels is None:
        return []
    texts = collection.read_queries(queries)
    judged = judgements.read(qrels)
    collection.refuse_unknown(queries, "query", judged, texts)
    return [
        Positive(texts[query], document, documents[document].full_text)
        for query, grades in judged.items()
        for document, grade in grades.items()
        if grade > 0 and document in documents
    ]


def _with_fewer_words(positives: list[Positive], recipe: TrainRecipe) -> list[Positive]:
    """Return the pairs of each pass, without a part of the words that a query shares with its document."""
    choose = random.Random(recipe.seed)
    share = recipe.dropped_words or 0
    found = []
    for _ in range(recipe.epochs):
        for positive in positives:
            shared = set(_WORD.findall(positive.text.casefold()))
            words = [
                word
                for word in positive.query.split()
                if shared.isdisjoint(_WORD.findall(word.casefold())) or choose.random() >= share
            ]
            found.append(positive._replace(query=" ".join(words) or positive.query))
    return found


def _with_negatives(
    positives: list[Positive], documents: dict[str, collection.Document], recipe: TrainRecipe, index: Path, threads: int
) -> list[dict[str, Any]]:
    """Build one listwise example per positive: query, documents (positive first) and labels."""
    choose = random.Random(recipe.seed)
    queries = [positive.query for positive in positives]
    options = {"depth": recipe.negative_depth, "threads": threads, "memory_mb": 1000}
    rankings = lucene.search_texts(index, queries, language=recipe.language, **options)
    relevant: dict[str, set[str]] = {}
    for positive in positives:
        relevant.setdefault(positive.query, set()).add(positive.document)
    everything = list(documents)
    examples = []
    for positive, ranked in zip(positives, rankings, strict=True):
        known = relevant[positive.query]
        hard = [document for document in ranked if document not in known]
        negatives = choose.sample(hard, min(len(hard), recipe.hard_negatives))
        most = recipe.hard_negatives + recipe.random_negatives  # BM25 may find fewer; random documents fill up
        for document in choose.sample(everything, min(len(everything), 3 * most)):
            if len(negatives) < most and document not in known and document not in negatives:
                negatives.append(document)
        texts = [positive.text, *(documents[negative].full_text for negative in negatives)]
        examples.append({"query": positive.query, "docs": texts, "labels": [1.0] + [0.0] * len(negatives)})
    return examples


def _label(examples: list[dict[str, Any]], teacher: Path, entry: DenseModel, runtime: Runtime) -> None:
    """Replace the labels by a dense teacher's logits. The loss takes the softmax of labels and scores."""
    encoder = DenseEncoder(teacher, entry.model_copy(update={"similarity": "cosine"}), runtime)
    texts = list(dict.fromkeys(text for example in examples for text in example["docs"]))
    reading = Progress("teach", len(texts), "documents")
    vectors = dict(zip(texts, encoder.encode_documents(texts, progress=reading), strict=True))
    queries = encoder.encode_queries([example["query"] for example in examples])
    for example, query in zip(examples, queries, strict=True):
        example["labels"] = [float(query @ vectors[text]) / TEMPERATURE for text in example["docs"]]
        example["labels"][0] += POSITIVE_BONUS


def fit_cross_encoder(
    examples: list[dict[str, Any]], base: Path, recipe: TrainRecipe, runtime: Runtime, output: Path
) -> float:
    """Train a cross-encoder on lists (query, docs, labels), save it to ``output``, and return the seconds."""
    set_seed(recipe.seed)
    model = _cross_encoder(base, recipe, runtime)
    if recipe.layers or recipe.compact:
        _cut(model[0], recipe, {text for example in examples for text in (example["query"], *example["docs"])})
    _fit_head(model, examples)
    options: dict[str, Any] = {"warmup_steps": 0.1, "save_strategy": "no", "logging_steps": 20}
    settings = arguments(CrossEncoderTrainer, output, recipe, runtime, runtime.resolve(wide=True), **options)
    rows = Dataset.from_list(examples)
    loss = ListNetLoss(model)
    steps = TrainingSteps()
    trainer = CrossEncoderTrainer(model=model, args=settings, train_dataset=rows, loss=loss, callbacks=[steps])
    seconds: float = round(trainer.train().metrics["train_runtime"], 1)
    if recipe.compact:
        model.half()
    model.save_pretrained(str(output), create_model_card=False)
    return seconds


def _cross_encoder(base: Path, recipe: TrainRecipe, runtime: Runtime) -> CrossEncoder:
    """Build a cross-encoder with a linear layer over the first and the mean token vector.

    The usual head, an untrained pooler over the first token, needs longer training than a demonstration allows.
    """
    transformer = Transformer(
        str(base),
        processor_kwargs={"model_max_length": recipe.max_length} if recipe.max_length else None,
        # On a CPU, eager attention has the faster backward pass.
        model_kwargs={"attn_implementation": "eager"} if runtime.kind == "cpu" else None,
        # Training takes minutes and does not overfit, so dropout only slows it down.
        config_kwargs={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    )
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode=("cls", "mean"))
    width = pooling.get_embedding_dimension()
    head = Dense(width, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    return CrossEncoder(modules=[transformer, pooling, head], num_labels=1, device=runtime.device)


def _cut(transformer: Transformer, recipe: TrainRecipe, texts: set[str]) -> None:
    """Keep the first layers of a BERT, and the word pieces of texts with the letters that spell other words."""
    model = transformer.auto_model
    tokenizer = transformer.tokenizer
    if model.config.model_type != "bert":
        raise DataError(f"train.layers and train.compact cut a BERT, and the base is a {model.config.model_type}")
    model.encoder.layer = model.encoder.layer[: recipe.layers]
    model.config.num_hidden_layers = len(model.encoder.layer)
    if recipe.compact:
        read = {number for text in texts for number in tokenizer(text)["input_ids"]}
        pieces = sorted(tokenizer.vocab.items(), key=itemgetter(1))
        last_special = max(tokenizer.all_special_ids)  # special tokens come first and keep their numbers
        kept = [
            (piece, number)
            for piece, number in pieces
            if number in read
            or number <= last_special
            or number in FREQUENT
            or (piece.isascii() and len(piece.removeprefix("##")) == 1)
        ]
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        backend["model"]["vocab"] = {piece: number for number, (piece, _) in enumerate(kept)}
        tokenizer._tokenizer = Tokenizer.from_str(json.dumps(backend))
        weights = model.get_input_embeddings().weight.detach()[[number for _, number in kept]]
        embeddings = torch.nn.Embedding(len(kept), weights.shape[1], padding_idx=0, _weight=weights)
        # Words that training lacks keep their place beside those that it has.
        model.set_input_embeddings(embeddings.requires_grad_(False))
        model.config.vocab_size = len(kept)


def _fit_head(model: CrossEncoder, examples: list[dict[str, Any]]) -> None:
    """Initialise the linear layer by ridge regression of labels on pooled features, both centred within each list."""
    model.eval()
    features = []
    targets = []
    fitted = Progress("fit the head", len(examples[:HEAD_LISTS]), "lists")
    with torch.inference_mode():
        for example in examples[:HEAD_LISTS]:
            pairs = [(example["query"], text) for text in example["docs"]]
            inputs = batch_to_device(model.preprocess(pairs), model.device)
            pooled = model[1](model[0](inputs))["sentence_embedding"].double()
            labels = torch.tensor(example["labels"], dtype=torch.float64, device=pooled.device)
            features.append(pooled - pooled.mean(0))
            targets.append(labels - labels.mean())
            fitted.add(1)
        x = torch.cat(features)
        y = torch.cat(targets)
        identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        ridge = RIDGE * len(x) * x.var() * identity
        weight = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
        model[2].linear.weight.copy_(weight[None])
        model[2].linear.bias.zero_()
