"""mteb's tasks by our names of the datasets, and its models: the engine that can run each, and the facts for its entry.

mteb, whose import takes seconds, is imported only to resolve a name, and by fetch for tasks that load their own data.
No network is needed: the facts are code in mteb's wheel.
"""

from __future__ import annotations

import csv
import importlib.metadata
import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ..core.errors import ConfigError, nearest, warn
from .lock import RESOLVE
from .models import Seq2SeqReranker, similarity_of
from .values import COMMIT

# Types of mteb's tasks over texts that rank documents for queries. In all but the first, queries have instructions, or
# candidates that are ranked alone.
KINDS = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
_TASKS = Path(__file__).with_name("mteb_tasks.csv")
# A list of models asks for the same versions hundreds of times, and each look-up parses a package's metadata.
version = cache(importlib.metadata.version)


class Task(NamedTuple):
    """A task of mteb, and the dataset on the hub that it reads."""

    name: str
    hub: str


# The loaders of mteb that open a checkpoint as sentence-transformers does, and our families. The last two cannot open a
# folder without network access: one lacks its package here, the other knows its tokens by the name on the hub alone.
_FAMILIES = {
    "SentenceTransformerEncoderWrapper": "dense",
    "sentence_transformers_loader": "dense",
    "InstructSentenceTransformerModel": "dense",
    "q3e_instruct_loader": "dense",
    "SparseEncoderWrapper": "sparse",
    "MultiVectorModel": "late-interaction",
    "CrossEncoderWrapper": "cross-encoder",
    "BGEReranker": "cross-encoder",
    "MonoT5Reranker": "seq2seq-reranker",
}
# Loaders whose models do not run here, and why.
_UNUSED = {
    **dict.fromkeys(
        ("RepLLaMAModel", "loader_inner"), "mteb adds it, an adapter, to a second checkpoint (docs/models.md)"
    ),
    **dict.fromkeys(("bm25_loader", "bb25_loader"), "mteb searches with it itself and makes no vectors"),
}
# Types of models that our engine and the loaders of mteb run in our stages.
_TYPES = ("dense", "sparse", "late-interaction", "cross-encoder")
# Arguments of these loaders that an entry takes over, or that change no number: where and how fast a model runs, how
# wide its weights are (``precision`` decides here), and on which side padding stands, to which no token attends. A test
# lists what stands in those that are mappings.
_TAKEN = {
    *("model_prompts", "prompts_dict", "prompt_priority", "instruction_template", "apply_instruction_to_passages"),
    *("max_seq_length", "max_length", "processor_kwargs", "trust_remote_code", "activation_fn", "fp_options"),
    *("device", "device_map", "dtype", "torch_dtype", "model_kwargs", "index_kwargs", "padding_side"),
    *("config_kwargs", "tokenizer_kwargs", "add_eos_token"),
}
# Tokens of a pair that FlagEmbedding reads by default.
_BGE_LENGTH = 512
# Models for mteb's own loader, although our engine has the family that mteb names: decoders that mteb calls
# cross-encoders, and models whose documents get another text in some tasks.
_LEFT_TO_MTEB = (
    *("mixedbread-ai/mxbai-rerank-base-v2", "mixedbread-ai/mxbai-rerank-large-v2", "nlpai-lab/KURE-Reranker-base"),
    *("BeastyZ/e5-R-mistral-7b", "McGill-NLP/AfriE5-Large-instruct", "tencent/KaLM-Embedding-Gemma3-12B-2511"),
)


@cache
def tasks() -> dict[str, Task]:
    """Return the tasks of mteb by our names of the datasets."""
    with _TASKS.open(encoding="utf-8", newline="") as stream:
        return {row["dataset"]: Task(row["task"], row["hub"]) for row in csv.DictReader(stream)}


def mteb_names() -> dict[str, str]:
    """Return the names of mteb's tasks by our names of the datasets, the mean over CQADupStack included."""
    return {dataset: task.name for dataset, task in tasks().items()} | {"cqadupstack": "CQADupstackRetrieval"}


def mteb_version() -> str:
    """Return the version of mteb that is installed."""
    return version("mteb")


@cache
def mteb() -> Any:
    """Import mteb, without its warnings about prompts that single tasks lack."""
    logging.getLogger("mteb").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="mteb")
    return importlib.import_module("mteb")


