"""The first and the end token that a tokenizer puts around a text.

transformers 5 takes them from tokenizer.json alone. transformers 4 took them from tokenizer_config.json, as models were
trained that pool the last token (E5-Mistral).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..models import saved

# What an entry's ``special_tokens`` puts around a text: the first token, the end token.
_OF_ENTRY = {"end": (False, True), "both": (True, True)}
# Classes of tokenizers for which false in tokenizer_config.json kept a token away in transformers 4. For others, false
# is a default that no release has read.
_OBEYED = ("Llama", "CodeLlama", "Gemma", "Cohere")


def put_around(folder: Path, modules: Iterable[Any], of_entry: str | None) -> None:
    """Make the tokenizers among a model's modules put the tokens around a text that the entry says or, unless it does
    (``of_entry``), tokenizer_config.json.
    """
    from transformers import PreTrainedTokenizerBase

    used = {id(one): one for one in (getattr(module, "tokenizer", module) for module in modules)}
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
    wanted, around = [], _around(tokenizer)
    for end, key, tokens in zip(("bos", "eos"), ("add_bos_token", "add_eos_token"), around, strict=True):
        token, say = getattr(tokenizer, f"{end}_token_id"), config.get(key)
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
