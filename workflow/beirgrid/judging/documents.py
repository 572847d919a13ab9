"""Read your own documents from text files and tables, as a corpus in BEIR layout."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..collections import ids, lines
from ..collections.collection import Document
from ..collections.sources import json_lines, read_id, read_text
from ..core.errors import BeirgridError, DataError

# Known names of columns and JSON keys. The first one in a row counts.
_IDS, _TEXTS = ("_id", "id", "doc_id", "docid"), ("text", "body", "content", "contents")


def read(folder: Path, chunk: int | None = None) -> Iterator[Document]:
    """Yield the documents of a folder or of one file, in the order of their paths.

    A file's id is its path within the folder, percent-encoded. A row's id is its id column, or the file's id with the
    row's number. A chunk appends its number.

    Args:
        folder: the folder, or a file.
        chunk: most words per document; longer documents are split into chunks of paragraphs up to this number.

    Raises:
        DataError: a file cannot be read, or there are no documents.
        BeirgridError: the library that reads a kind of file is not installed.
    """
    if folder.is_file() and folder.suffix.lower() not in _READERS:
        raise DataError(f"{folder} is no document: files end in {', '.join(_READERS)}")
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if _is_document(path, folder))
    if not files:
        raise DataError(f"{folder} has no documents: files ending in {', '.join(_READERS)}")
    root = folder.parent if folder.is_file() else folder
    for path in files:
        name = quote(os.fsencode(path.relative_to(root)), safe="/")
        for document in _READERS[path.suffix.lower()](path, name):
            ids.check(document.id, str(path))
            yield from _chunks(document, chunk) if chunk else [document]


def unread(folder: Path) -> Counter[str]:
    """Count the files of a folder that ``read`` leaves out because it does not know their kind, by their endings."""
    return Counter(
        path.suffix.lower()
        for path in folder.rglob("*")
        if path.is_file() and not _is_hidden(path, folder) and path.suffix.lower() not in _READERS
    )


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


def _is_document(path: Path, folder: Path) -> bool:
    """Tell whether a path is a visible file of a known kind."""
    return path.suffix.lower() in _READERS and path.is_file() and not _is_hidden(path, folder)


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _chunks(document: Document, most: int) -> Iterator[Document]:
    """Split a document into chunks of whole paragraphs with at most ``most`` words. A longer paragraph is split."""
    paragraphs = [words for text in re.split(r"\n\s*\n", document.text) if (words := text.split())]
    pieces = [words[at : at + most] for words in paragraphs for at in range(0, len(words), most)]
    chunks: list[list[str]] = []
    size = most
    for piece in pieces:
        if size + len(piece) > most:
            chunks.append([])
            size = 0
        chunks[-1].append(" ".join(piece))
        size += len(piece)
    if len(chunks) <= 1:
        yield document
        return
    for number, chunk in enumerate(chunks, start=1):
        yield Document(f"{document.id}#{number}", document.title, "\n\n".join(chunk))


def _text(path: Path) -> str:
    return "\n".join(line for line, _ in lines.read(path, blank=True))


def _stem(path: Path) -> str:
    """Return the name of a file without its ending; its bytes may be no UTF-8."""
    return os.fsencode(path.stem).decode(errors="replace")


def _plain(path: Path, name: str) -> Iterator[Document]:
    yield Document(name, _stem(path), _text(path).strip())


def _markdown(path: Path, name: str) -> Iterator[Document]:
    """Yield a Markdown file without front matter."""
    yield _titled(name, re.sub(r"\A---\n.*?\n---\n", "", _text(path), flags=re.DOTALL), _stem(path))


def _titled(name: str, text: str, otherwise: str) -> Document:
    """Return the document of a text in Markdown. Its title is the first heading, if there is one."""
    heading = re.search(r"^#{1,6}\s+(.+?)\s*#*$", text := text.strip(), re.MULTILINE)
    if heading and heading.start() == 0:
        text = text[heading.end() :].strip()
    return Document(name, heading[1] if heading else otherwise, text)


def _html(path: Path, name: str) -> Iterator[Document]:
    from lxml import etree, html

    try:  # bytes, as lxml takes no text that names its encoding
        page = html.document_fromstring(_text(path).encode(), html.HTMLParser(encoding="utf-8"))
    except etree.ParserError:
        raise DataError(f"{path} is empty") from None
    title = " ".join((page.findtext(".//title") or _stem(path)).split())
    etree.strip_elements(page, "head", "script", "style", "template", "noscript", etree.Comment, with_tail=False)
    lines_of_text = (" ".join(line.split()) for part in page.itertext() for line in part.splitlines())
    yield Document(name, title, "\n".join(filter(None, lines_of_text)))


def _pdf(path: Path, name: str) -> Iterator[Document]:
    with _library(path):
        import pypdf

        reader = pypdf.PdfReader(path)
        text = "\n\n".join(page.extract_text() for page in reader.pages).strip()
        title = reader.metadata.title if reader.metadata else None
    if not text:
        raise DataError(f"{path} has no text: it may be a scan, which needs character recognition first")
    yield Document(name, title or _stem(path), text.encode(errors="replace").decode())


def _office(path: Path, name: str) -> Iterator[Document]:
    """Yield what a Word, PowerPoint or EPUB file says, as Markdown. Of a picture, only its description is kept."""
    with _library(path), path.open("rb") as file:
        from markitdown import StreamInfo, converters

        kind = path.suffix.lower()
        readers = {".docx": converters.DocxConverter, ".pptx": converters.PptxConverter}
        found = readers.get(kind, converters.EpubConverter)().convert(file, StreamInfo(extension=kind))
        text = re.sub(r"<!-- Slide number: \d+ -->\n", "", found.markdown)
        text = re.sub(r"!\[(.*?)\]\(.*?\)", r"\1", text)
        text = re.sub(r"\\([_*])", r"\1", text)  # no marks, but characters of the file
    document = _titled(name, text, _stem(path))
    yield document._replace(title=found.title or document.title)


def _excel(path: Path, name: str) -> Iterator[Document]:
    """Yield the rows of an Excel file: each sheet is a table below a row of column names."""
    with _library(path):
        import openpyxl

        book = openpyxl.load_workbook(path, data_only=True)
        tables = {sheet.title: [*sheet.values] for sheet in book.worksheets if sheet.calculate_dimension() != "A1:A1"}
    for sheet, (names, *rows) in tables.items():
        cells = ([None if cell is None else str(cell) for cell in row] for row in rows)
        table = ((dict(zip(map(str, names), row, strict=True)), f"{path}, sheet {sheet}") for row in cells)
        yield from _rows(table, f"{name}#{sheet}" if len(tables) > 1 else name)


@contextmanager
def _library(path: Path) -> Iterator[None]:
    """Name the file, and what to do, if the library that reads it is absent or fails."""
    kind = path.suffix.lower()[1:]
    try:
        yield
    except ImportError:
        raise BeirgridError(f"{path}: to read {kind} files: pip install 'beirgrid[documents]'") from None
    except Exception as error:  # the libraries raise many types on a damaged file
        raise DataError(f"{path} cannot be read as a {kind} file ({type(error).__name__}: {error})") from error


def _json_lines(path: Path, name: str) -> Iterator[Document]:
    yield from _rows(json_lines(path), name)


def _csv(path: Path, name: str) -> Iterator[Document]:
    yield from _rows(lines.table(path), name)


def _parquet(path: Path, name: str) -> Iterator[Document]:
    import pyarrow.parquet as pq

    from ..core import files

    def rows() -> Iterator[tuple[dict[str, Any], str]]:
        with files.reading(path):
            for batch in pq.ParquetFile(path).iter_batches(1000):
                yield from ((row, f"{path}") for row in batch.to_pylist())

    yield from _rows(rows(), name)


def _rows(rows: Iterable[tuple[dict[str, Any], str]], name: str) -> Iterator[Document]:
    for number, (row, place) in enumerate(rows, start=1):
        text = next((key for key in _TEXTS if row.get(key) is not None), None)
        if text is None:
            raise DataError(f"{place}: no column {', '.join(_TEXTS)} (it has {', '.join(map(str, row))})")
        key = next((key for key in _IDS if row.get(key) not in (None, "")), None)
        identifier = read_id(row, place, key) if key else f"{name}#{number}"
        title = read_text(row, "title", place) if row.get("title") is not None else ""
        yield Document(identifier, title, read_text(row, text, place))


_READERS: dict[str, Callable[[Path, str], Iterator[Document]]] = {
    ".md": _markdown,
    ".txt": _plain,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
    ".docx": _office,
    ".pptx": _office,
    ".epub": _office,
    ".xlsx": _excel,
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}