@cache
def _metas() -> dict[str, Any]:
    return {str(meta.name): meta for meta in mteb().get_model_metas()}


def models() -> list[dict[str, Any]]:
    """Return a row for each model of mteb: its name, what ``engine`` returns, million parameters, and its licence."""
    rows = []
    for name in sorted(_metas(), key=str.lower):
        runs = dict(zip(("engine", "family", "reason"), engine(name), strict=True))
        meta = _meta(name)
        rows.append({"name": name, **runs, "parameters": _size(meta, "").get("parameters"), "licence": _licence(meta)})
    return rows


def _licence(meta: Any) -> str:
    return str(meta.license or "").replace("not specified", "")


def engine(name: str, trusted: bool = False) -> tuple[str, str, str]:
    """Return the engine for a model of mteb, the family of its entry if a job here runs it, and the reason.

    The engine is ``beirgrid``, ``mteb`` (its own loader), ``with code`` (one of these, once an entry lets its code
    run), ``endpoint`` (served, not published) or ``refused``. A model whose code the entry allows to run is
    ``trusted``. Raise ConfigError if mteb lists no such model.
    """
    meta = _meta(name)
    loader = _loader(meta)
    kind = " and ".join(meta.model_type)
    is_served = "API" in meta.framework
    if "text" not in (meta.modalities or ()) or meta.loader is None or not (is_served or meta.open_weights):
        return "refused", "", "mteb opens no public weights of it that read text"
    if is_served:
        return "endpoint", "", "its publisher serves it and publishes no weights: write an entry with endpoint"
    if why := _UNUSED.get(loader):
        return "refused", "", why
    if unmet := unmet_need(_need(meta)):
        return "refused", "", unmet + _served(meta)
    unknown = sorted(meta.loader_kwargs.keys() - _TAKEN)
    ours = not unknown and _has_our_family(meta)
    reason = f"mteb opens it by {loader}" + f" with {', '.join(unknown)}" * bool(unknown)
    if kind not in _TYPES:
        return "refused", "", f"{reason}; of mteb's loaders, only those of {', '.join(_TYPES)} run here, not of {kind}"
    if _runs_code(meta) and not trusted:
        key = f"models: {{{name}: {{trust_remote_code: true}}}}"
        return "with code", "", f"it brings code of its own. Read the code, then let it run: {key}"
    if not ours:
        lacking = _lacking(meta)
        return "mteb", kind, reason + f". Install first: {lacking}" * bool(lacking)
    return "beirgrid", _FAMILIES[loader], f"it opens with{'' if _runs_code(meta) else 'out'} code from the checkpoint"


def _has_our_family(meta: Any) -> bool:
    """Tell whether our engine has the family of a model that mteb opens, and mteb's loader does nothing beside."""
    if meta.name in _LEFT_TO_MTEB or [*meta.modalities] != ["text"]:
        return False
    return _loader(meta) in _FAMILIES and " and ".join(meta.model_type) in _TYPES


def lists(name: str) -> bool:
    """Tell whether mteb lists a model."""
    return name in _metas()


def _meta(name: str) -> Any:
    if name not in _metas():
        raise ConfigError(f"mteb {mteb_version()} lists no model {name!r}{nearest(name, _metas())}")
    return _metas()[name]


def _runs_code(meta: Any) -> bool:
    """Tell whether mteb opens a model with the code of its checkpoint."""
    arguments = meta.loader_kwargs
    return any(options.get("trust_remote_code") for options in (arguments, arguments.get("model_kwargs") or {}))


def _need(meta: Any) -> str:
    """Return the versions of transformers that the publisher of a model allows, as mteb's extras state them."""
    needs = chain.from_iterable(map(_of_extra, meta.extra_requirements_groups or ()))
    return ",".join(str(need.specifier) for need in needs if need.name == "transformers")


def _lacking(meta: Any) -> str:
    """Return the packages that mteb's loader of a model needs and that are not installed in such a version."""
    needs = chain.from_iterable(map(_of_extra, meta._resolve_extras_groups()))
    return ", ".join(sorted({f"{need.name}{need.specifier}" for need in needs if not _is_installed(need)}))


@cache
def _is_installed(need: Requirement) -> bool:
    try:
        return need.specifier.contains(version(need.name), prereleases=True)
    except PackageNotFoundError:
        return False


@cache
def _of_extra(group: str) -> list[Requirement]:
    """Return what an extra of mteb requires."""
    return [need for need in _of_extras() if need.marker and need.marker.evaluate({"extra": group})]


