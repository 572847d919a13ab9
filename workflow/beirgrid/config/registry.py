"""Read mteb's models: facts for registry entries, and the engine that can run each model.

mteb, whose import takes seconds, is imported only to resolve a name, and by fetch for tasks that load their own data.
No network is needed: the facts are code in mteb's wheel.
"""

from __future__ import annotations

import csv
import inspect
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..core.errors import ConfigError, nearest
from .listed import ENGINES, Engine, Listed
from .lock import RESOLVE
from .models import Seq2SeqReranker
from .tasks import tasks
from .values import COMMIT

# The loaders of mteb that open a checkpoint as sentence-transformers or transformers does, and our families.
_FAMILIES = {
    "SentenceTransformerEncoderWrapper": "dense",
    "sentence_transformers_loader": "dense",
    "InstructSentenceTransformerModel": "dense",
    "q3e_instruct_loader": "dense",
    "RepLLaMAModel": "dense",
    "PromptrieverModel": "dense",
    "SparseEncoderWrapper": "sparse",
    "MultiVectorModel": "late-interaction",
    "MultiVectorWrapper": "late-interaction",
    "CrossEncoderWrapper": "cross-encoder",
    "BGEReranker": "cross-encoder",
    "MonoT5Reranker": "seq2seq-reranker",
    "FLANT5Reranker": "seq2seq-reranker",
    "Qwen3RerankerWrapper": "decoder-reranker",
}
# Types of models that a loader of mteb runs in our stages, and our families.
_LOADED = {"dense": "dense", "cross-encoder": "cross-encoder"}
# Arguments of these loaders that an entry takes over, or that change no number: where and how fast a model runs, how
# wide its weights are (``precision`` decides here), and on which side padding stands, to which no token attends.
_TAKEN = {
    *("model_prompts", "prompts_dict", "prompt_priority", "instruction_template", "apply_instruction_to_passages"),
    *("max_seq_length", "max_length", "processor_kwargs", "trust_remote_code", "activation_fn", "fp_options"),
    *("device", "device_map", "dtype", "torch_dtype", "model_kwargs", "index_kwargs", "padding_side"),
    *("config_kwargs", "tokenizer_kwargs", "add_eos_token", "base_model_name_or_path", "peft_model_name_or_path"),
}
# Wrappers of other loaders for which this holds.
_HARMLESS = {
    "model_kwargs": {"dtype", "torch_dtype", "attn_implementation", "device_map", "trust_remote_code"},
    "config_kwargs": {"use_cache"},
    "tokenizer_kwargs": {"pad_token", "padding_side", "add_bos_token"},
    "processor_kwargs": {"model_max_length"},
}
# Loaders of adapters, which mteb adds to the weights of a decoder.
_ADAPTED = ("RepLLaMAModel", "PromptrieverModel")
# The loader by FlagEmbedding; tokens of a pair that its rerankers read by default, and of a text that RepLLaMA reads.
_FLAG, _FLAG_LENGTH = "BGEReranker", 512
# Qwen3-Reranker's prompt around what mteb writes of a pair, and its length: https://github.com/QwenLM/Qwen3-Embedding,
# examples/qwen3_reranker_transformers.py. A test compares both with mteb's loader, which has them in its code.
_QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)
_QWEN_LENGTH = 8192
_CORRECTIONS = Path(__file__).with_name("mteb_corrections.csv")


