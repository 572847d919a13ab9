"""Check models against other entries: models of their training, datasets, endpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ..core.errors import nearest
from . import entries, lock
from .endpoint_entries import Endpoint, Price
from .entries import Config

# Families of which a server can run models, and the keys of an entry that go with an endpoint, beside those of every
# entry that describe the model.
_SERVED = ("dense", "cross-encoder", "listwise-reranker")
_OF_WEIGHTS = ("checkpoint", "revision", "path", "package", "files", "pickled", "adapter")
_NOT_SERVED = (*_OF_WEIGHTS, "trust_remote_code", "max_length", "precision", "pooling", "brackets")


def unknown(where: str, kind: str, name: str | None, known: Iterable[str]) -> Iterator[str]:
    """Yield a problem if a name is unknown."""
    if name not in (known := list(known)):
        yield f"{where}: no {kind} is named {name!r}{nearest(str(name), known)}"


def trained_on_problems(where: str, stated: entries.TrainedOn | None, config: Config) -> Iterator[str]:
    """Yield names of training data that are neither datasets nor corpora."""
    for name in stated.names if stated else ():
        yield from unknown(f"{where}.trained_on", "dataset or corpus", name, [*config.datasets, *config.corpora])


def model_problems(name: str, model: entries.ModelEntry, config: Config) -> Iterator[str]:
    """Yield problems of a model's entry."""
    where = f"models.{name}"
    if name == "bm25":
        yield f"{where}: 'bm25' stands for Lucene in a system's entry; the model needs another name"
    if model.training:
        for key in ("path", "package", "checkpoint", "endpoint", "revision", "files", "adapter"):
            if key in model.model_fields_set:
                yield f"{where}: a model is either trained or has {key}, not both"
        yield from _training_problems(name, model, model.training, config)
    elif model.endpoint:
        yield from _endpoint_problems(where, model, model.endpoint)
    elif getattr(model, "engine", None):
        yield from _loaded_problems(where, model)
    elif not model.origin:
        yield f"{where}: needs a checkpoint with its revision, or a path, package, endpoint or train"
    elif model.origin == "checkpoint" and model.revision is None:
        yield (
            f"{where}: needs a revision (40 hex digits), so that the numbers stay the same when the hub changes; "
            f"'{lock.RESOLVE}' asks the hub for it once"
        )
    if isinstance(model, entries.ListwiseReranker) and model.step > model.window:
        yield f"{where}.step: {model.step} is more than the window of {model.window}, so documents would be left out"
    if model.adapter and not (model.adapter.path or (model.adapter.checkpoint and model.adapter.revision)):
        yield f"{where}.adapter: needs a path, or a checkpoint with its revision"
    if getattr(model, "chunks", None):
        yield from chunk_problems(where, name, config)
    if model.package and not model.files:
        yield f"{where}: weights from a package need their SHA-256 under 'files'"
    yield from trained_on_problems(where, model.trained_on, config)
    if (model.size.embeddings or 0) > (model.size.parameters or math.inf):
        yield f"{where}.size: embeddings are more than parameters, which include them"
    if isinstance(model, entries.QueryGenerator) and {"query", "datasets"} & model.prompts.model_fields_set:
        yield f"{where}.prompts: a query generator reads documents only"
    if (
        isinstance(model, entries.DenseModel)
        and model.brackets
        and None in (model.brackets.query, model.brackets.document)
    ):
        yield f"{where}.brackets: queries and documents need two tokens each"
    yield from _query_side_problems(where, model, config)


def chunk_problems(where: str, name: str, config: Config) -> Iterator[str]:
    """Yield why documents cannot be read in chunks by a model."""
    model = config.models.get(name)
    if model and "chunks" not in type(model).model_fields:
        yield f"{where}.chunks: {name!r} is a {model.family} model, which reads whole documents: leave chunks out"
    elif model and (model.endpoint or getattr(model, "engine", None)):
        runs = "a server" if model.endpoint else "mteb's loader"
        yield f"{where}.chunks: {runs} runs {name!r}, whose tokens are not known here: leave chunks out"


def head_problems(where: str, name: str, config: Config) -> Iterator[str]:
    """Yield why a model has no heads beside its dense one."""
    model = config.models.get(name)
    if isinstance(model, entries.DenseModel):
        for key in ("endpoint", "engine", "train", "query_model", "chunks", "brackets"):
            if getattr(model, key):
                yield f"{where}.head: {name!r} has the key {key!r}, which does not go with head"
        if model.prompts.query or model.prompts.document or model.prompts.datasets:
            yield f"{where}.head: {name!r} has prompts, and its other heads read texts without them"
    elif model:
        yield f"{where}.head: {name!r} is a {model.family} model; a dense model with the heads of BGE-M3 is needed"


def _endpoint_problems(where: str, model: entries.ModelEntry, endpoint: Endpoint) -> Iterator[str]:
    if model.family not in _SERVED:
        yield f"{where}.endpoint: a server can run {', '.join(_SERVED)} models here, and this is a {model.family} model"
    for key in _NOT_SERVED:
        if key in model.model_fields_set:
            yield f"{where}: the key {key!r} does not go with endpoint: the server has the weights"
    if model.prefixes.own:
        yield f"{where}.prompts.own: a server does not tell the prompts of a model: name them"
    if endpoint.url is None:
        yield f"{where}.endpoint: needs the key 'url'"
    if endpoint.budget and endpoint.price == Price():
        yield f"{where}.endpoint: a budget needs a price"


