"""The first and the end token that a tokenizer puts around a text.

transformers 5 takes them from tokenizer.json alone. transformers 4 took them from tokenizer_config.json, as models were
trained that pool the last token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.errors import DataError
from ..models import saved

# What an entry's ``special_tokens`` puts around a text: the first token, the end token.
_OF_ENTRY = {"end": (False, True), "both": (True, True)}
_KEYS = ("add_bos_token", "add_eos_token")
# Classes of tokenizers for which false in tokenizer_config.json kept a token away in transformers 4. For others, false
# is a default that no release has read.
_OBEYED = ("Llama", "CodeLlama", "Gemma", "Cohere")


def put_around(folder: Path, modules: Iterable[Any], of_entry: str | None) -> None:
    """Make the tokenizers among a model's modules put the tokens around a text that the entry says or, unless it does
    (``of_entry``), tokenizer_config.json.

    Raises:
        DataError: that file contradicts tokenizer.json, and the two cannot be reconciled.
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
                _reconcile(path, tokenizer)


def _reconcile(path: Path, tokenizer: Any) -> None:
    """Add the tokens that a tokenizer_config.json asks for, unless the tokenizer adds them already."""
    config, ends = saved.read(path), (tokenizer.bos_token_id, tokenizer.eos_token_id)
    obeyed = str(config.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer") in _OBEYED
    # Without a tokenizer.json, these classes put the first token before a text unless the file said false.
    first = {} if path.with_name("tokenizer.json").is_file() or not obeyed else {"add_bos_token": True}
    said, around = [(first | config).get(key) for key in _KEYS], _around(tokenizer)
    has = [end in tokens for end, tokens in zip(ends, around, strict=True)]
    too_many = obeyed and any(say is False and have for say, have in zip(said, has, strict=True))
    if not too_many and all(have or not say for say, have in zip(said, has, strict=True)):
        return
    wanted = [have or bool(say) for say, have in zip(said, has, strict=True)]
    if not too_many and all({*tokens} <= {end} for end, tokens in zip(ends, around, strict=True)):  # no other is lost
        tokenizer.add_bos_token, tokenizer.add_eos_token = wanted
    if too_many or _around(tokenizer) != tuple([end] * want for end, want in zip(ends, wanted, strict=True)):
        stated = ", ".join(f"{key} {json.dumps(say)}" for key, say in zip(_KEYS, said, strict=True) if say is not None)
        before, after = (" ".join(tokenizer.convert_ids_to_tokens(tokens)) or "nothing" for tokens in around)
        raise DataError(
            f"{path} says {stated}, but tokenizer.json puts {before} before a text and {after} after it (first token "
            f"{tokenizer.bos_token}, end token {tokenizer.eos_token}): correct one of these files, or set "
            "special_tokens in the entry of a dense model"
        )


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that a tokenizer adds before and after a text."""
    read = tokenizer("a", return_special_tokens_mask=True)
    text = [place for place, special in enumerate(read["special_tokens_mask"]) if not special]
    return read["input_ids"][: text[0]], read["input_ids"][text[-1] + 1 :]
