"""Rules of several entries: names exist, and nothing makes a number wrong or loses work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ..core import files, paths
from ..core.checkout import is_folder, resolve_path
from ..core.families import RERANKERS
from ..measures import parse_metric
from . import entries, lock
from .datasets import is_unjudged
from .entries import Config
from .values import unread_by_bm25


def entry_problems(config: Config) -> Iterator[str]:
    """Yield conflicts between an entry and the entries that it names."""
    try:
        layers(config.systems)
    except CycleError as error:
        yield f"systems {' → '.join(reversed(error.args[1]))} form a cycle"
    for name, dataset in config.datasets.items():
        yield from _dataset_problems(f"datasets.{name}", dataset, config)
    for name, model in config.models.items():
        yield from _model_problems(name, model, config)
    for name, system in config.systems.items():
        yield from _system_problems(f"systems.{name}", system, config)


def _dataset_problems(where: str, dataset: entries.Dataset, config: Config) -> Iterator[str]:
    means = (part for part in dataset.mean_of if config.datasets[part].mean_of)
    yield from (f"{where}.mean_of: {part!r} is itself a mean" for part in means)
    corpus = config.corpora[dataset.corpus] if dataset.corpus else None
    if corpus and dataset.dev:
        yield from _dev_problems(f"{where}.dev", dataset, config.datasets[dataset.dev], corpus)
    unread = {"id", "revision"} if isinstance(corpus, entries.MtebCorpus | entries.LocalCorpus) else {"revision"}
    if corpus and corpus.source != "huggingface" and not (corpus.source == "local" and corpus.id):
        for key in sorted(unread & dataset.model_fields_set):
            yield f"{where}.{key}: nothing reads it over a corpus with source: {corpus.source}; leave it out"
    if isinstance(corpus, entries.IrDatasetsCorpus) and (dataset.id is None or "split" in dataset.model_fields_set):
        yield f"{where}: of a corpus of ir_datasets, it needs the key id, which names the split too (beir/fiqa/test)"
    if isinstance(corpus, entries.HubCorpus) and (dataset.id is None) != (dataset.revision is None):
        yield f"{where}: an id on the Hugging Face hub and its revision (40 hex digits) go together"


def _dev_problems(where: str, dataset: entries.Dataset, dev: entries.Dataset, corpus: entries.Corpus) -> Iterator[str]:
    """Yield why a dataset cannot be tuned on the queries of another one."""
    if dev.corpus != dataset.corpus:
        yield f"{where}: {dataset.dev!r} has another corpus than {dataset.corpus!r}"
    elif dev.qrels(corpus) == dataset.qrels(corpus):
        yield f"{where}: {dataset.dev!r} has the same qrels; tuning needs other queries"


def _model_problems(name: str, model: entries.ModelEntry, config: Config) -> Iterator[str]:
    where = f"models.{name}"
    train = model.training
    if model.query_tower:
        tower = config.models[model.query_tower]
        alike = all(getattr(tower, key, None) == getattr(model, key, None) for key in ("family", "similarity"))
        if not alike or tower.query_tower:
            yield f"{where}.query_model: needs a model of the same family and similarity without a query_model"
    judged = config.datasets.get(getattr(train, "dataset", None) or "")
    if train and judged and judged.corpus != train.corpus:
        yield f"{where}.train.dataset: has another corpus than {train.corpus!r}"
    if train:
        for key, other in train.parts:
            yield from (f"{where}.train.{key}: {other!r} {why}" for why in _unfit(key, config.models[other], train))
    pair = (model, config.models[train.base]) if isinstance(train, entries.Adaptive) else ()
    if any(getattr(entry, "brackets", None) for entry in pair):
        yield f"{where}.train: training puts no brackets around texts: neither model nor base can have 'brackets'"


def _unfit(key: str, other: entries.ModelEntry, train: entries.Training) -> Iterator[str]:
    """Yield why a model cannot be a part of a training."""
    if other.endpoint:
        yield "is run by a server, and training needs weights"
    adapts = isinstance(train, entries.Adaptive)
    before = other.training
    if adapts and other.query_tower:
        yield "has two towers; only models of one can be trained or mine negatives"
    if before and not (adapts and key == "teacher"):
        if key != "base" or before.name not in entries.PRETRAINING or train.name not in ("genq", "gpl"):
            yield f"is itself trained (only genq and gpl can start from a {' or '.join(entries.PRETRAINING)} model)"
        elif before.corpus not in (None, train.corpus):
            yield f"is trained on corpus {before.corpus!r} alone"


def _system_problems(where: str, system: entries.SystemEntry, config: Config) -> Iterator[str]:
    for key, part in system.references("systems"):
        if system.over and (kind := config.systems[part].kind) not in system.over:
            article = "an" if kind == "external" else "a"
            needed = " or ".join(system.over)
            yield f"{where}.{key}: {part!r} is {article} {kind} system; a {needed} system is needed here"
    if isinstance(system, entries.Rewritten):
        yield from _rewriting_problems(where, system, config)
    name = str(getattr(system, "reranker", None) or getattr(system, "retriever", ""))
    if not (model := config.models.get(name)):
        return
    whole = "chunks" not in type(model).model_fields or model.endpoint or getattr(model, "engine", None)
    if getattr(system, "chunks", None) and whole:
        yield f"{where}.chunks: {name!r} reads whole documents, or its tokens are not known here: leave chunks out"
    if isinstance(system, entries.Reranked) and not system.head:
        yield from _reranker_problems(where, system, model, config)


def _rewriting_problems(where: str, system: entries.Rewritten, config: Config) -> Iterator[str]:
    """Yield why a model cannot read the passages of hyde beside the queries."""
    first = config.systems[system.first_stage]
    model = config.models.get(getattr(first, "retriever", ""))
    keys = [key for key in ("query_model", "chunks") if getattr(model, key, None) or getattr(first, key, None)]
    if keys and system.query.method == "hyde":
        yield f"{where}.first_stage: {keys[0]} does not go with hyde: one model reads queries and whole passages"


def _reranker_problems(
    where: str, system: entries.Reranked, model: entries.ModelEntry, config: Config
) -> Iterator[str]:
    if model.family not in RERANKERS:
        yield f"{where}.reranker: {system.reranker!r} is a {model.family} model; a cross-encoder model is needed here"
    elif model.query_tower:
        yield f"{where}.reranker: {system.reranker!r} has a query_model; a reranker reads both texts with one model"
    if isinstance(model, entries.ListwiseReranker):  # its order depends on the number of documents
        pair = (system.first_stage, system.reranker)
        reranked = [other for other in config.systems.values() if isinstance(other, entries.Reranked)]
        if len({other.depth for other in reranked if (other.first_stage, other.reranker) == pair}) > 1:
            yield f"{where}.depth: systems let one listwise model order other numbers of documents"


def _without_heads(model: entries.ModelEntry) -> Iterator[str]:
    """Yield why a model has no vectors beside one per text."""
    if not isinstance(model, entries.DenseModel):
        yield f"is a {model.family} model; a dense model is needed here"
        return
    keys = [
        key
        for key in ("endpoint", "engine", "train", "query_model", "chunks", "brackets", "special_tokens")
        if getattr(model, key)
    ]
    if model.separator != type(model).model_fields["separator"].default:
        keys.append("separator")
    if model.prompts.query or model.prompts.document or model.prompts.datasets:
        keys.append("prompts")
    yield from (f"has the key {key!r}, which does not go with head" for key in keys)


def layers(systems: Mapping[str, entries.SystemEntry]) -> dict[str, int]:
    """Return how many reranking and fusion steps each system has, components first; raise CycleError for a cycle."""
    depths: dict[str, int] = {}
    for name in TopologicalSorter({name: system.parts for name, system in systems.items()}).static_order():
        depths[name] = max((1 + depths[part] for part in systems[name].parts), default=0)
    return depths


def with_parts(systems: Mapping[str, entries.SystemEntry], names: Iterable[str]) -> list[str]:
    """Return the named systems and their components, components first, each once."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in ordered:
            for part in systems[name].parts:
                add(part)
            ordered[name] = None

    for name in names:
        add(name)
    return list(ordered)


