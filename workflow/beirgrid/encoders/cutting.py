"""Truncate long texts before tokenization.

A tokenizer needs more than a hundred bytes per token and, for pairs, keeps the truncated tokens, but a model reads only
the first tokens. So a tokenizer gets only the beginning of a long text. The model's input is unchanged, token by token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

# Extra tokens in a beginning, because its last word may be truncated and tokenized differently. Half of the margin
# exceeds what WordPiece makes of one word (at most 100 or 200 letters; a longer word is one unknown token).
MARGIN = 512
# Characters per token of the first try: more than in most languages, so that one try is usually enough.
CHARACTERS = 8
# Characters tokenized at a time when all tokens of a text are counted.
CHUNK = 2**16
# Characters searched backwards for the end of a word.
WORD = 1000


class Beginning(NamedTuple):
    """A truncated text for one side of a pair.

    If the whole text has more tokens than a pair can hold, ``shorter`` is a beginning with fewer tokens than ``text``,
    and ``tokens`` counts the tokens of the whole text, which decides which side of a pair loses one more token.
    """

    text: str
    shorter: str = ""
    tokens: int = 0


def cut(tokenizer: Any, text: str, tokens: int, before: str = "") -> str:
    """Shorten a text so that its first ``tokens`` tokens after the text ``before`` are unchanged."""
    if len(before) + len(text) <= (tokens + MARGIN) * CHARACTERS:
        return text
    return _beginning(tokenizer, before + text if before else text, tokens)[len(before) :]


def _beginning(tokenizer: Any, text: str, tokens: int) -> str:
    if tokenizer.truncation_side != "right":
        return text
    size = (tokens + MARGIN) * CHARACTERS
    while size < len(text):
        beginning = text[: _word_end(text, size)]
        # One token less per part: a part may end within a word, which then counts twice.
        if sum(max(len(ids) - 1, 0) for ids in pieces(tokenizer, beginning)) >= tokens + MARGIN:
            return beginning
        size *= 2
    return text


def _word_end(text: str, size: int) -> int:
    """Return the end of the last word within the first ``size`` characters, or ``size`` if that word is long."""
    end = size
    while end > max(size - WORD, 0) and not (text[end : end + 1].isspace() and not text[end - 1].isspace()):
        end -= 1
    return end if end > max(size - WORD, 0) else size


def pieces(tokenizer: Any, text: str) -> Iterator[list[int]]:
    """Tokenize a text part by part, without special tokens."""
    for _, part in _parts(text):
        yield _ids(tokenizer, part)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text that are tokenized at a time, with their first characters."""
    start = 0
    while start < len(text):
        stop = len(text) if len(text) - start <= CHUNK else start + _word_end(text[start : start + CHUNK + 1], CHUNK)
        yield start, text[start:stop]
        start = stop


def windows(tokenizer: Any, text: str, tokens: int, stride: int) -> list[str]:
    """Return the parts of a text that begin every ``stride`` tokens and have ``tokens`` of them.

    A part that begins or ends within a word may be read as more tokens. It is then shortened, and the next one begins
    no later than it ends. The last part has the end of the text. A text of at most ``tokens`` tokens is one part.
    """
    spans = [
        (start + first, start + last)
        for start, part in _parts(text)
        for first, last in tokenizer(part, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
            "offset_mapping"
        ]
    ]
    if len(spans) <= tokens:
        return [text]
    chunks, begin, end = list[str](), 0, 0
    while end < len(spans):
        end = min(begin + tokens, len(spans))
        while (more := len(_ids(tokenizer, _between(text, spans, begin, end))) - tokens) > 0 and end > begin + 1:
            end = max(end - more, begin + 1)
        chunks.append(_between(text, spans, begin, end))
        begin = min(begin + stride, end)
    return chunks


def _between(text: str, spans: list[tuple[int, int]], begin: int, end: int) -> str:
    return text[spans[begin][0] : spans[end - 1][1]]


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def for_pair(tokenizer: Any, text: str, tokens: int, counted: bool) -> Beginning:
    """Truncate a text for a pair of at most ``tokens`` tokens.

    ``counted`` must be true unless all texts of the other side have at most ``tokens`` + MARGIN tokens.
    """
    beginning = cut(tokenizer, text, tokens)
    if not counted:
        return Beginning(beginning)
    encoding = tokenizer(beginning, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    if len(encoding["input_ids"]) < tokens + MARGIN:
        return Beginning(beginning)
    # A tokenizer keeps every combination of overflow chunks of both sides. In a script with one token per letter, a
    # beginning of this many characters would take 27 MB per pair.
    read = tokens + MARGIN
    starts = [start for start, _ in encoding["offset_mapping"]]
    if tokenizer.truncation_side == "right":
        beginning = beginning[: starts[read]] if len(starts) > read else beginning
    shorter = beginning[: starts[tokens + MARGIN // 2]]
    return Beginning(beginning, shorter, sum(map(len, pieces(tokenizer, text))))


def pair(first: Beginning, second: Beginning) -> tuple[str, str]:
    """Choose beginnings that the tokenizer truncates to the same tokens as the whole texts.

    It removes tokens from the longer text until both have the same length, then from each in turn. So if both texts are
    longer than a pair, the longer text must remain the longer one.
    """
    if first.shorter and second.shorter:
        return (first.text, second.shorter) if first.tokens > second.tokens else (first.shorter, second.text)
    return first.text, second.text
