"""Read your own documents from text files and tables, as a corpus in BEIR layout."""

from __future__ import annotations

import os
import posixpath
import re
import signal
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
from .pages import Text, read_book, read_page, without_nul

# Known names of columns and JSON keys. The first one in a row counts.
_IDS, _TEXTS = ("_id", "id", "doc_id", "docid"), ("text", "body", "content", "contents")
# Largest file that is one document, unpacked, in bytes; and the longest time to read it, in seconds.
_LARGEST, _LONGEST = 200 * 2**20, 300
# Characters of a PDF that stand for shapes of a font, not for letters. Bullets of Symbol are not among them.
_NO_LETTERS = re.compile("[\0-\x08\x0e-\x1f\ue000-\uefff\uf100-\uf8ff\ufffd]")
# Notes of a PDF without a text of their own: links, windows of other notes, and form fields.
_SILENT_NOTES = ("/Link", "/Popup", "/Widget")
# What markitdown adds to the text of a file: marks of footnotes, addresses of links and pictures, and white space.
_ADDED = re.compile(r"\[\[\d+\]\]\(.*?\)|\]\(.*?\)|\W|_")
# Attributes of Office files with texts: descriptions of pictures, watermarks, choices of form fields.
_DESCRIPTIONS = ("descr", "title", "alt", "string", "listEntry")
# Parts of Word and PowerPoint files whose texts are examples.
_EXAMPLES = re.compile("master|layout|theme|glossary", re.IGNORECASE)
_EMBEDDED = re.compile(r"embeddings/.*(?<!\.xlsx)$", re.IGNORECASE)
# Parts of Excel files beside the cells.
_BESIDE_CELLS = re.compile(r"xl/(comments|threadedComments|drawings/drawing)")
# A row of a table by the names of its columns, with its place.
Row = tuple[dict[str, Any], str]


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
    source = "\n".join(line for line, _ in lines.read(path, raw=True)).replace("\r", "\n")
    return without_nul(source, str(path))


def _markdown(path: Path) -> Text:
    """Return a Markdown file with its front matter, which begins with a key, at the end."""
    source = _source(path)
    front = re.match(r"---\n([\w-]+ *:.*?)\n---\n", source, re.DOTALL)
    title, text = _headed(source[front.end() :] if front else source)
    return title, f"{text}\n\n{front[1]}" if front else text, ""


def _headed(text: str) -> tuple[str, str]:
    """Split a text in Markdown into its title, the heading that it begins with, and the rest."""
    heading = re.match(r"#{1,6}\s+(.+?)(?:\s+#+)?\s*$", text := text.strip(), re.MULTILINE)
    return (heading[1], text[heading.end() :].strip()) if heading else ("", text)


def _pdf(path: Path) -> Text:
    import pypdf

    reader = pypdf.PdfReader(path)
    pages = [page.extract_text().strip() for page in reader.pages]
    notes = [note.get_object() for page in reader.pages for note in page.annotations or ()]
    fields = [field.value for field in (reader.get_fields() or {}).values() if field.field_type in ("/Tx", "/Ch")]
    texts = [str(text) for text in [*pages, *(note.get("/Contents") for note in notes), *fields] if text]
    drawn = [note for note in notes if not note.get("/Contents") and note.get("/Subtype") not in _SILENT_NOTES]
    flaws = {
        f"{pages.count('')} of its {len(pages)} pages have no text: scans need character recognition first": ""
        in pages,
        "pages are absent": reader.root_object["/Pages"].get("/Count", 0) > len(pages),
        "the letters of some characters are not known": any(map(_NO_LETTERS.search, texts)),
        f"{len(drawn)} of its notes are drawings, which are not read": drawn,
        "its form (XFA) is not read": "/XFA" in reader.root_object.get("/AcroForm", ()),
        "its attached files are not read": reader.attachments,
    }
    title = (reader.metadata.title if reader.metadata else None) or ""
    return title, "\n\n".join(texts), "; ".join(flaw for flaw, holds in flaws.items() if holds)


