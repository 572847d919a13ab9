"""Read lines of text files, plain or gzipped, each with its place for messages."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import DataError


def read(path: Path, blank: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (line, "file:number"), without line ends (LF or CRLF) and byte order mark.

    Args:
        path: the file.
        blank: whether to yield blank lines too.

    Raises:
        DataError: the file is not UTF-8, is truncated, or has carriage returns within a line. The message names the
            file and the line.
    """
    number = 0
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with files.named(path), opener(path, "rb") as stream:
            for number, raw in enumerate(stream, start=1):
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if "\r" in text.strip():
                    raise DataError(f"{path}:{number}: a carriage return within a line; lines end in LF or in CRLF")
                if blank or text.strip():
                    yield text, f"{path}:{number}"
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated or corrupt after line {number} ({error})") from None
