"""Check entries against each other: names exist, families match, folders are present."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ..core import files, paths
from ..core.errors import BeirgridError, DataError
from ..core.families import RERANKERS, RETRIEVERS, families_with_role
from . import entries, lock
from .entries import Config
from .indexes import IvfPq
from .metric_names import MAIN, parse_metric
from .model_checks import chunk_problems, head_problems, model_problems, trained_on_problems, unknown, use_problems
from .places import both_forms, find_local, is_file, is_folder, local_forms, resolve_path, run_file, splits
from .systems import MOST_TUNED, places_of, weight_problems
from .values import unread_by_bm25


def registry_problems(config: Config) -> Iterator[str]:
    """Yield problems of references between entries, and from settings to entries."""
    for kind, names in (("corpora", config.corpora), ("datasets", config.datasets), ("models", config.models)):
        yield from _case_problems(kind, names)
    yield from _case_problems("systems", config.systems)
    for name, dataset in config.datasets.items():
        yield from _dataset_problems(f"datasets.{name}", dataset, config)
    for name, model in config.models.items():
        yield from model_problems(name, model, config)
    for name, system in config.systems.items():
        yield from _system_problems(f"systems.{name}", system, config)
    for name in config.grid.systems:
        yield from unknown("grid.systems", "system", name, config.systems)
    for name in config.grid.datasets:
        yield from unknown("grid.datasets", "dataset", name, config.datasets)
        if name in config.datasets:
            yield from _supply_problems(name, config)
    if config.grid.baseline is not None:
        yield from unknown("grid.baseline", "system of the grid", config.grid.baseline, config.grid.systems)
    for name in config.grid.compare:
        yield from unknown("grid.compare", "system of the grid", name, config.grid.systems)
    if len(set(config.grid.compare)) != len(config.grid.compare) or len(config.grid.compare) not in (0, 2):
        yield "grid.compare: name two different systems"
    for metric in config.metrics:
        try:
            parse_metric(metric)
        except BeirgridError as error:
            yield f"metrics: {error}"
    for name, dataset in config.datasets.items():
        yield from _dev_problems(name, config)
        try:
            if parse_metric(dataset.metric).name == MAIN:
                yield f"datasets.{name}.metric: main stands for this metric, so it must be another one"
        except BeirgridError as error:
            yield f"datasets.{name}.metric: {error}"


def _case_problems(kind: str, names: Iterable[str]) -> Iterator[str]:
    """Yield names that differ only in case, which macOS and Windows file systems do not distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            yield f"{kind}: {other!r} and {name!r} differ by case only, so their files may be the same ones"


def _dataset_problems(where: str, dataset: entries.Dataset, config: Config) -> Iterator[str]:
    given = dataset.model_fields_set
    if dataset.mean_of:
        for part in dataset.mean_of:
            yield from unknown(f"{where}.mean_of", "dataset", part, config.datasets)
            if part in config.datasets and config.datasets[part].mean_of:
                yield f"{where}.mean_of: {part!r} is itself a mean"
        for key in sorted({"corpus", "id", "revision", "split", "queries"} & given):
            yield f"{where}: the key {key!r} does not go with mean_of"
        return
    if dataset.corpus is None:
        yield f"{where}: needs the key 'corpus' (or 'mean_of')"
        return
    yield from unknown(f"{where}.corpus", "corpus", dataset.corpus, config.corpora)
    corpus = config.corpora.get(dataset.corpus)
    if isinstance(corpus, entries.IrDatasetsCorpus):
        if dataset.id is None:
            yield f"{where}: its corpus comes from ir_datasets, so it needs the key 'id'"
        if "split" in given:
            yield f"{where}: the key 'split' does not go with ir_datasets, whose ids name it (beir/fiqa/test)"
    if isinstance(corpus, entries.HubCorpus) and (dataset.id is None) != (dataset.revision is None):
        yield f"{where}: an id on the Hugging Face hub and its revision (40 hex digits) go together"


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


