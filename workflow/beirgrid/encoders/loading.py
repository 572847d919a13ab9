"""Open checkpoints with sentence-transformers or transformers, and refuse those that lack weights or have others."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from ..core.errors import DataError
from ..models import saved

# Weights that a checkpoint may contain and the model may leave unused. Any other unused weight means that a part of the
# model would be silently dropped, such as ANCE's head.
_SPARE = re.compile(
    r"(^|\.)("
    r"pooler\."  # BERT's pooler, which our pooling does not use
    r"|position_ids$|inv_freq$|(attn|attention)\.(masked_)?bias$"  # constants stored by older releases
    # The heads that these are pre-trained with: BERT, ALBERT, DeBERTa, DistilBERT, ELECTRA; then ModernBERT.
    r"|lm_head\.|cls\.|(lm_|mask_|discriminator_|generator_)?predictions\.|sop_classifier\.|generator_lm_head\."
    r"|vocab_(transform|layer_norm|projector)\.)"
    r"|^head\.(dense|norm)\.|^decoder\.(weight|bias)$"
)
# What an entry's ``special_tokens`` puts around a text: the first token, the end token.
_OF_ENTRY = {"end": (False, True), "both": (True, True)}
# Classes of tokenizers for which false in tokenizer_config.json kept a token away in transformers 4. For others, false
# is a default that no release has read.
_OBEYED = ("Llama", "CodeLlama", "Gemma", "Cohere")
# Keys of sentence-transformers with a class after a layer. It opens PyTorch's alone; others have names with dots, too.
_ACTIVATIONS = ("activation_function", "activation_fn", "sbert_ce_default_activation_function")


def load_checkpoint(
    loader: Any,
    folder: Path,
    unused: str = "",
    spare: str = "",
    *,
    trust_remote_code: bool | None = None,
    special_tokens: str | None = None,
    **options: Any,
) -> Any:
    """Open a checkpoint in float32 with a class of sentence-transformers or transformers; any failure becomes a
    DataError.

    Missing weights are an error: transformers would initialise them at random, with only a log line. ``unused`` is a
    part of the names of weights that the model may lack. Unused weights are an error too, except known pre-training
    heads (``_SPARE``) and ``spare``, the name of a weight that is read elsewhere. So is code of the checkpoint that
    ``trust_remote_code`` neither runs (True) nor replaces by transformers' own class (False).

    Its tokenizers put the tokens around a text that ``special_tokens`` of the entry or tokenizer_config.json says.
    """
    saved.refuse_outside(folder)
    with _load_reports() as reports:
        try:
            load = loader.from_pretrained if loader.__module__.startswith("transformers.") else loader
            model = load(str(folder), local_files_only=True, trust_remote_code=bool(trust_remote_code), **options)
        except Exception as error:  # transformers raises many types for a broken folder
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"{folder} cannot be loaded as a {loader.__name__}: {reason}") from error
    modules = list(model.modules()) if hasattr(model, "modules") else [model]
    if not trust_remote_code:
        _leave_code_out(folder, modules, allowed=trust_remote_code is False)
    _put_tokens_around(folder, modules, special_tokens)
    _refuse_other_weights(folder, model, reports, unused, spare)
    if not hasattr(model, "named_parameters"):  # a tokenizer
        return model
    for name, weight in model.named_parameters():
        if weight.numel() and not all(bool(end.isfinite()) for end in weight.aminmax()):
            raise DataError(f"{folder}: the weight {name} has values that are not finite: the checkpoint is damaged")
    return model.float()  # transformers keeps weights in their stored type


def _refuse_other_weights(folder: Path, model: Any, reports: list[Any], unused: str, spare: str) -> None:
    """Raise DataError if a model lacks weights, or its checkpoint has others, as ``load_checkpoint`` says."""
    missing = sorted(name for report in reports for name in report.missing_keys)
    if lacking := [name for name in missing if not unused or unused not in name]:
        whole = f"{folder} is not a complete {type(model).__name__}"
        raise DataError(f"{whole}: it lacks {len(lacking)} weights, {lacking[0]} first")
    unexpected = sorted(name for report in reports for name in report.unexpected_keys)
    if left_out := [name for name in unexpected if name != spare and not _SPARE.search(name)]:
        raise DataError(
            f"{folder} holds {len(left_out)} weights that a {type(model).__name__} of this architecture does not use, "
            f"{left_out[0]} first: it is another model, or its head must become a module of its own (docs/models.md, "
            "Converting pickled weights). Remove weights that are not needed from the file."
        )


def _leave_code_out(folder: Path, modules: list[Any], *, allowed: bool) -> None:
    """Refuse a checkpoint whose code its library replaced by something of its own, unless that is allowed. Then a copy
    that is saved after training names no code either.
    """
    named = ((path, *code) for path in sorted(folder.rglob("*config*.json")) for code in _code_of(path))
    if not allowed and (first := next(named, None)):
        path, code, key, instead = first
        raise DataError(
            f"{folder} brings code of its own ({code}: {key} in its {path.relative_to(folder)}), and {instead}, "
            "which may compute something else. Set trust_remote_code in the model's entry: true runs this code (read "
            "it first), false opens what the library has"
        )
    for module in modules if allowed else ():
        config: Any = getattr(module, "config", None)
        if getattr(config, "auto_map", None):
            del config.auto_map
        getattr(getattr(module, "tokenizer", None), "init_kwargs", {}).pop("auto_map", None)


def _code_of(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield code that a file of settings names and its library leaves out: name, key, and what the library does."""
    settings = saved.read(path, Any)  # data_config.json, the training data, is a list
    parts = [settings, *settings.values()] if isinstance(settings, dict) else []
    for part in (part for part in parts if isinstance(part, dict)):
        if classes := part.get("auto_map"):
            kind = part.get("model_type", "the tokenizer")
            yield ", ".join(map(str, classes.values())), "auto_map", f"transformers has a class for {kind}"
        for key in _ACTIVATIONS:
            if "." in (name := str(part.get(key, ""))) and not name.startswith("torch."):
                yield name, key, "sentence-transformers takes an activation of PyTorch in its place"