def _office(path: Path) -> Text:
    """Return what a Word or PowerPoint file says, as Markdown. Of a picture, only its description is kept."""
    from markitdown import StreamInfo, converters

    kind = path.suffix.lower()
    reader = converters.DocxConverter if kind == ".docx" else converters.PptxConverter
    with path.open("rb") as file:
        text = reader().convert(file, StreamInfo(extension=kind)).markdown
    others, flaw = _left_out(path, _ADDED.sub("", text))
    text = re.sub(r"<!-- Slide number: \d+ -->\n?", "", text)
    if kind == ".docx":
        text = re.sub(r"(?<=\w)(\*+|~~)(?=\w)", "", text)  # a word that is partly bold or struck out
    text = re.sub(r"!\[(.*?)\]\(.*?\)", r"\1", text)
    title, text = _headed(re.sub(r"\\([_*])", r"\1", text))  # no marks, but characters of the file
    return title, "\n\n".join(filter(None, [text, *others])), flaw


def _left_out(path: Path, letters: str) -> tuple[list[str], str]:
    """Return the paragraphs of an Office file that are not among some letters, and what the file lacks.

    markitdown leaves out headers, footers, comments, diagrams, and elements of a paragraph that it does not know.
    """
    from lxml import etree

    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        parts = {name: etree.fromstring(archive.read(name)) for name in names if name.endswith((".xml", ".rels"))}
    paragraphs: dict[Any, str] = {}
    for part in (part for name, part in parts.items() if not _EXAMPLES.search(name)):
        for run in part.iter("{*}t", "{*}tab", "{*}br", "{*}v", "{*}text"):
            owner = next(run.iterancestors("{*}p", "{*}pt"), run)
            paragraphs[owner] = paragraphs.get(owner, "") + (run.text or " ")
        for element in part.iter("{*}*"):
            for name, value in element.attrib.items():
                if {etree.QName(name).localname, etree.QName(element).localname} & {*_DESCRIPTIONS}:
                    paragraphs[element, name] = value
    others, end = [], 0
    for paragraph in paragraphs.values():
        own = re.sub(r"\W|_", "", paragraph)
        start = letters.find(own, end)  # first where the one before ended: a book has thousands of paragraphs
        if start < 0 and own not in letters:
            letters += f" {own}"
            others.append(" ".join(paragraph.split()))
        end = start + len(own) if start >= 0 else end
    flaws = [f"{name} is not read" for name in names if _EMBEDDED.search(name)]
    known = {name.lower() for name in names}
    for name, part in parts.items():
        folder = posixpath.join("/", name, "../..")
        for link in part.iter("{*}Relationship"):
            target = posixpath.normpath(posixpath.join(folder, link.get("Target", "")))[1:]
            if link.get("Type", "").endswith("/aFChunk"):
                flaws.append(f"{target} is not read")
            is_part = target.endswith(".xml") and link.get("TargetMode") != "External"
            if is_part and target.lower() not in known and not _EXAMPLES.search(target):
                flaws.append(f"{target} is absent")
    return others, f"its text may be cut: {flaws[0]}" if flaws else ""


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

        # The second one has formulas in the place of their values.
        books = [openpyxl.load_workbook(path, read_only=True, data_only=is_value) for is_value in (True, False)]
        sheets = {sheet.title: rows for sheet in books[0].worksheets if (rows := [*_filled(sheet)])}
        if empty := sum(map(_without_values, *(book.worksheets for book in books))):
            warn(f"{path}: {empty} formulas have no values, so they are not read: save it in a spreadsheet program")
        with zipfile.ZipFile(path) as archive:
            parts = archive.namelist()
            links = b"".join(archive.read(part) for part in parts if part.endswith("workbook.xml.rels"))
        if (number := len(re.findall(rb'/worksheet"', links))) != len(books[0].worksheets):
            raise DataError(f"{path}: only {len(books[0].worksheets)} of its {number} sheets can be read")
        if beside := [part for part in parts if _BESIDE_CELLS.match(part)]:
            warn(f"{path}: comments, text boxes, charts and pictures beside the cells are not read ({beside[0]}, say)")
        for book in books:
            book.close()
    tables = {sheet: rows for sheet, rows in sheets.items() if len(rows) > 1}
    for sheet in sheets.keys() - tables.keys():
        warn(f"{path}, sheet {sheet}: its only row is taken for names of columns")
    for sheet, ((_, names), *rows) in tables.items():
        place = f"{path}, sheet {sheet}"
        lines.check_columns(filter(None, names), place)
        widest = max(len(cells) for _, cells in rows)
        names = [name or f"column {number}" for name, number in zip_longest(names, range(1, widest + 1), fillvalue="")]
        table = ((dict(zip(names, cells, strict=False)), f"{place} row {number}") for number, cells in rows)
        yield from _rows(table, f"{name}#{sheet}" if len(tables) > 1 else name)


