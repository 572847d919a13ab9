"""Truncate long texts before tokenization.

A tokenizer needs more than a hundred bytes per token and, for pairs, keeps the truncated tokens, but a model reads only
the first tokens. So a tokenizer gets only the beginning of a long text. The model's input is unchanged, token by token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Extra tokens in a beginning, because its last word may be truncated and tokenized differently. Half of the margin
# exceeds what WordPiece makes of one word (at most 100 or 200 letters; a longer word is one unknown token).
MARGIN = 512
# Characters per token of the first try: more than in most languages, so that one try is usually enough.
CHARACTERS = 8


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
    size = (tokens + MARGIN) * CHARACTERS
    if tokenizer.truncation_side != "right":
        return text
    while size < len(before) + len(text):
        beginning = before + text[: max(size - len(before), 0)]
        if len(_ids(tokenizer, beginning)) >= tokens + MARGIN:
            return beginning[len(before) :]
        size *= 2
    return text


def windows(tokenizer: Any, text: str, tokens: int, stride: int) -> list[str]:
    """Return the parts of a text that begin every ``stride`` tokens and have ``tokens`` of them.

    A part that begins or ends within a word may be read as more tokens. It is then shortened, and the next one begins
    no later than it ends. The last part has the end of the text. A text of at most ``tokens`` tokens is one part.
    """
    spans = _spans(tokenizer, text)
    if len(spans) <= tokens:
        return [text]
    chunks: list[str] = []
    begin = 0
    end = 0
    while end < len(spans):
        end = min(begin + tokens, len(spans))
        while (
            more := len(_ids(tokenizer, text[spans[begin][0] : spans[end - 1][1]])) - tokens
        ) > 0 and end > begin + 1:
            end = max(end - more, begin + 1)
        chunks.append(text[spans[begin][0] : spans[end - 1][1]])
        begin = min(begin + stride, end)
    return chunks


def for_pair(tokenizer: Any, text: str, tokens: int, counted: bool = True) -> Beginning:
    """Truncate a text for a pair of at most ``tokens`` tokens.

    ``counted`` must be true unless all texts of the other side have at most ``tokens`` + MARGIN tokens.
    """
    beginning = cut(tokenizer, text, tokens)
    read = tokens + MARGIN
    if not counted or len(spans := _spans(tokenizer, beginning)) < read:
        return Beginning(beginning)
    # A tokenizer keeps every combination of overflow chunks of both sides. In a script with one token per letter, a
    # beginning of this many characters would take 27 MB per pair.
    if tokenizer.truncation_side == "right" and len(spans) > read:
        beginning = beginning[: spans[read][0]]
    return Beginning(beginning, beginning[: spans[tokens + MARGIN // 2][0]], len(_ids(tokenizer, text)))


def pair(first: Beginning, second: Beginning) -> tuple[str, str]:
    """Choose beginnings that the tokenizer truncates to the same tokens as the whole texts.

    It removes tokens from the longer text until both have the same length, then from each in turn. So if both texts are
    longer than a pair, the longer text must remain the longer one.
    """
    if first.shorter and second.shorter:
        return (first.text, second.shorter) if first.tokens > second.tokens else (first.shorter, second.text)
    return first.text, second.text


def _spans(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Return the first and the last character of each token."""
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    spans: list[tuple[int, int]] = read["offset_mapping"]
    return spans


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids
