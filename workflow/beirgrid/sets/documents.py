"""Read your own documents from text files and tables, as a corpus in BEIR layout."""

from __future__ import annotations

import io
import os
import re
import signal
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..collections import ids, lines
from ..collections.collection import Document
from ..collections.sources import json_lines, read_id, read_text
from ..core import files
from ..core.errors import BeirgridError, DataError, warn

# Known names of columns and JSON keys. The first one in a row counts.
_IDS, _TEXTS = ("_id", "id", "doc_id", "docid"), ("text", "body", "content", "contents")
# Largest file that is one document, unpacked, in bytes; and the longest time to read it, in seconds.
_LARGEST, _LONGEST = 200 * 2**20, 300
# Elements of a Word file that mammoth leaves out with the text in them: moved text, fields, directions, ruby.
_WRAPPERS = rb"moveTo|fldSimple|customXml|bdo|dir|ruby|rubyBase|rt"
_TAGS = re.compile(rb"""</?w:(""" + _WRAPPERS + rb""")(\s([^>"']|"[^"]*"|'[^']*')*)?/?>""")
# How the parts of a page begin and end that are no text.
_UNSEEN = {"<!--": "-->"} | {f"<{name}": f"</{name}" for name in ("script", "style", "template", "noscript", "title")}
# A row of a table by the names of its columns, with its place.
Row = tuple[dict[str, Any], str]
# Title and text of a file that is one document, and what is missing of the text. Each may be empty.
_Text = tuple[str, str, str]


def read(folder: Path, chunk: int | None = None) -> tuple[list[Document], dict[str, str]]:
    """Read the documents of a folder or of one file, in the order of their paths.

    A file's id is its path within the folder, percent-encoded. A row's id is its id column, or the file's id with the
    row's number. A chunk appends its number. A file that is one document is left out if it cannot be read.

    Args:
        folder: the folder, or a file.
        chunk: most words per document; longer documents are split into chunks of paragraphs up to this number.

    Returns:
        The documents, and the flaws: by id, why a document is left out, or why its text is empty or cut.

    Raises:
        DataError: a table cannot be read, or no document has a text.
        BeirgridError: the library that reads a kind of file is not installed.
    """
    paths = [path for path, obstacle in _visible(folder) if not obstacle]
    if not paths:
        raise DataError(f"{folder} has no documents: files ending in {', '.join(_READERS | _TABLES)}")
    root = folder.parent if folder.is_file() else folder
    documents: list[Document] = []
    flaws: dict[str, str] = {}
    for path in paths:
        name = quote(os.fsencode(path.relative_to(root)), safe="/")
        for document in _documents(path, name, flaws):
            ids.check(document.id, str(path))
            if not document.text.strip():
                flaws.setdefault(document.id, "it has no text")
            documents += _chunks(document, chunk) if chunk else [document]
    if not any(document.text.strip() for document in documents):
        reasons = "; ".join(f"{name}: {flaw}" for name, flaw in [*flaws.items()][:3])
        raise DataError(f"{folder} has no document with text ({reasons or 'its tables have no rows'})")
    return documents, flaws


def unread(folder: Path) -> Counter[str]:
    """Count the files of a folder that ``read`` does not open: links out of it, and unknown kinds by their endings."""
    return Counter(obstacle for _, obstacle in _visible(folder) if obstacle)


def duplicates(documents: Iterable[Document]) -> dict[str, list[str]]:
    """Group documents with equal words: the first id to the others."""
    first: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for document in documents:
        words = " ".join(f"{document.title} {document.text}".casefold().split())
        original = first.setdefault(words, document.id)
        if original != document.id:
            groups.setdefault(original, []).append(document.id)
    return groups


def _visible(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder that are not hidden, each with why it is not opened; empty if it is."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        kind = path.suffix.lower()
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(folder.resolve())):
            yield path, "links"
        elif path.is_file():
            yield path, "" if kind in _READERS | _TABLES else kind or "without an ending"


def _documents(path: Path, name: str, flaws: dict[str, str]) -> Iterable[Document]:
    """Yield the documents of a file, and add to the flaws if it is left out or its text is cut."""
    kind = path.suffix.lower()
    if kind in _TABLES:
        return _TABLES[kind](path, name)
    try:
        with _library(path), _limits(path), warnings.catch_warnings(action="ignore"):
            title, text, flaw = _READERS[kind](path)
    except DataError as error:
        flaws[name] = f"left out: {error}"
        return []
    if flaw:
        flaws[name] = flaw
    # Bytes of a name or of a PDF may be no UTF-8.
    title, text = (part.encode(errors="replace").decode() for part in (title, text))
    return [Document(name, title or os.fsencode(path.stem).decode(errors="replace"), text)]