@cache
def _of_extras() -> list[Requirement]:
    return [need for need in map(Requirement, requires("mteb") or ()) if "extra" in str(need.marker)]


def unmet_need(allowed: str) -> str:
    """Return why a model does not run with the installed transformers; empty if it does."""
    installed = version("transformers")
    if SpecifierSet(allowed).contains(installed, prereleases=True):
        return ""
    return f"its publisher needs transformers {allowed} (an extra of mteb), and {installed} is installed"


def _served(meta: Any) -> str:
    """Return how a model joins a grid whose publisher excludes the installed transformers; empty if it cannot."""
    (family,) = meta.model_type if len(meta.model_type) == 1 else ("",)
    if family not in ("dense", "cross-encoder"):
        return ""
    similarity = f"similarity: {similarity_of(getattr(meta.similarity_fn_name, 'value', None))}, "
    entry = f"family: {family}, {similarity * (family == 'dense')}endpoint: {{model: {meta.name}, url: $SERVER}}"
    return (
        f". Serve it from an environment with such a version, and name the server: models: {{{meta.name}: {{{entry}}}}}"
    )


def _loader(meta: Any) -> str:
    return str(getattr(meta.loader, "__name__", ""))


def model_facts(name: str, also: Iterable[str] = (), trusted: bool = False) -> dict[str, Any]:
    """Return mteb's facts of a model: its entry, and facts without a key in entries.

    Args:
        also: tasks whose prompts are wanted beside those of the registered datasets.
        trusted: whether its entry lets code from the checkpoint run.

    Returns:
        ``mteb`` (version), ``entry`` (keys of a model's entry), ``code`` (whether mteb runs the checkpoint's code),
        ``trained_on`` (tasks, None if they are unknown), ``transformers`` (the versions that the publisher allows, if
        it says so), and of a model with mteb's prompts ``tasks`` and, where they differ, ``queries`` (text before
        them by task).

    Raises:
        ConfigError: mteb lists no such model, or beirgrid's engine does not run it.
    """
    runs, family, reason = engine(name, trusted)
    meta = _meta(name)
    if not family:
        raise ConfigError(f"{name} cannot be used by its name: {reason}")
    entry = _entry(meta, runs, family)
    stated: dict[str, Any] = {"mteb": mteb_version(), "entry": entry, "code": _runs_code(meta)}
    if need := _need(meta):
        stated["transformers"] = need
    if runs == "mteb" and (lacking := _lacking(meta)):
        warn(f"mteb's loader of {name} needs packages that are not installed here: {lacking}")
    if runs == "beirgrid" and family in ("dense", "sparse"):
        entry["prompts"], queries = _prompts(meta, [*(task.name for task in tasks().values()), *also])
        stated |= {"queries": queries} if queries else {}
        if not entry["prompts"].get("own"):
            stated["tasks"] = sorted(also)
    trained = meta.training_datasets
    stated["trained_on"] = None if trained is None else sorted(meta.get_training_datasets() or trained)
    return stated


def _entry(meta: Any, runs: str, family: str) -> dict[str, Any]:
    """Return the entry of a model of mteb without its prompts, for the engine that runs it."""
    entry: dict[str, Any] = {"family": family, "checkpoint": str(meta.name)}
    entry["revision"] = meta.revision if re.match(COMMIT, meta.revision or "") else RESOLVE
    if "safetensors" not in meta.framework:
        entry["pickled"] = True
    if runs == "beirgrid" and (length := _max_length(meta, family)):
        entry["max_length"] = length
    entry["size"] = _size(meta, family)
    if licence := _licence(meta):
        entry["licence"] = licence
    if runs == "mteb":
        entry["engine"] = "mteb"
    if family == "dense":
        # A checkpoint that says otherwise is refused when it is opened.
        entry["similarity"] = similarity_of(getattr(meta.similarity_fn_name, "value", None))
    if family == "dense" and runs == "beirgrid":
        entry["pooling"] = "own"
        entry |= _special_tokens(meta.loader_kwargs)
    if family == "seq2seq-reranker":
        from mteb.models.model_implementations.rerankers_monot5_based import prediction_tokens

        irrelevant, relevant = prediction_tokens[str(meta.name)]
        if (relevant, irrelevant) != Seq2SeqReranker.model_fields["answers"].default:
            entry["answers"] = [relevant, irrelevant]
    return entry