def models_of(config: Config, system: entries.SystemEntry) -> list[str]:
    """Return the models that a system itself runs, including its query encoder."""
    parts = filter(None, (system, getattr(system, "query", None)))
    models = [name for part in parts for _, name in part.references("models") if name in config.models]
    return [*models, *(tower for name in models if (tower := config.models[name].query_tower))]


def models_behind(config: Config, systems: Iterable[str]) -> list[str]:
    """Return the models of systems, components and trainings (bases, teachers, generators), by name."""
    parts = with_parts(config.systems, systems)
    behind: set[str] = set()
    left = [model for name in parts for model in models_of(config, config.systems[name])]
    while left:
        if (name := left.pop()) not in behind:
            behind.add(name)
            train = config.models[name].training
            left += [other for _, other in train.parts] if train else []
    return sorted(behind)


def searched_datasets(config: Config) -> dict[str, entries.Dataset]:
    """Return the datasets of the grid that are searched: the parts in place of a mean."""
    rows = (part for row in config.grid.datasets for part in config.datasets[row].mean_of or (row,))
    return {row: config.datasets[row] for row in rows}


def absent_folder(corpus: entries.CorpusEntry) -> Path | None:
    """Return the absent folder of a collection that the user must supply; None if it is there."""
    if not isinstance(corpus, entries.LocalCorpus) or not corpus.supplied:
        return None
    folder = resolve_path(corpus.path)
    return None if is_folder(folder) else folder