@contextmanager
def _limits(path: Path) -> Iterator[None]:
    """Raise TimeoutError or ValueError if the file of one document is too large, or takes too long to read."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes longer than {_LONGEST} seconds")

    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    if size > _LARGEST:
        raise ValueError(f"it has {size:,} bytes, more than {_LARGEST:,}")
    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, _LONGEST, 1)  # again each second, as libraries catch exceptions
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _chunks(document: Document, most: int) -> Iterator[Document]:
    """Split a document into chunks of whole paragraphs with at most ``most`` words. A longer paragraph is split."""
    paragraphs = (re.findall(r"\S+\s*", text) for text in re.split(r"\n\s*\n", document.text))
    pieces = (words[at : at + most] for words in paragraphs for at in range(0, len(words), most))
    chunks: list[list[str]] = []
    size = most
    for piece in pieces:
        if size + len(piece) > most:
            chunks.append([])
            size = 0
        chunks[-1].append("".join(piece).rstrip())
        size += len(piece)
    if len(chunks) <= 1:
        yield document
        return
    for number, chunk in enumerate(chunks, start=1):
        yield Document(f"{document.id}#{number}", document.title, "\n\n".join(chunk))


def _source(path: Path) -> str:
    return "\n".join(line for line, _ in lines.read(path, raw=True)).replace("\r", "\n")


def _plain(path: Path) -> _Text:
    return "", _source(path).strip(), ""


def _markdown(path: Path) -> _Text:
    """Return a Markdown file without front matter, which begins with a key. A text between two rules does not."""
    return _headed(re.sub(r"\A---\n[\w-]+ *:.*?\n---\n", "", _source(path), flags=re.DOTALL))


def _headed(text: str) -> _Text:
    """Split a text in Markdown into its title, the heading that it begins with, and the rest."""
    heading = re.match(r"#{1,6}\s+(.+?)\s*#*$", text := text.strip(), re.MULTILINE)
    return (heading[1], text[heading.end() :].strip(), "") if heading else ("", text, "")


def _html(path: Path) -> _Text:
    """Return the text of a page, each of its pieces on a line of its own.

    Python's own parser, unlike lxml and html5lib, has no largest depth and no end before the end of the file.
    """
    from bs4 import BeautifulSoup
    from bs4.element import CData, NavigableString, RubyParenthesisString, RubyTextString

    source = _source(path)
    # Python's parser before 3.13.6 takes <!--> for the begin of a comment, and --!> for no end of one.
    page = BeautifulSoup(re.sub(r"<!--(?:-?>|.*?--!?>)", "", source, flags=re.DOTALL), "html.parser")
    title = " ".join(page.title.get_text().split()) if page.title else ""
    nested = page.select("noscript noscript, template template")  # the outer one does not close
    for unseen in [*page("title", limit=1), *page("noscript")]:
        unseen.extract()
    text = page.get_text("\n", types=(NavigableString, CData, RubyTextString, RubyParenthesisString))
    text = "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    small = source.lower()
    unclosed = [begin for begin, end in _UNSEEN.items() if small.rfind(begin) > small.rfind(end)]
    unclosed += [f"<{element.name}" for element in nested]
    return title, text, f"its text may be cut: {unclosed[0]} does not close" if unclosed else ""


def _pdf(path: Path) -> _Text:
    import pypdf

    reader = pypdf.PdfReader(path)
    pages = [page.extract_text().strip() for page in reader.pages]
    title = (reader.metadata.title if reader.metadata else None) or ""
    flaw = f"{pages.count('')} of its {len(pages)} pages have no text: scans need character recognition first"
    return title, "\n\n".join(filter(None, pages)), flaw if "" in pages else ""


def _office(path: Path) -> _Text:
    """Return what a Word, PowerPoint or EPUB file says, as Markdown. Of a picture, only its description is kept."""
    from markitdown import StreamInfo, converters

    kind = path.suffix.lower()
    readers = {".docx": converters.DocxConverter, ".pptx": converters.PptxConverter}
    with _whole(path) if kind == ".docx" else path.open("rb") as file:
        page = readers.get(kind, converters.EpubConverter)().convert(file, StreamInfo(extension=kind))
    text = re.sub(r"<!-- Slide number: \d+ -->\n", "", page.markdown)
    text = re.sub(r"!\[(.*?)\]\(.*?\)", r"\1", text)
    title, text, _ = _headed(re.sub(r"\\([_*])", r"\1", text))  # no marks, but characters of the file
    return page.title or title, text, ""


def _whole(path: Path) -> io.BytesIO:
    """Return a Word file without the elements with which mammoth would leave out text."""
    made = io.BytesIO()
    with zipfile.ZipFile(path) as word, zipfile.ZipFile(made, "w") as unwrapped:
        for part in word.infolist():
            content = word.read(part)
            unwrapped.writestr(part, _TAGS.sub(b"", content) if part.filename.endswith(".xml") else content)
    made.seek(0)
    return made


@contextmanager
def _library(path: Path) -> Iterator[None]:
    """Name the file, and what to do, if the library that reads it is absent or fails."""
    kind = path.suffix.lower()[1:]
    try:
        yield
    except DataError:
        raise
    except ImportError:
        raise BeirgridError(f"{path}: to read {kind} files: pip install 'beirgrid[documents]'") from None
    except Exception as error:  # the libraries raise many types on a damaged file
        raise DataError(f"{path} cannot be read as a {kind} file ({type(error).__name__}: {error})") from error


def _excel(path: Path, name: str) -> Iterator[Document]:
    """Yield the rows of an Excel file: each sheet is a table below a row of column names. Empty rows do not count."""
    with _library(path):
        import openpyxl

        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: rows for sheet in book.worksheets if (rows := [*_filled(sheet)])}
        book.close()
    tables = {sheet: rows for sheet, rows in sheets.items() if len(rows) > 1}
    for sheet in sheets.keys() - tables.keys():
        warn(f"{path}, sheet {sheet}: its only row is taken for names of columns")
    for sheet, ((_, names), *rows) in tables.items():
        place = f"{path}, sheet {sheet}"
        lines.check_columns(filter(None, names), place)
        named = [pair for _, cells in rows for pair in zip_longest(names, cells, fillvalue="")]
        if asides := sum(bool(cell.strip() and not name) for name, cell in named):
            warn(f"{place}: {asides} cells in columns without a name are not read")
        table = ((dict(zip(names, cells, strict=False)), f"{place} row {number}") for number, cells in rows)
        yield from _rows(table, f"{name}#{sheet}" if len(tables) > 1 else name)


def _filled(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each row of a sheet that has any."""
    sheet.reset_dimensions()  # a row is as long as its cells, not as the sheet is wide
    for number, row in enumerate(sheet.values, start=1):
        cells = ["" if cell is None else str(cell) for cell in row]
        if any(cell.strip() for cell in cells):
            yield number, cells


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with files.reading(path):
        for batch in pq.ParquetFile(path).iter_batches(1000):
            yield from ((row, f"{path}") for row in batch.to_pylist())