@cache
def mteb_version() -> str:
    """Return the version of mteb that is installed.

    Raises:
        ConfigError: none is.
    """
    try:
        return version("mteb")
    except PackageNotFoundError:
        raise ConfigError(
            "names of models and collections are resolved by mteb, which is not installed: run make setup, "
            "or take a checkpoints.lock.json that has them"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress mteb's warnings about prompts that single tasks lack."""
    logger = logging.getLogger("mteb")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@cache
def _metas() -> dict[str, Any]:
    mteb_version()
    with quiet():
        import mteb

        return {str(meta.name): meta for meta in mteb.get_model_metas()}


@cache
def _corrections() -> dict[str, str]:
    """Return the reasons why beirgrid cannot run single models of loaders that it otherwise replaces."""
    with _CORRECTIONS.open(encoding="utf-8", newline="") as stream:
        return {row["model"]: row["reason"] for row in csv.DictReader(stream)}


def models() -> list[Listed]:
    """Return every model of mteb with its engine, by name."""
    return [classify(name) for name in sorted(_metas(), key=str.lower)]


def classify(name: str, trusted: bool = False) -> Listed:
    """Return the engine for a model of mteb.

    Args:
        trusted: whether its entry lets code from the checkpoint run.

    Raises:
        ConfigError: mteb lists no such model.
    """
    meta = _meta(name)
    parameters, licence = _size(meta, "").get("parameters"), str(meta.license or "").replace("not specified", "")
    types = meta.output_dtypes if isinstance(meta.output_dtypes, list) else [meta.output_dtypes]
    output = ", ".join(one.value for one in types if one is not None)
    return Listed(name, *_engine(meta, trusted), parameters, licence, output)


def _engine(meta: Any, trusted: bool) -> tuple[Engine, str, str]:
    """Return the engine for a model, the family of its entry, and the reason."""
    if reason := _refusal(meta, trusted):
        return "refused", "", reason
    if "API" in meta.framework:
        return "endpoint", "", "its publisher serves it and publishes no weights"
    loader = _loader(meta)
    if reason := _foreign(meta, loader):
        kind = " and ".join(meta.model_type)
        if kind in _LOADED:
            return "mteb", _LOADED[kind], reason
        runs = f"{reason}; of mteb's loaders, those of dense models and cross-encoders run here, and this one is {kind}"
        return "refused", "", runs
    how = "transformers" if "Reranker" in loader or loader in _ADAPTED else "sentence-transformers"
    differs = "; mteb's loader cuts pairs with long queries in another way (docs/loaders.md)" if loader == _FLAG else ""
    return "beirgrid", _FAMILIES[loader], f"{how} loads it without code from the checkpoint{differs}"


def _meta(name: str) -> Any:
    if name not in _metas():
        raise ConfigError(f"mteb {mteb_version()} lists no model {name!r}{nearest(name, _metas())}")
    return _metas()[name]


def _loader(meta: Any) -> str:
    """Return the name of the loader of a model; of a function around a loader, that of the loader."""
    return str(getattr(_around(meta).get("wrapper", meta.loader), "__name__", ""))


def _arguments(meta: Any) -> dict[str, Any]:
    """Return the arguments of the loader of a model, those of a function around it among them."""
    return {**_around(meta).get("_kwargs", {}), **meta.loader_kwargs}


def _around(meta: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(meta.loader).nonlocals if inspect.isfunction(meta.loader) else {}


def _refusal(meta: Any, trusted: bool) -> str:
    """Return the reason that beirgrid cannot run a model; empty if it can."""
    if "text" not in (meta.modalities or ()):
        return f"it reads no text, only {' and '.join(meta.modalities or ('what mteb does not say',))}"
    if "API" not in meta.framework and not meta.open_weights:
        return "its weights are not public"
    if meta.loader is None:
        return "mteb has no loader for it"
    arguments = meta.loader_kwargs
    own_code = [key.get("trust_remote_code") for key in (arguments, arguments.get("model_kwargs") or {})]
    if any(own_code) and not trusted:
        return "its checkpoint brings code of its own, which runs only if its entry says trust_remote_code: true"
    return ""


def _foreign(meta: Any, loader: str) -> str:
    """Return why a model needs mteb's own loader; empty if it does not."""
    if correction := _corrections().get(meta.name):
        return correction
    if list(meta.modalities) != ["text"]:
        return f"it reads {', '.join(meta.modalities)}, not text alone"
    if loader not in _FAMILIES:
        return f"mteb loads it by {loader}, a loader of its own"
    if len(meta.model_type) > 1 or meta.model_type[0] not in ("dense", "sparse", "late-interaction", "cross-encoder"):
        return f"it is a model of type {' and '.join(meta.model_type)}"
    if other := sorted(set(_unknown_arguments(_arguments(meta)))):
        return f"mteb loads it with {', '.join(other)}, for which entries have no key"
    return ""


def _unknown_arguments(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if name not in _TAKEN:
            yield name
        for inner in set(value or ()) - _HARMLESS[name] if name in _HARMLESS else ():
            yield f"{name}.{inner}"


def facts(name: str, also: Iterable[str] = (), trusted: bool = False) -> dict[str, Any]:
    """Return mteb's facts of a model: its entry, and facts without a key in entries.

    Args:
        also: tasks whose prompts are wanted beside those of the registered datasets.
        trusted: whether its entry lets code from the checkpoint run.

    Returns:
        ``mteb`` (version), ``entry`` (keys of a model's entry), ``trained_on`` (tasks, None if they are unknown) and,
        where these texts differ by task, ``queries`` and ``documents`` (text before them by task).

    Raises:
        ConfigError: mteb lists no such model, or beirgrid's engine does not run it.
    """
    listed, meta = classify(name, trusted), _meta(name)
    if not listed.family:
        raise ConfigError(f"{name} cannot be used by its name: {listed.reason} ({ENGINES[listed.engine]})")
    entry: dict[str, Any] = {"family": listed.family, "checkpoint": name}
    entry["revision"] = meta.revision if re.match(COMMIT, meta.revision or "") else RESOLVE
    if "safetensors" not in meta.framework:
        entry["pickled"] = True
    adapted = _loader(meta) in _ADAPTED
    if adapted:
        entry |= _adapted(meta)
    if listed.engine == "beirgrid" and (length := _max_length(meta, listed.family)):
        entry["max_length"] = length
    entry["size"] = _size(meta, listed.family)
    if meta.license and meta.license != "not specified":
        entry["licence"] = str(meta.license)
    found: dict[str, Any] = {"mteb": mteb_version(), "entry": entry}
    if listed.engine == "mteb":
        entry |= {"engine": "mteb"} | ({"similarity": _similarity(meta)} if listed.family == "dense" else {})
    elif listed.family == "dense":
        # A checkpoint that says otherwise is refused when it is opened.
        entry |= {"similarity": _similarity(meta), "pooling": "lasttoken" if adapted else "own"}
        if meta.loader_kwargs.get("add_eos_token"):
            first = (meta.loader_kwargs.get("tokenizer_kwargs") or {}).get("add_bos_token")
            entry["special_tokens"] = "both" if first else "end"
    if listed.family in ("seq2seq-reranker", "decoder-reranker"):
        entry |= _asked(meta)
    if listed.engine == "beirgrid" and listed.family in ("dense", "sparse"):
        entry["prompts"], by_task = _prompts(meta, [*(task.name for task in tasks().values()), *also])
        found |= by_task
        if not entry["prompts"].get("own"):
            found["tasks"] = sorted(also)
    trained = meta.training_datasets
    found["trained_on"] = None if trained is None else sorted(meta.get_training_datasets() or trained)
    return found


def _max_length(meta: Any, family: str) -> int | None:
    """Return the maximum tokens in mteb's loader; None for the checkpoint's own limit."""
    arguments = meta.loader_kwargs
    if _loader(meta) in (_FLAG, *_ADAPTED):
        return _FLAG_LENGTH
    if _loader(meta) == "Qwen3RerankerWrapper":
        return _QWEN_LENGTH
    length = arguments.get("max_seq_length") or arguments.get("max_length")
    length = length or (arguments.get("processor_kwargs") or {}).get("model_max_length")
    if length is None and family == "cross-encoder":
        length = meta.max_tokens
    return int(length) if length else None


def _asked(meta: Any) -> dict[str, Any]:
    """Return the prompt and the answers of a reranker that has its own prompt in mteb."""
    from mteb.models.model_implementations.rerankers_monot5_based import prediction_tokens

    if _loader(meta) == "Qwen3RerankerWrapper":
        pair = meta.loader.format_instruction(None, "{query}", "{document}")
        return {"prompt": [_QWEN[0], pair, _QWEN[1]], "answers": ["yes", "no"]}
    if _loader(meta) == "FLANT5Reranker":
        pair = meta.loader.prompt_template.format(query="{query}", text="{document}")
        return {"prompt": [pair], "answers": ["▁yes", "▁no"]}
    answers = list(reversed(prediction_tokens[meta.name]))
    return {"answers": answers} if tuple(answers) != Seq2SeqReranker.model_fields["answers"].default else {}


def _adapted(meta: Any) -> dict[str, Any]:
    """Return where an adapter and its base come from; a text has both special tokens of the base."""
    arguments = _arguments(meta)
    base, adapter = (meta.revision or "-").split("-")
    changed = {"checkpoint": arguments.get("peft_model_name_or_path", meta.name), "revision": adapter or RESOLVE}
    if "safetensors" not in meta.framework:
        changed["pickled"] = True
    found = {"checkpoint": arguments["base_model_name_or_path"], "revision": base or RESOLVE, "adapter": changed}
    return found | {"special_tokens": "both"}


def _size(meta: Any, family: str) -> dict[str, float | int]:
    """Return the size of a model in millions of parameters, and the dimension of its vectors."""
    size: dict[str, float | int] = {}
    if meta.n_parameters:
        size["parameters"] = round(meta.n_parameters / 1e6, 1) or 0.1
        if meta.n_embedding_parameters and meta.n_embedding_parameters <= meta.n_parameters:
            size["embeddings"] = min(round(meta.n_embedding_parameters / 1e6, 1), size["parameters"])
    if family == "dense" and isinstance(meta.embed_dim, int):
        size["dimensions"] = meta.embed_dim
    return size


def _similarity(meta: Any) -> str:
    return "dot" if str(getattr(meta.similarity_fn_name, "value", "")) == "dot" else "cosine"


def _prompts(meta: Any, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Return the prompts of a model as an entry has them, and the texts by task of each side whose texts differ."""
    if _loader(meta) not in ("InstructSentenceTransformerModel", "q3e_instruct_loader"):
        if not (named := _arguments(meta).get("model_prompts")):
            return {"own": True}, {}
        sent = _named_prompt(named)
    else:
        sent = _instruction(meta)
    with quiet():
        queries = {name: sent(_task(name), "query") for name in sorted(set(names))}
        documents = {name: sent(_task(name), "document") for name in queries}
        general = sent(_no_task(), "query")
    # Datasets share the vectors of a corpus: the text before documents is that of most tasks.
    shared = Counter(documents.values()).most_common(1)[0][0]
    differ = {
        side: texts
        for side, texts, one in (("queries", queries, general), ("documents", documents, shared))
        if set(texts.values()) != {one}
    }
    return {"query": general, "document": shared}, differ


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


def _no_task() -> Any:
    """Return a stand-in for a collection that mteb does not list: a retrieval task with mteb's general instruction."""
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    return SimpleNamespace(name="", type="Retrieval", prompt=AbsTaskRetrieval.abstask_prompt)


@cache
def _task(name: str) -> Any:
    import mteb

    return mteb.get_task(name).metadata