def _loaded_problems(where: str, model: entries.ModelEntry) -> Iterator[str]:
    if model.checkpoint is None or (model.path is None and model.revision is None):
        yield f"{where}: engine: mteb needs the checkpoint, as mteb lists it, and its revision (or a path to its files)"
    for key in ("prompts", "pooling", "brackets", "special_tokens", "max_length", "precision"):
        if key in model.model_fields_set:
            yield f"{where}: the key {key!r} does not go with engine: mteb, whose loader decides that"


def _query_side_problems(where: str, model: entries.ModelEntry, config: Config) -> Iterator[str]:
    for dataset in model.prefixes.datasets:
        yield from unknown(f"{where}.prompts.datasets", "dataset", dataset, config.datasets)
    if isinstance(model, entries.LateInteractionModel):
        for dataset in model.query_lengths:
            yield from unknown(f"{where}.query_lengths", "dataset", dataset, config.datasets)
    if model.query_tower:
        at = f"{where}.query_model"
        yield from use_problems(at, model.query_tower, [model.family], config)
        tower = config.models.get(model.query_tower)
        if isinstance(tower, entries.DenseModel) and tower.similarity != getattr(model, "similarity", None):
            yield f"{at}: {model.query_tower!r} has another similarity ({tower.similarity})"
        if tower and tower.query_tower:
            yield f"{at}: {model.query_tower!r} itself has a query_model"


def use_problems(
    where: str, name: str, families: Iterable[str], config: Config, also: Iterable[str] = ()
) -> Iterator[str]:
    """Yield problems of using a model where only some families are allowed."""
    yield from unknown(where, "model", name, [*config.models, *also])
    families = list(families)
    if name in config.models and (family := config.models[name].family) not in families:
        yield f"{where}: {name!r} is a {family} model; a {' or '.join(families)} model is needed here"


def _training_problems(name: str, model: entries.ModelEntry, train: entries.Training, config: Config) -> Iterator[str]:
    where = f"models.{name}.train"
    miners = train.dense_miners if isinstance(train, entries.Gpl) else ()
    for other in dict.fromkeys([*train.models.values(), *miners]):
        if other in config.models and config.models[other].endpoint:
            yield f"{where}: a server runs {other!r}, and training needs weights"
    if train.corpus is not None:
        yield from unknown(f"{where}.corpus", "corpus", train.corpus, config.corpora)
    if isinstance(train, entries.CrossEncoderTraining):
        yield from _reranker_problems(where, train, config)
    elif isinstance(train, entries.Adaptive):
        yield from _adaptation_problems(name, model, train, config)


def _reranker_problems(where: str, train: entries.CrossEncoderTraining, config: Config) -> Iterator[str]:
    if train.teacher:
        yield from use_problems(f"{where}.teacher", train.teacher, ["dense"], config)
    yield from unknown(f"{where}.base", "model", train.base, config.models)
    for key, other in train.models.items():
        if other in config.models and config.models[other].training:
            yield f"{where}.{key}: {other!r} is itself trained"
    if train.dataset is None:
        if not train.derive:
            yield f"{where}: needs training pairs: a dataset, or derive: [titles, sentences]"
        return
    yield from unknown(f"{where}.dataset", "dataset", train.dataset, config.datasets)
    dataset = config.datasets.get(train.dataset)
    if dataset and dataset.mean_of:
        yield f"{where}.dataset: {train.dataset!r} is a mean of datasets"
    elif dataset and dataset.corpus != train.corpus:
        yield f"{where}.dataset: {train.dataset!r} is over corpus {dataset.corpus!r}, not {train.corpus!r}"


def _adaptation_problems(
    name: str, model: entries.ModelEntry, train: entries.Adaptive, config: Config
) -> Iterator[str]:
    """Yield problems of a dense model that is adapted to a corpus."""
    where = f"models.{name}.train"
    yield from use_problems(f"{where}.base", train.base, ["dense"], config)
    base = config.models.get(train.base)
    if base and base.training:
        if base.training.name not in entries.PRETRAINING or train.name in entries.PRETRAINING:
            allowed = f"only genq and gpl can start from a {' or '.join(entries.PRETRAINING)} model"
            yield f"{where}.base: {train.base!r} is itself trained ({allowed})"
        if base.training.corpus not in (None, train.corpus):
            yield f"{where}.base: {train.base!r} is trained on corpus {base.training.corpus!r} alone"
    retrievers = getattr(train, "retrievers", None) or ()
    for other in (train.base, *retrievers):
        if other in config.models and config.models[other].query_tower:
            yield f"{where}: {other!r} has two towers; only models of one can be trained or mine negatives"
    if any(isinstance(one, entries.DenseModel) and one.brackets for one in (base, model)):
        yield f"{where}: training puts no brackets around texts: neither model nor base can have 'brackets'"
    if isinstance(base, entries.DenseModel) and base.similarity != getattr(model, "similarity", None):
        yield f"models.{name}.similarity: its base {train.base!r} has {base.similarity}, which training keeps"
    if isinstance(train, entries.WithQueries):
        if (train.generator is not None) == bool(train.derive):
            yield f"{where}: needs queries from a generator or from derive: [titles, sentences], one of them"
        if train.generator:
            yield from use_problems(f"{where}.generator", train.generator, ["query-generator"], config)
    if isinstance(train, entries.Gpl):
        yield from use_problems(f"{where}.teacher", train.teacher, ["cross-encoder"], config)
    for other in retrievers:
        yield from use_problems(f"{where}.retrievers", other, ["dense"], config, also=["bm25"])
        if other != train.base and other in config.models and config.models[other].training:
            yield f"{where}.retrievers: {other!r} is itself trained"
    for other in config.models if train.corpus is None else ():
        if other.startswith(f"{name}@"):
            yield f"models.{other}: names of this form are those of models.{name} for each corpus"