def named_rows(
    rows: Iterable[Row], ids: Sequence[str], texts: Sequence[str], prefix: str
) -> Iterator[tuple[str, str, Row]]:
    """Yield the id and the text of each row, in the first of these columns, with the row.

    A row without an id has the prefix and its number. Raises DataError for a row without a text.
    """
    for number, (row, place) in enumerate(rows, start=1):
        text = next((key for key in texts if row.get(key) is not None), None)
        if text is None:
            raise DataError(f"{place}: no column {', '.join(texts)} (it has {', '.join(map(str, row))})")
        key = next((key for key in ids if row.get(key) not in (None, "")), None)
        identifier = read_id(row, place, key) if key else f"{prefix}{number}"
        yield identifier, read_text(row, text, place), (row, place)


def _rows(rows: Iterable[Row], name: str) -> Iterator[Document]:
    for identifier, text, (row, place) in named_rows(rows, _IDS, _TEXTS, f"{name}#"):
        yield Document(identifier, read_text(row, "title", place), text)


_READERS: dict[str, Callable[[Path], _Text]] = {
    ".md": _markdown,
    ".txt": _plain,
    **dict.fromkeys((".html", ".htm"), _html),
    ".pdf": _pdf,
    **dict.fromkeys((".docx", ".pptx", ".epub"), _office),
}
_TABLES: dict[str, Callable[[Path, str], Iterator[Document]]] = {
    ".xlsx": _excel,
    **dict.fromkeys((".jsonl", ".ndjson"), lambda path, name: _rows(json_lines(path), name)),
    **dict.fromkeys((".csv", ".tsv", ".tab"), lambda path, name: _rows(lines.table(path), name)),
    ".parquet": lambda path, name: _rows(_parquet(path), name),
}
