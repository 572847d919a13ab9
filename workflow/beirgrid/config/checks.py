"""Check entries against each other: names exist, families match, folders are present."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ..core import files, paths
from ..core.errors import DataError, nearest
from ..core.families import RERANKERS
from . import entries, lock
from .entries import Config
from .indexes import IvfPq
from .metric_names import parse_metric
from .places import both_forms, find_local, is_file, is_folder, local_forms, resolve_path, run_file, splits
from .values import Refers, unread_by_bm25


def registry_problems(config: Config) -> Iterator[str]:
    """Yield problems of references between entries, and from settings to entries."""
    yield from _reference_problems("grid", config.grid, config)
    for kind in ("corpora", "datasets", "models", "systems"):
        yield from _case_problems(kind, getattr(config, kind))
        for name, entry in getattr(config, kind).items():
            yield from _reference_problems(f"{kind}.{name}", entry, config)
    for name, dataset in config.datasets.items():
        yield from _dataset_problems(f"datasets.{name}", dataset, config)
    for name, model in config.models.items():
        yield from _model_problems(name, model, config)
    for name, system in config.systems.items():
        yield from _system_problems(f"systems.{name}", system, config)
    for name in config.grid.datasets:
        if name in config.datasets:
            yield from _supply_problems(name, config)


def _reference_problems(where: str, entry: entries.Entry, config: Config) -> Iterator[str]:
    """Yield names in an entry, and in the entries below it, that are unknown, or of a model of another family."""
    for key, field in type(entry).model_fields.items():
        value, place = getattr(entry, key), f"{where}.{key}"
        if isinstance(value, entries.Entry):
            yield from _reference_problems(place, value, config)
            continue
        for refers in field.metadata if value is not None else ():
            if isinstance(refers, Refers):
                for name in [value] if isinstance(value, str) else value:
                    yield from _name_problems(place, name, refers, config)


def _name_problems(where: str, name: str, refers: Refers, config: Config) -> Iterator[str]:
    known = {*refers.also}.union(*(getattr(config, registry) for registry in refers.registries))
    if name not in known:
        kind = " or ".join(_ONE[registry] for registry in refers.registries)
        yield f"{where}: no {kind} is named {name!r}{nearest(name, known)}"
    elif refers.families and name in config.models and (family := config.models[name].family) not in refers.families:
        yield f"{where}: {name!r} is a {family} model; a {' or '.join(refers.families)} model is needed here"


_ONE = {"corpora": "corpus", "datasets": "dataset", "models": "model", "systems": "system"}


def _case_problems(kind: str, names: Iterable[str]) -> Iterator[str]:
    """Yield names that differ only in case, which macOS and Windows file systems do not distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            yield f"{kind}: {other!r} and {name!r} differ by case only, so their files may be the same ones"


def _dataset_problems(where: str, dataset: entries.Dataset, config: Config) -> Iterator[str]:
    for part in dataset.mean_of:
        if part in config.datasets and config.datasets[part].mean_of:
            yield f"{where}.mean_of: {part!r} is itself a mean"
    corpus = config.corpora.get(dataset.corpus or "")
    if isinstance(corpus, entries.IrDatasetsCorpus):
        if dataset.id is None:
            yield f"{where}: its corpus comes from ir_datasets, so it needs the key 'id'"
        if "split" in dataset.model_fields_set:
            yield f"{where}: the key 'split' does not go with ir_datasets, whose ids name it (beir/fiqa/test)"
    if isinstance(corpus, entries.HubCorpus) and (dataset.id is None) != (dataset.revision is None):
        yield f"{where}: an id on the Hugging Face hub and its revision (40 hex digits) go together"
    if (dev := config.datasets.get(dataset.dev or "")) is None:
        return
    if dataset.mean_of or dev.corpus != dataset.corpus:
        yield f"{where}.dev: {dataset.dev!r} has another corpus"
    elif (dev.id, dev.revision, dev.split) == (dataset.id, dataset.revision, dataset.split):
        yield f"{where}.dev: {dataset.dev!r} has the same queries, on which nothing may be tuned"


