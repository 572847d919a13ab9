"""Long texts, cut before they are tokenized.

A tokenizer takes more than a hundred bytes per token of a text, and for pairs of texts keeps what it cuts off, while a
model reads only the first tokens. So a tokenizer here sees the beginning of a long text alone, and what the model
reads stays the same to the token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

# Tokens that a beginning has beyond those that are read. A tokenizer may split the last word of a beginning otherwise
# than the word of the whole text. Half of the margin is more than WordPiece makes of one word (at most 100 or 200
# letters; what is longer is one unknown token).
MARGIN = 512
# Characters per token that are tried first: more than most languages have, so that one try is enough.
CHARACTERS = 8
# Characters that are tokenized at a time where the whole text counts.
CHUNK = 2**16
# So far back a cut looks for the end of a word.
WORD = 1000
# What WordPiece makes nothing of (white space, NUL) or a single unknown token (letters and digits of one word): the
# first 1000 characters of such a run do the same. The scripts of which each character is a word begin later.
_IDLE = re.compile(
    r"([ \t\r\n]{1000})[ \t\r\n]+|(\x00{1000})\x00+|([^\W_\u2000-\U0010ffff]{1000})[^\W_\u2000-\U0010ffff]+"
)


class Beginning(NamedTuple):
    """A text for one side of a pair.

    ``shorter`` and ``tokens`` are of a text that has more tokens than are read: a beginning of fewer tokens than
    ``text`` has, and the number of tokens of the whole text, which decides which side of a pair is cut by one more.
    """

    text: str
    shorter: str = ""
    tokens: int = 0


def cut(tokenizer: Any, text: str, tokens: int, before: str = "") -> str:
    """Return a text with the same first ``tokens`` tokens, read after the text ``before``: a beginning of a long one.

    Runs in which a tokenizer finds no second token (a megabyte of white space) are shortened.
    """
    if len(before) + len(text) <= (tokens + MARGIN) * CHARACTERS:
        return text
    return _beginning(tokenizer, before + text if before else text, tokens)[len(before) :]


def _beginning(tokenizer: Any, text: str, tokens: int) -> str:
    if tokenizer.truncation_side != "right":
        return text
    size = (tokens + MARGIN) * CHARACTERS
    while size < len(text):
        beginning = text[: _word_end(text, size)]
        # One token less of each part: a part may end within a word, which then counts twice.
        if sum(max(len(ids) - 1, 0) for ids in pieces(tokenizer, beginning)) >= tokens + MARGIN:
            return beginning
        if size == (tokens + MARGIN) * CHARACTERS and type(tokenizer.backend_tokenizer.model).__name__ == "WordPiece":
            text = _IDLE.sub(r"\1\2\3", text)
        size *= 2
    return text


def _word_end(text: str, size: int) -> int:
    """Return where the last word ends that ends within the first ``size`` characters, or ``size`` if it is long."""
    end = size
    while end > max(size - WORD, 0) and not (text[end : end + 1].isspace() and not text[end - 1].isspace()):
        end -= 1
    return end if end > max(size - WORD, 0) else size


def pieces(tokenizer: Any, text: str) -> Iterator[list[int]]:
    """Yield the token ids of a text, without special tokens, a part of the text at a time."""
    start = 0
    while start < len(text):
        stop = len(text) if len(text) - start <= CHUNK else start + _word_end(text[start : start + CHUNK + 1], CHUNK)
        yield tokenizer(text[start:stop], add_special_tokens=False, verbose=False)["input_ids"]
        start = stop


def for_pair(tokenizer: Any, text: str, tokens: int, counted: bool) -> Beginning:
    """Return what of a text can be read where a pair has at most ``tokens`` tokens.

    ``counted`` must be true unless all texts of the other side have at most ``tokens`` + MARGIN tokens.
    """
    beginning = cut(tokenizer, text, tokens)
    if not counted:
        return Beginning(beginning)
    found = tokenizer(beginning, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    if len(found["input_ids"]) < tokens + MARGIN:
        return Beginning(beginning)
    # A tokenizer keeps each part of one side with each part of the other one, each part as long as a pair: of a script
    # with a token per letter, a beginning of so many characters would take 27 MB per pair.
    read = tokens + MARGIN
    starts = [start for start, _ in found["offset_mapping"]]
    if tokenizer.truncation_side == "right":
        beginning = beginning[: starts[read]] if len(starts) > read else beginning
    shorter = beginning[: starts[tokens + MARGIN // 2]]
    return Beginning(beginning, shorter, sum(map(len, pieces(tokenizer, text))))


def pair(first: Beginning, second: Beginning) -> tuple[str, str]:
    """Return the texts of a pair that its tokenizer cuts to the same tokens as it does the whole texts.

    It takes tokens from the longer one until both are as long, then from each in turn: of two that are longer than
    what is read, the longer one must stay the longer.
    """
    if first.shorter and second.shorter:
        return (first.text, second.shorter) if first.tokens > second.tokens else (first.shorter, second.text)
    return first.text, second.text