def grid_problems(config: Config) -> Iterator[str]:
    """Yield problems of the combination of the grid's systems, datasets, metrics and models."""
    deepest = config.retrieve.depth
    for name in with_parts(config.systems, config.grid.systems):
        yield from _column_problems(name, config.systems[name], config)
    tuned = (getattr(config.systems[name], "metric", None) for name in with_parts(config.systems, config.grid.systems))
    for metric in dict.fromkeys([*config.metrics, *filter(None, tuned)]):
        if parse_metric(metric).k > deepest:
            yield f"metrics: {metric} looks deeper than the runs are (retrieve.depth is {deepest})"
    for name in models_behind(config, config.grid.systems):
        yield from _leakage_problems(config, name)
        if config.models[name].revision == lock.RESOLVE and (checkpoint := config.models[name].checkpoint):
            yield from _lock_problems(name, checkpoint)


def _column_problems(name: str, system: entries.SystemEntry, config: Config) -> Iterator[str]:
    """Yield problems of a system with the datasets of the grid, and with models that a grid reads in its own way."""
    where = f"systems.{name}"
    datasets = searched_datasets(config)
    yield from (f"{where}.{problem}" for problem in system.conflicts(config))
    if getattr(system, "head", None):  # a registered model may have other keys than the grids with its heads need
        model = models_of(config, system)[0]
        yield from (f"{where}.head: {model!r} {why}" for why in _without_heads(config.models[model]))
    if isinstance(system, entries.Fused) and system.learns:
        yield from _tuning_problems(config, name, system)
    if isinstance(system, entries.External) and "{dataset}" not in system.run and len(datasets) > 1:
        yield f"{where}.run: {system.run!r} names one file for {len(datasets)} datasets; put {{dataset}} in it"
    if isinstance(system, entries.DenseRetriever) and system.variant:
        chunks = system.chunks or getattr(config.models[system.retriever], "chunks", None)
        if chunks and chunks.aggregate == "max":
            exact = "with aggregate: max, the search is exact, in all dimensions"
            yield f"{where}.chunks: {exact}: leave out index and dimensions, or take aggregate: mean"
    if isinstance(system, entries.Bm25):
        yield from _language_problems(name, config, {dataset.corpus or "" for dataset in datasets.values()})