def _supply_problems(name: str, config: Config) -> Iterator[str]:
    """Yield the missing files of a local dataset of the grid."""
    dataset = config.datasets[name]
    for part in dataset.mean_of:
        if part in config.datasets and not config.datasets[part].mean_of:  # an average of itself would recurse forever
            yield from _supply_problems(part, config)
    corpus = config.corpora.get(dataset.corpus or "")
    if not isinstance(corpus, entries.LocalCorpus):
        return
    if absent_folder(corpus):
        return  # its cells show "not supplied"
    folder = resolve_path(corpus.path)
    if not is_folder(folder):
        also = "" if Path(corpus.path).is_absolute() else f" (nor {Path.cwd() / corpus.path})"
        yield f"corpora.{dataset.corpus}.path: there is no folder {folder}{also}"
        return
    yield from place_problems(f"corpora.{dataset.corpus}.path", folder)
    for wanted in ("corpus.jsonl", "queries.jsonl"):
        if find_local(folder, wanted) is None:
            yield f"datasets.{name}: {folder} has no {wanted} (or {wanted}.gz)"
    if find_local(folder, f"qrels/{dataset.split}.tsv") is None and (there := splits(folder)):
        have = ", ".join(there)
        yield f"datasets.{name}: no qrels: {folder}/qrels/{dataset.split}.tsv does not exist (splits there: {have})"
    for file in ("corpus.jsonl", "queries.jsonl", f"qrels/{dataset.split}.tsv"):
        if len(local_forms(folder, file)) > 1:
            yield f"datasets.{name}: {both_forms(folder, file)}"


def absent_folder(corpus: entries.CorpusEntry) -> Path | None:
    """Return the absent folder of a collection that the user must supply; None if it is there."""
    if not isinstance(corpus, entries.LocalCorpus) or not corpus.supplied:
        return None
    folder = resolve_path(corpus.path)
    return None if is_folder(folder) else folder


def place_problems(where: str, path: Path) -> Iterator[str]:
    """Yield a problem if a user's folder or file lies among the files that the workflow writes."""
    here, own = Path.cwd().resolve(), path.resolve()
    if own == here or own in here.parents:
        yield f"{where}: the grid runs in {own} or below it, so its results would count as files of it; move it"
    elif own.is_relative_to(here / "results"):
        yield f"{where}: {own} lies in results/, whose files the workflow replaces; move it out of there"


def _model_problems(name: str, model: entries.ModelEntry, config: Config) -> Iterator[str]:
    """Yield what of a model does not go with other models."""
    where = f"models.{name}"
    if name == "bm25":
        yield f"{where}: 'bm25' stands for Lucene in a system's entry; the model needs another name"
    if getattr(model, "chunks", None):
        yield from _chunk_problems(where, model, name)
    if model.query_tower and (tower := config.models.get(model.query_tower)):
        at = f"{where}.query_model: {model.query_tower!r}"
        if tower.family != model.family:
            yield f"{at} is a {tower.family} model; a {model.family} model is needed here"
        elif getattr(tower, "similarity", None) != getattr(model, "similarity", None):
            yield f"{at} has another similarity ({getattr(tower, 'similarity', None)})"
        if tower.query_tower:
            yield f"{at} itself has a query_model"
    if train := model.training:
        miners = train.dense_miners if isinstance(train, entries.Gpl) else []
        others = {key: config.models.get(key) for key in [*train.models.values(), *miners]}
        yield from (
            f"{where}.train: a server runs {key!r}, and training needs weights"
            for key, other in others.items()
            if other and other.endpoint
        )
    if isinstance(train, entries.CrossEncoderTraining):
        yield from _reranker_problems(f"{where}.train", train, config)
    elif isinstance(train, entries.Adaptive):
        yield from _adaptation_problems(name, model, train, config)


def _chunk_problems(where: str, model: entries.ModelEntry | None, name: str) -> Iterator[str]:
    """Yield why documents cannot be read in chunks by a model."""
    if model and "chunks" not in type(model).model_fields:
        yield f"{where}.chunks: {name!r} is a {model.family} model, which reads whole documents: leave chunks out"
    elif model and (model.endpoint or getattr(model, "engine", None)):
        runs = "a server" if model.endpoint else "mteb's loader"
        yield f"{where}.chunks: {runs} runs {name!r}, whose tokens are not known here: leave chunks out"