def _filled(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each row of a sheet that has any."""
    sheet.reset_dimensions()  # a row is as long as its cells, not as the sheet is wide
    for number, row in enumerate(sheet.values, start=1):
        cells = ["" if cell is None else str(cell) for cell in row]
        if any(cell.strip() for cell in cells):
            yield number, cells


def _without_values(values: Any, formulas: Any) -> int:
    """Count the formulas of a sheet whose values were never stored."""
    formulas.reset_dimensions()
    cells = (pair for rows in zip(values.rows, formulas.rows, strict=True) for pair in zip(*rows, strict=True))
    return sum(formula.data_type == "f" and value.value is None and value.data_type == "n" for value, formula in cells)


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with files.reading(path):
        table = pq.ParquetFile(path)
        lines.check_columns(table.schema_arrow.names, str(path))
        for batch in table.iter_batches(1000):
            yield from ((row, f"{path}") for row in batch.to_pylist())


def named_rows(
    rows: Iterable[Row], ids: Sequence[str], texts: Sequence[str], others: Collection[str], prefix: str
) -> Iterator[tuple[str, str, Row]]:
    """Yield the id and the text of each row, in the first of these columns, with the row.

    A row without an id has the prefix and its number. Warns of columns with values that are neither these nor
    ``others``. Raises DataError for a row without a text.
    """
    unread: Counter[str] = Counter()
    place = ""
    for number, (row, place) in enumerate(rows, start=1):
        text = next((key for key in texts if row.get(key) is not None), None)
        if text is None:
            raise DataError(f"{place}: no column {', '.join(texts)} (it has {', '.join(map(str, row))})")
        key = next((key for key in ids if row.get(key) not in (None, "")), None)
        unread.update(name for name, value in row.items() if value and name not in (key, text, *others))
        identifier = read_id(row, place, key) if key else f"{prefix}{number}"
        yield identifier, without_nul(read_text(row, text, place), place), (row, place)
    if unread:
        counts = ", ".join(f"{name or 'without a name'} ({number:,} values)" for name, number in unread.items())
        warn(f"columns up to {place} that are not read: {counts}")


def _rows(rows: Iterable[Row], name: str) -> Iterator[Document]:
    for identifier, text, (row, place) in named_rows(rows, _IDS, _TEXTS, ("title",), f"{name}#"):
        yield Document(identifier, read_text(row, "title", place), text)


_READERS: dict[str, Callable[[Path], Text]] = {
    ".md": _markdown,
    ".txt": lambda path: ("", _source(path).strip(), ""),
    **dict.fromkeys((".html", ".htm"), lambda path: read_page(path.read_bytes())),
    ".pdf": _pdf,
    ".epub": read_book,
    **dict.fromkeys((".docx", ".pptx"), _office),
}
_TABLES: dict[str, Callable[[Path, str], Iterator[Document]]] = {
    ".xlsx": _excel,
    **dict.fromkeys((".jsonl", ".ndjson"), lambda path, name: _rows(json_lines(path), name)),
    **dict.fromkeys((".csv", ".tsv", ".tab"), lambda path, name: _rows(lines.table(path), name)),
    ".parquet": lambda path, name: _rows(_parquet(path), name),
}