def _language_problems(name: str, config: Config, corpora: set[str]) -> Iterator[str]:
    """Yield why BM25 cannot read corpora in their languages."""
    for corpus in sorted(corpora):
        language = config.corpora[corpus].language
        if why := unread_by_bm25(language):
            yield f"corpora.{corpus}.language: {name!r} cannot read {language!r}: {why}"


def _tuning_problems(config: Config, name: str, system: entries.Fused) -> Iterator[str]:
    """Yield why a fusion cannot be tuned: queries are missing, or have taught what is below the fusion."""
    where = f"systems.{name}"
    below = with_parts(config.systems, system.of)
    for part in below:
        if isinstance(entry := config.systems[part], entries.Fused) and entry.learns:
            yield f"{where}.of: {part!r} is tuned itself, and the same queries cannot choose twice"
    for row, dataset in searched_datasets(config).items():
        corpus = config.corpora[str(dataset.corpus)]
        if system.tuned == "folds":
            if is_unjudged(corpus):
                yield f"{where}.tuned: {row!r} has no qrels, which choose by folds"
            continue
        if dataset.dev is None:
            yield (
                f"{where}: no dev queries of {row!r} are known, on which to tune it: name their dataset in "
                f"datasets.{row}.dev, or write tuned: folds"
            )
            continue
        tuning = config.datasets[dataset.dev].qrels(corpus)
        yield from (
            f"{where}: {model!r} is trained on {dataset.dev!r}, so nothing above it can be tuned on these queries"
            for model in models_behind(config, below)
            if _trained_on(config, model) == tuning
        )


def _trained_on(config: Config, model: str) -> tuple[str, str] | None:
    """Return the qrels on which the workflow trains a model, if it does."""
    train = config.models[model].training
    if isinstance(train, entries.CrossEncoderTraining) and train.dataset:
        return config.datasets[train.dataset].qrels(config.corpora[train.corpus])
    return None


def _leakage_problems(config: Config, model: str) -> Iterator[str]:
    """Yield datasets of the grid on whose qrels a model of the grid, or a model behind it, is trained."""
    trained = _trained_on(config, model)
    for name, tested in searched_datasets(config).items():
        if tested.qrels(config.corpora[str(tested.corpus)]) == trained:
            yield f"grid.datasets: {model!r} is trained on {name!r}, so it cannot be evaluated on this dataset"


def _lock_problems(model: str, checkpoint: str) -> Iterator[str]:
    """Yield a problem if the lock file names another commit than the fetched one."""
    locked = lock.read().get(checkpoint, {}).get("commit")
    record = Path(paths.MODEL_RECORD.format(model=model))
    try:
        fetched = files.read_json(record)["facts"].get("commit")
    except (OSError, ValueError, KeyError):  # not fetched yet
        return
    if locked and fetched and locked != fetched:
        yield (
            f"models.{model}: {record.parent} was fetched at commit {fetched}, {lock.LOCK} says {locked}. Remove that "
            f"folder to fetch the other commit and make all that follows from it again, or restore {lock.LOCK}"
        )


def absent_folders(config: Config) -> Iterator[str]:
    """Yield the user's folders that the grid reads and that are not there, or lie where the workflow replaces files."""
    places: dict[str, str | None] = {}
    for corpus in sorted({dataset.corpus or "" for dataset in searched_datasets(config).values()}):
        entry = config.corpora[corpus]
        if isinstance(entry, entries.LocalCorpus) and not entry.supplied:
            places[f"corpora.{corpus}.path"] = entry.path
    places |= {f"models.{name}.path": config.models[name].path for name in models_behind(config, config.grid.systems)}
    for where, path in ((where, resolve_path(place)) for where, place in places.items() if place is not None):
        if not is_folder(path):
            yield f"{where}: there is no folder {path}"
        elif path.resolve().is_relative_to(Path("results").absolute()):
            yield f"{where}: {path} lies in results/, whose files the workflow replaces; move it out of there"