def _head_problems(where: str, model: entries.ModelEntry | None, name: str) -> Iterator[str]:
    """Yield why a model has no heads beside its dense one."""
    if isinstance(model, entries.DenseModel):
        for key in ("endpoint", "engine", "train", "query_model", "chunks", "brackets"):
            if getattr(model, key):
                yield f"{where}.head: {name!r} has the key {key!r}, which does not go with head"
        if model.prompts.query or model.prompts.document or model.prompts.datasets:
            yield f"{where}.head: {name!r} has prompts, and its other heads read texts without them"
    elif model:
        yield f"{where}.head: {name!r} is a {model.family} model; a dense model with the heads of BGE-M3 is needed"


def _reranker_problems(where: str, train: entries.CrossEncoderTraining, config: Config) -> Iterator[str]:
    for key, other in train.models.items():
        if other in config.models and config.models[other].training:
            yield f"{where}.{key}: {other!r} is itself trained"
    dataset = config.datasets.get(train.dataset or "")
    if dataset and dataset.mean_of:
        yield f"{where}.dataset: {train.dataset!r} is a mean of datasets"
    elif dataset and dataset.corpus != train.corpus:
        yield f"{where}.dataset: {train.dataset!r} is over corpus {dataset.corpus!r}, not {train.corpus!r}"


def _adaptation_problems(
    name: str, model: entries.ModelEntry, train: entries.Adaptive, config: Config
) -> Iterator[str]:
    """Yield problems of a dense model that is adapted to a corpus."""
    where, base = f"models.{name}.train", config.models.get(train.base)
    if base and base.training:
        if base.training.name not in entries.PRETRAINING or train.name in entries.PRETRAINING:
            allowed = f"only genq and gpl can start from a {' or '.join(entries.PRETRAINING)} model"
            yield f"{where}.base: {train.base!r} is itself trained ({allowed})"
        if base.training.corpus not in (None, train.corpus):
            yield f"{where}.base: {train.base!r} is trained on corpus {base.training.corpus!r} alone"
    if any(isinstance(one, entries.DenseModel) and one.brackets for one in (base, model)):
        yield f"{where}: training puts no brackets around texts: neither model nor base can have 'brackets'"
    if isinstance(base, entries.DenseModel) and base.similarity != getattr(model, "similarity", None):
        yield f"models.{name}.similarity: its base {train.base!r} has {base.similarity}, which training keeps"
    retrievers = getattr(train, "retrievers", None) or ()
    for other in (train.base, *retrievers):
        if other not in config.models:
            continue
        if config.models[other].query_tower:
            yield f"{where}: {other!r} has two towers; only models of one can be trained or mine negatives"
        if other != train.base and config.models[other].training:
            yield f"{where}.retrievers: {other!r} is itself trained"
    for other in config.models if train.corpus is None else ():
        if other.startswith(f"{name}@"):
            yield f"models.{other}: names of this form are those of models.{name} for each corpus"


def _system_problems(where: str, system: entries.SystemEntry, config: Config) -> Iterator[str]:
    name = getattr(system, "reranker", "") or getattr(system, "retriever", "")
    model = config.models.get(name)
    if getattr(system, "head", None):
        yield from _head_problems(where, model, name)
    elif getattr(system, "chunks", None):
        yield from _chunk_problems(where, model, name)
    if isinstance(system, entries.Reranked):
        yield from _window_problems(where, system, config)
        if model and model.family not in RERANKERS and not system.head:
            yield f"{where}.reranker: {name!r} is a {model.family} model; a cross-encoder model is needed here"
        elif model and model.query_tower:
            yield f"{where}.reranker: {name!r} has a query_model; a reranker reads both texts with one model"


def _window_problems(where: str, system: entries.Reranked, config: Config) -> Iterator[str]:
    """Yield conflicting depths of a listwise reranker, whose order depends on the number of documents it is given."""
    if not isinstance(config.models.get(system.reranker), entries.ListwiseReranker):
        return
    alike = (system.first_stage, system.reranker)
    for name, other in config.systems.items():
        if not isinstance(other, entries.Reranked) or (other.first_stage, other.reranker) != alike:
            continue
        if other.depth != system.depth:
            yield f"{where}.depth: {name!r} lets the same listwise model order another number of documents"