def _system_problems(where: str, system: entries.SystemEntry, config: Config) -> Iterator[str]:
    model = getattr(system, "reranker", "") or getattr(system, "retriever", "")
    if getattr(system, "head", None):
        yield from head_problems(where, model, config)
        if getattr(system, "chunks", None):
            yield f"{where}.head: does not go with chunks"
    elif getattr(system, "chunks", None):
        yield from chunk_problems(where, model, config)
    if isinstance(system, entries.Bm25):
        if isinstance(system.expansion, str):
            yield from use_problems(f"{where}.expansion", system.expansion, families_with_role("expander"), config)
    elif isinstance(system, entries.Retriever):
        yield from use_problems(f"{where}.retriever", system.retriever, RETRIEVERS, config, also=["bm25"])
        late = isinstance(system, entries.LateInteractionRetriever) and system.exhaustive
        if late and "candidates" in system.model_fields_set:
            yield f"{where}: an exhaustive search has no candidates"
    elif isinstance(system, entries.Reranked):
        yield from _window_problems(where, system, config)
        yield from unknown(f"{where}.first_stage", "system", system.first_stage, config.systems)
        yield from unknown(f"{where}.reranker", "model", system.reranker, config.models)
        family = config.models[system.reranker].family if system.reranker in config.models else "cross-encoder"
        if family not in RERANKERS and not system.head:
            yield f"{where}.reranker: {system.reranker!r} is a {family} model; a cross-encoder model is needed here"
        elif system.reranker in config.models and config.models[system.reranker].query_tower:
            yield f"{where}.reranker: {system.reranker!r} has a query_model; a reranker reads both texts with one model"
    elif isinstance(system, entries.Foreign):
        yield from trained_on_problems(where, system.trained_on, config)
        yield from _program_problems(where, system) if isinstance(system, entries.Program) else ()
    elif isinstance(system, entries.Fused):
        yield from _fusion_problems(where, system, config)


def _program_problems(where: str, system: entries.Program) -> Iterator[str]:
    """Yield placeholders that the commands of a program lack or must not have."""
    needed = {"command": {"queries", "run"}, "index_command": {"corpus", "index"} if system.index_command else set()}
    absent = {"command": set() if system.index_command else {"index"}, "index_command": {"queries", "run", "depth"}}
    for key, names in needed.items():
        found = places_of(getattr(system, key))
        yield from (f"{where}.{key}: needs {{{name}}}" for name in sorted(names - found))
        why = "without an index_command there is none" if key == "command" else "an index is made before any query"
        yield from (f"{where}.{key}: cannot have {{{name}}}: {why}" for name in sorted(absent[key] & found))


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


def _fusion_problems(where: str, system: entries.Fused, config: Config) -> Iterator[str]:
    if len(set(system.of)) < 2:
        yield f"{where}.of: a fusion needs at least two different systems, not {len(set(system.of))}"
    for part in system.of:
        yield from unknown(f"{where}.of", "system", part, config.systems)
    if not isinstance(system, entries.WeightedSum) or system.weights is None:
        return
    if not isinstance(system.weights, str):
        yield from (f"{where}.weights{problem}" for problem in weight_problems(system.weights, len(system.of)))
    elif len(system.of) > MOST_TUNED:
        yield f"{where}.of: weights of at most {MOST_TUNED} systems are tuned, not of {len(system.of)}"


def _tuning_problems(name: str, config: Config) -> Iterator[str]:
    """Yield the datasets of the grid without queries for tuning the weights of a fusion."""
    for row in config.grid.datasets:
        for part in config.datasets[row].mean_of or (row,):
            if config.datasets[part].dev is None:
                yield (
                    f"systems.{name}.weights: tuned needs queries that are not those of the grid, and datasets.{part} "
                    f"names none (dev). Give weights, or leave {name!r} to a grid without {part!r}"
                )


def _dev_problems(name: str, config: Config) -> Iterator[str]:
    """Yield problems of the dataset on which weights are tuned for another one."""
    entry, where = config.datasets[name], f"datasets.{name}.dev"
    if entry.dev is None:
        return
    yield from unknown(where, "dataset", entry.dev, config.datasets)
    if (dev := config.datasets.get(entry.dev)) is None:
        return
    if entry.mean_of or dev.corpus != entry.corpus:
        yield f"{where}: {entry.dev!r} has another corpus than {name!r}"
    elif (dev.id, dev.revision, dev.split) == (entry.id, entry.revision, entry.split):
        yield f"{where}: {entry.dev!r} has the queries of {name!r}, on which nothing may be tuned"


# Most rerankings and fusions in a chain: Snakemake itself is limited to some hundred.
MOST_LAYERS = 20
# Jobs of one stage that Snakemake plans within minutes.
MOST_SHARDS = 20_000


def layer_problems(config: Config) -> Iterator[str]:
    """Yield systems with circular or too deeply nested components."""
    try:
        found = layers(config.systems)
    except CycleError as error:
        yield f"systems {' → '.join(reversed(error.args[1]))} form a cycle"
        return
    if (deepest := max(found.values(), default=0)) > MOST_LAYERS:
        first = next(name for name in found if found[name] > MOST_LAYERS)
        yield f"systems.{first}: a chain of {deepest:,} systems is longer than the limit of {MOST_LAYERS}"


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
    for corpus in sorted(searched_corpora(config)):
        documents, shard = config.corpora[corpus].documents or 0, config.encode.shard
        if documents > MOST_SHARDS * shard:
            parts = f"{documents:,} documents in shards of {shard:,} are more than {MOST_SHARDS:,} jobs"
            yield f"corpora.{corpus}.documents: {parts} per model; make encode.shard larger"
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