def _special_tokens(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the key for the tokens that mteb's loader puts around texts, if it puts any."""
    if not arguments.get("add_eos_token"):
        return {}
    has_first = (arguments.get("tokenizer_kwargs") or {}).get("add_bos_token")
    return {"special_tokens": "both" if has_first else "end"}


def _max_length(meta: Any, family: str) -> int | None:
    """Return the maximum tokens in mteb's loader; None for the checkpoint's own limit."""
    if _loader(meta) == "BGEReranker":
        return _BGE_LENGTH
    arguments = meta.loader_kwargs
    length = arguments.get("max_seq_length") or arguments.get("max_length")
    length = length or (arguments.get("processor_kwargs") or {}).get("model_max_length")
    if length is None and family == "cross-encoder":
        length = meta.max_tokens
    return int(length) if length else None


def _size(meta: Any, family: str) -> dict[str, float | int]:
    """Return the size of a model in millions of parameters, and the dimension of its vectors."""
    size: dict[str, float | int] = {}
    if meta.n_parameters:
        size["parameters"] = round(meta.n_parameters / 1e6, 1) or 0.1
        if meta.n_embedding_parameters and meta.n_embedding_parameters <= meta.n_parameters:
            size["embeddings"] = min(round(meta.n_embedding_parameters / 1e6, 1), size["parameters"])
    if family == "dense" and (lengths := meta.embed_dim):  # a list, if vectors can be cut
        size["dimensions"] = lengths if isinstance(lengths, int) else max(lengths)
    return size


def _prompts(meta: Any, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the prompts of a model as an entry has them, and the texts before queries by task if these differ."""
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    if _loader(meta) not in ("InstructSentenceTransformerModel", "q3e_instruct_loader"):
        if not (named := meta.loader_kwargs.get("model_prompts")):
            return {"own": True}, {}
        sent = _named_prompt(named)
    else:
        sent = _instruction(meta)
    queries = {name: sent(_task(name), "query") for name in sorted(set(names))}
    shared = {sent(_task(name), "document"): name for name in queries}
    if len(shared) > 1:  # datasets share the vectors of a corpus
        raise ConfigError(
            f"{meta.name} cannot be used by its name: mteb puts other texts before documents of "
            f"{' and '.join(shared.values())}. Write an entry with its family and one prompt for documents"
        )
    # A collection that mteb does not list has mteb's general instruction for retrieval.
    general = sent(SimpleNamespace(name="", type="Retrieval", prompt=AbsTaskRetrieval.abstask_prompt), "query")
    return {"query": general, "document": next(iter(shared))}, queries if {*queries.values()} != {general} else {}


def _named_prompt(prompts: Mapping[str, str]) -> Any:
    """Return the function that chooses among named prompts as mteb, and then sentence-transformers, do."""

    def sent(task: Any, side: str) -> str:
        from mteb.models.abs_encoder import get_prompt
        from mteb.types import PromptType

        chosen = get_prompt(dict(prompts), task, PromptType(side))
        fallback = [] if side == "query" else ["passage", "corpus"]
        return next((prompts[name] for name in fallback if name in prompts), "") if chosen is None else chosen

    return sent


def _instruction(meta: Any) -> Any:
    """Return the function that writes a task's instruction into the model's template, which is mteb's own."""
    from mteb.models.abs_encoder import PromptSource
    from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
    from mteb.types import PromptType

    arguments = dict(meta.loader_kwargs)
    if _loader(meta) == "q3e_instruct_loader":  # a function, which names these two itself
        template = meta.loader.__globals__["instruction_template"]
        arguments |= {"instruction_template": template, "apply_instruction_to_passages": False}
    wrapper = object.__new__(InstructSentenceTransformerModel)  # without its checkpoint
    wrapper.instruction_template = arguments.get("instruction_template")
    wrapper.prompts_dict = arguments.get("prompts_dict")
    if order := arguments.get("prompt_priority"):
        wrapper.prompt_priority = [PromptSource.from_str(str(source)) for source in order]

    def sent(task: Any, side: str) -> str:
        if side == "document" and not arguments.get("apply_instruction_to_passages", True):
            return ""
        return str(wrapper.get_task_instruction(task, PromptType(side)) or "")

    return sent


@cache
def _task(name: str) -> Any:
    return mteb().get_task(name).metadata