def _tuning_problems(name: str, config: Config) -> Iterator[str]:
    """Yield the datasets of the grid without queries for tuning the weights of a fusion."""
    for row in config.grid.datasets:
        for part in config.datasets[row].mean_of or (row,):
            if config.datasets[part].dev is None:
                yield (
                    f"systems.{name}.weights: tuned needs queries that are not those of the grid, and datasets.{part} "
                    f"names none (dev). Give weights, or leave {name!r} to a grid without {part!r}"
                )


def cycle_problems(config: Config) -> Iterator[str]:
    """Yield a circle of systems that are parts of each other."""
    try:
        layers(config.systems)
    except CycleError as error:
        yield f"systems {' → '.join(reversed(error.args[1]))} form a cycle"


def layers(systems: Mapping[str, entries.SystemEntry]) -> dict[str, int]:
    """Return the number of reranking and fusion steps of each system, components first.

    Raises:
        CycleError: systems are components of each other.
    """
    found: dict[str, int] = {}
    for name in TopologicalSorter({name: system.parts for name, system in systems.items()}).static_order():
        found[name] = max((1 + found[part] for part in systems[name].parts), default=0)
    return found


def with_parts(systems: Mapping[str, entries.SystemEntry], names: Iterable[str]) -> list[str]:
    """Return the named systems and their components, components first, each once."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in found:
            for part in systems[name].parts:
                add(part)
            found[name] = None

    for name in names:
        add(name)
    return list(found)


def models_of(config: Config, system: entries.SystemEntry) -> list[str]:
    """Return the models that a system itself runs, including its query encoder."""
    named_there = [getattr(system, key, None) for key in ("retriever", "reranker", "expansion")]
    models = [name for name in named_there if name in config.models]
    return [*models, *(tower for name in models if (tower := config.models[name].query_tower))]


def models_behind(config: Config, systems: Iterable[str]) -> list[str]:
    """Return the models of systems and their components, with the models of their training, by name."""
    parts = with_parts(config.systems, systems)
    return trained_with(config, (model for name in parts for model in models_of(config, config.systems[name])))


def trained_with(config: Config, models: Iterable[str]) -> list[str]:
    """Return models with the models of their training (bases, teachers, generators), by name."""
    found, left = set[str](), list(models)
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            train = config.models[name].training
            left += train.models.values() if train else ()
            left += train.dense_miners if isinstance(train, entries.Gpl) else ()
    return sorted(found)


def grid_problems(config: Config) -> Iterator[str]:
    """Yield problems of the combination of the grid's systems, datasets and metrics."""
    models: set[str] = set()
    for name in with_parts(config.systems, config.grid.systems):
        system = config.systems[name]
        models |= set(models_of(config, system))
        if isinstance(system, entries.WeightedSum) and system.tuned:
            yield from _tuning_problems(name, config)
        if isinstance(system, entries.Reranked) and (system.depth or 0) > config.retrieve.depth:
            depth = f"{system.depth} is deeper than the runs are"
            yield f"systems.{name}.depth: {depth} (retrieve.depth is {config.retrieve.depth})"
    for metric in config.metrics:
        if parse_metric(metric).k > config.retrieve.depth:
            yield f"metrics: {metric} looks deeper than the runs are (retrieve.depth is {config.retrieve.depth})"
    for name in models_behind(config, config.grid.systems):
        model = config.models[name]
        if model.folder is not None:
            yield from folder_problems(f"models.{name}.path", resolve_path(model.folder))
        elif model.revision == lock.RESOLVE and model.checkpoint is not None:
            yield from _lock_problems(name, model.checkpoint)
    for name in sorted(models):
        yield from _leakage_problems(config, name)
    yield from _language_problems(config)
    yield from _file_problems(config)
    yield from _dimension_problems(config)


def folder_problems(where: str, folder: Path) -> Iterator[str]:
    """Yield problems of the location of a user's checkpoint."""
    if is_folder(folder):
        yield from place_problems(where, folder)
    else:
        yield f"{where}: there is no folder {folder}"


def _lock_problems(model: str, checkpoint: str) -> Iterator[str]:
    """Yield a problem if the lock file is unreadable, or names another commit than the fetched one."""
    try:
        locked = lock.read().get(checkpoint, {}).get("commit")
    except DataError as error:
        yield str(error)
        return
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