def _put_tokens_around(folder: Path, modules: list[Any], of_entry: str | None) -> None:
    """Make the tokenizers among a model's modules put the tokens around a text that the entry says or, unless it does
    (``of_entry``), tokenizer_config.json.

    transformers 5 takes them from tokenizer.json alone. transformers 4 took them from tokenizer_config.json, as models
    were trained that pool the last token (E5-Mistral).
    """
    used = {id(tokenizer): tokenizer for tokenizer in (getattr(module, "tokenizer", module) for module in modules)}
    for tokenizer in used.values():
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            continue
        if of_entry:
            tokenizer.add_bos_token, tokenizer.add_eos_token = _OF_ENTRY[of_entry]
        else:
            for path in folder.rglob("tokenizer_config.json"):
                _obey(path, tokenizer)


def _obey(path: Path, tokenizer: Any) -> None:
    """Put the tokens around a text that a tokenizer_config.json asks for, unless others would be lost."""
    config = saved.read(path)
    obeyed = str(config.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer") in _OBEYED
    if obeyed and not path.with_name("tokenizer.json").is_file():
        config = {"add_bos_token": True} | config  # the default of these classes
    wanted = []
    around = _around(tokenizer)
    for end, key, tokens in zip(("bos", "eos"), ("add_bos_token", "add_eos_token"), around, strict=True):
        token = getattr(tokenizer, f"{end}_token_id")
        say = config.get(key)
        if {*tokens} - {token}:
            return
        wanted.append(say if token is not None and (say or (obeyed and say is False)) else bool(tokens))
    if wanted != [bool(tokens) for tokens in around]:
        tokenizer.add_bos_token, tokenizer.add_eos_token = wanted


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that a tokenizer adds before and after a text."""
    read = tokenizer("a", return_special_tokens_mask=True)
    text = [place for place, special in enumerate(read["special_tokens_mask"]) if not special]
    return read["input_ids"][: text[0]], read["input_ids"][text[-1] + 1 :]


def first_module(folder: str, options: dict[str, Any], **more: Any) -> Any:
    """Build the first module of a model of sentence-transformers. It takes what concerns files out of ``options``."""
    from sentence_transformers.base.modules import Transformer

    hub = {name: options.pop(name) for name in ("local_files_only", "trust_remote_code")}
    model = hub | more.pop("model_kwargs", {})
    return Transformer(folder, model_kwargs=model, processor_kwargs=dict(hub), config_kwargs=dict(hub), **more)


def m3_head(folder: Path, head: str) -> dict[str, torch.Tensor]:
    """Read ``weight`` and ``bias`` of a head of BGE-M3 (``sparse``, ``colbert``), which fetch converted."""
    if not (path := folder / f"{head}_linear.safetensors").is_file():
        raise DataError(f"{folder} has no {path.name}: it is not BGE-M3, or its entry lacks pickled: true")
    return {name: weight.float() for name, weight in load_file(path).items()}


def pad_with_the_end(tokenizer: Any) -> None:
    """Use the end token for padding if a tokenizer has no padding token (GPT). No token attends to padding."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


@contextmanager
def _load_reports() -> Iterator[list[Any]]:
    """Collect transformers' LoadStateDictInfo of each model that is loaded in the block.

    transformers only logs this information, as a table for a terminal.
    """
    modeling: Any = importlib.import_module("transformers.modeling_utils")
    reports: list[Any] = []
    log = modeling.log_state_dict_report

    def collect(**options: Any) -> None:
        reports.append(options["loading_info"])
        log(**options)

    modeling.log_state_dict_report = collect
    try:
        yield reports
    finally:
        modeling.log_state_dict_report = log