def searched_corpora(config: Config) -> set[str]:
    """Return the corpora of the grid's datasets."""
    rows = [part for row in config.grid.datasets for part in config.datasets[row].mean_of or (row,)]
    return {config.datasets[row].corpus or "" for row in rows}


def _language_problems(config: Config) -> Iterator[str]:
    """Yield corpora in a language without a BM25 analyzer, if the grid runs BM25."""
    systems = with_parts(config.systems, config.grid.systems)
    lexical = [name for name in systems if isinstance(config.systems[name], entries.Bm25)]
    for corpus in sorted(searched_corpora(config)):
        language = config.corpora[corpus].language
        if lexical and (why := unread_by_bm25(language)):
            yield f"corpora.{corpus}.language: {lexical[0]!r} cannot read {language!r}: {why}"


def _leakage_problems(config: Config, model: str) -> Iterator[str]:
    """Yield datasets of the grid on whose qrels a model of the grid, or a model behind it, is trained."""
    train = config.models[model].training
    for key, other in train.models.items() if train else ():
        if key != "generator":
            yield from _leakage_problems(config, other)
    if not isinstance(train, entries.CrossEncoderTraining) or train.dataset is None:
        return
    trained = config.datasets[train.dataset]
    for row in config.grid.datasets:
        for name in config.datasets[row].mean_of or (row,):
            tested = config.datasets[name]
            if (tested.corpus, tested.id or tested.split) == (trained.corpus, trained.id or trained.split):
                yield f"grid.datasets: {model!r} is trained on {name!r}, so it cannot be evaluated on this dataset"


def _file_problems(config: Config) -> Iterator[str]:
    """Yield runs and expansions of the grid's systems, and of their parts, that are missing or in wrong places."""
    rows = [part for row in config.grid.datasets for part in config.datasets[row].mean_of or (row,)]
    corpora = {row: config.datasets[row].corpus or "" for row in rows}
    corpora = {row: corpus for row, corpus in corpora.items() if not absent_folder(config.corpora[corpus])}
    for name in with_parts(config.systems, config.grid.systems):
        system, where = config.systems[name], f"systems.{name}.run"
        if isinstance(system, entries.Bm25) and isinstance(system.expansion, entries.LocalExpansion):
            pattern = system.expansion.path
            for path in dict.fromkeys(resolve_path(pattern.replace("{corpus}", own)) for own in corpora.values()):
                if is_file(path) or is_folder(path):
                    yield from place_problems(f"systems.{name}.expansion.path", path)
                else:
                    yield f"systems.{name}.expansion.path: there is no file or folder {path}"
        if not isinstance(system, entries.External):
            continue
        if "{dataset}" not in system.run and len(corpora) > 1:
            yield f"{where}: {system.run!r} names one file for {len(corpora)} datasets; put {{dataset}} in it"
            continue
        for dataset in corpora:
            file = run_file(system.run, dataset)
            if is_file(file):
                yield from place_problems(where, file)
            else:
                yield f"{where}: there is no file {file}, which should hold the run of dataset {dataset!r}"


def _dimension_problems(config: Config) -> Iterator[str]:
    """Yield dimensions and codes that do not fit the models of the grid, and indexes that chunks rule out."""
    for name in with_parts(config.systems, config.grid.systems):
        system = config.systems[name]
        if not isinstance(system, entries.DenseRetriever):
            continue
        chunks = system.chunks or getattr(config.models[system.retriever], "chunks", None)
        if chunks and chunks.aggregate == "max" and system.variant:
            yield (
                f"systems.{name}.chunks: with aggregate: max, the search is exact, in all dimensions: leave out index "
                "and dimensions, or take aggregate: mean"
            )
        there = config.models[system.retriever].size.dimensions
        kept = system.dimensions or there
        if there and kept and kept > there:
            yield f"systems.{name}.dimensions: {kept} is more than the {there} of {system.retriever!r}"
        elif kept and isinstance(system.index, IvfPq) and kept % system.index.codes:
            yield f"systems.{name}.index.codes: {system.index.codes} does not divide the {kept} dimensions"
