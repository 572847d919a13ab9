"""Read your own documents from text files and tables, as a corpus in BEIR layout."""

from __future__ import annotations

import codecs
import io
import os
import re
import signal
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ..collections import lines
from ..collections.collection import Document
from ..collections.sources import json_lines, read_id, read_text
from ..core import files
from ..core.errors import BeirgridError, DataError, say, warn

# Known names of columns and JSON keys. The first one in a row counts.
_IDS = ("_id", "id", "doc_id", "docid")
_TEXTS = ("text", "body", "content", "contents")
# Largest file that is one document, unpacked, in bytes.
_LARGEST = 200 * 2**20
# Longest time to read it, in seconds.
_LONGEST = 300
# Characters of a PDF that stand for shapes of a font, not for letters. Bullets of Symbol are not among them.
_NO_LETTERS = re.compile("[\0-\x08\x0e-\x1f\ue000-\uefff\uf100-\uf8ff\ufffd]")
# Elements of a page whose marks in Markdown would come between letters: 100<b>0</b> is one word.
_WITHIN_WORDS = ["a", "b", "code", "del", "em", "i", "kbd", "s", "samp", "strike", "strong", "sub", "sup", "u"]
# A character after the end of a page. A text without it has an element or a quote that does not close.
_END = "\U0010fffd"
# Encodings as browsers read them: by their extensions.
_EXTENDED = {"utf-16": "utf-8", "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874"}
_EXTENDED |= {"shift_jis": "cp932", "euc_kr": "cp949", "gb2312": "gb18030", "big5": "big5hkscs"}
# Parts of Word and PowerPoint files whose texts are examples.
_EXAMPLES = re.compile("master|layout|theme|glossary", re.IGNORECASE)
# Elements around the content of a page (HTML's landmarks). An article's own header and footer are content.
_AROUND = "nav, :is(header, footer):not(:is(article, main, section) *)"
# A row of a table by the names of its columns, with its place.
Row = tuple[dict[str, Any], str]


class Text(NamedTuple):
    """A file that is one document: title, text, what is missing of it, and what was left out of it on purpose."""

    title: str
    text: str
    flaw: str = ""
    left_out: tuple[str, ...] = ()


def read(folder: Path, chunk: int | None = None) -> tuple[list[Document], dict[str, str]]:
    """Read the documents of a folder or of one file, in the order of their paths.

    A file's id is its path within the folder, percent-encoded. A row's id is its id column, or the file's id with the
    row's number. A chunk appends its number. A file that is one document is left out if it cannot be read.

    Args:
        chunk: most words per document; longer documents are split between paragraphs, and within a longer paragraph.

    Returns:
        The documents, and the flaws by id or path: why a file is left out, why a text is empty or cut, or which
        document has the same words.

    Raises:
        DataError: a table cannot be read, or no document has a text.
        BeirgridError: the library that reads a kind of file is not installed.
    """
    documents: list[Document] = []
    flaws: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for path, name in _files(folder):
        if danger := _danger(path, folder):
            flaws[name] = f"left out: {danger}"
            continue
        for document in _documents(path, name, flaws, left_out):
            lines.check_id(document.id, str(path))
            if not document.text.strip():
                flaws.setdefault(document.id, "it has no text")
            documents += _chunks(document, chunk) if chunk else [document]
    if not any(document.text.strip() for document in documents):
        reasons = "; ".join(f"{name}: {flaw}" for name, flaw in [*flaws.items()][:3]) or "it has neither files nor rows"
        raise DataError(f"{folder} has no document with text ({reasons})")
    if left_out:
        say(f"left out of the texts: {', '.join(f'{number:,} {what}' for what, number in left_out.most_common())}")
    for name, repetition in _repetitions(documents).items():
        flaws.setdefault(name, repetition)
    return documents, flaws


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder that are not hidden, or the one file, each with its id."""
    root = folder.parent if folder.is_file() else folder
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not is_hidden and (path.is_symlink() or not path.is_dir()):
            yield path, quote(os.fsencode(path.relative_to(root)), safe="/")


def _danger(path: Path, folder: Path) -> str:
    """Return why a file is not opened, or an empty string."""
    if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(folder.resolve())):
        return "a link out of the folder"
    return "" if path.is_file() else "a pipe, a socket or a device"


def _repetitions(documents: Iterable[Document]) -> dict[str, str]:
    """Return the flaws of documents that have the words of an earlier one."""
    flaws: dict[str, str] = {}
    originals: dict[str, str] = {}
    for document in documents:
        words = " ".join(f"{document.title} {document.text}".casefold().split())
        if (original := originals.setdefault(words, document.id)) != document.id:
            flaws[document.id] = f"it has the same words as {original}"
    return flaws


def _documents(path: Path, name: str, flaws: dict[str, str], left_out: Counter[str]) -> Iterable[Document]:
    """Yield the documents of a file. Adds to the flaws if it is left out or cut, and counts parts that are left out."""
    kind = path.suffix.lower()
    if kind == ".xlsx":
        return _excel(path, name)
    if kind in ROWS:
        return _rows(ROWS[kind](path), name)
    if kind not in _READERS:
        flaws[name] = f"left out: files {f'ending in {kind}' if kind else 'without an ending'} are not read"
        return []
    try:
        with _guarded(path):
            title, text, flaw, parts = _READERS[kind](path)
    except DataError as error:
        flaws[name] = f"left out: {error}"
        return []
    if flaw:
        flaws[name] = flaw
    rest = _without_title(title, text)
    left_out.update([*parts, "repeated titles"] if rest != text else parts)
    # Bytes of a name or of a PDF may be no UTF-8.
    title, text = (part.encode(errors="replace").decode() for part in (title, rest))
    return [Document(name, title or os.fsencode(path.stem).decode(errors="replace"), text)]


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Name the file if it is too large, takes too long, or is damaged, and what to do if no library reads it."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes longer than {_LONGEST} seconds")

    kind = path.suffix.lower()[1:]
    size = path.stat().st_size
    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, _LONGEST, 1)  # again each second, as libraries catch exceptions
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(part.file_size for part in archive.infolist())
        if size > _LARGEST:
            raise ValueError(f"it has {size:,} bytes, more than {_LARGEST:,}")
        with warnings.catch_warnings(action="ignore"):
            yield
    except DataError:
        raise
    except ImportError:
        raise BeirgridError(f"{path}: to read {kind} files: pip install 'beirgrid[documents]'") from None
    except Exception as error:  # the libraries raise many types on a damaged file
        raise DataError(f"{path} cannot be read as a {kind} file ({type(error).__name__}: {error})") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _chunks(document: Document, most: int) -> list[Document]:
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
        return [document]
    numbered = enumerate(map("\n\n".join, chunks), start=1)
    return [Document(f"{document.id}#{number}", document.title, text) for number, text in numbered]


def _source(path: Path) -> str:
    source = "\n".join(line for line, _ in lines.read(path, raw=True)).replace("\r", "\n")
    return _without_nul(source, str(path))


def _without_nul(text: str, place: str) -> str:
    """Return a text; refuse one with NUL characters, which a file in UTF-16 has where it is read as UTF-8."""
    if "\0" in text:
        raise DataError(f"{place}: NUL characters: is the file in UTF-16? Save it as UTF-8")
    return text


def _markdown(path: Path) -> Text:
    """Return a Markdown file with its front matter, which begins with a key, at the end."""
    source = _source(path)
    front = re.match(r"---\n([\w-]+ *:.*?)\n---\n", source, re.DOTALL)
    title, text = _headed(source[front.end() :] if front else source)
    return Text(title, f"{text}\n\n{front[1]}" if front else text)


def _headed(text: str) -> tuple[str, str]:
    """Split a text in Markdown into its title, the heading that it begins with, and the rest."""
    heading = re.match(r"#{1,6}\s+(.+?)(?:\s+#+)?\s*$", text := text.strip(), re.MULTILINE)
    return (heading[1], text[heading.end() :].strip()) if heading else ("", text)


def _without_title(title: str, text: str) -> str:
    """Leave out the line of a text that repeats its title: the first one, a heading, or markitdown's for a book."""
    words = r"\s+".join(map(re.escape, title.split()))
    repeated = rf"(?:\A|^# |^\*\*Title:\*\* ){words}\s*$"
    return re.sub(repeated, "", text, count=1, flags=re.MULTILINE).strip() or text if words else text


def _pdf(path: Path) -> Text:
    """Return a PDF. Unlike markitdown, pypdf tells which pages have no text, and reads notes and fields."""
    import pypdf

    reader = pypdf.PdfReader(path)
    pages = [page.extract_text().strip() for page in reader.pages]
    notes = [note.get_object().get("/Contents") for page in reader.pages for note in page.annotations or ()]
    fields = [field.value for field in (reader.get_fields() or {}).values() if field.field_type in ("/Tx", "/Ch")]
    texts = [str(text) for text in [*pages, *notes, *fields] if text]
    scans = f"{pages.count('')} of its {len(pages)} pages have no text: scans need character recognition first"
    flaws = [scans] if "" in pages else []
    if any(map(_NO_LETTERS.search, texts)):
        flaws.append("the letters of some characters are not known")
    text = "\n\n".join(texts)
    title = (reader.metadata and reader.metadata.title) or "".join(pages[:1]).partition("\n")[0]
    return Text("" if title == text else title, text, "; ".join(flaws))


def _page(path: Path) -> Text:
    """Return a page. markitdown would leave out what is outside of its body, and what an open element swallows."""
    from bs4 import BeautifulSoup

    # Python's parser before 3.13.6 takes <!--> for the begin of a comment, and --!> for no end of one.
    unseen = r"<!--(?:-?>|.*?--!?>)|<\?xml.*?>|</?(?:html|head|body)\b[^>]*>"
    source = re.sub(unseen, "", _decoded(path.read_bytes()), flags=re.DOTALL | re.IGNORECASE)
    page = BeautifulSoup(source + _END, "html.parser")
    heading = page.title.extract() if page.title else page.h1
    title = heading.get_text() if heading else ""
    around = tuple(element.extract().name for element in page.select(_AROUND))
    for picture in page("img"):
        picture.replace_with(f" {picture.get('alt', '')} ")
    _, text = _converted(str(page).encode(), ".html")
    flaw = "" if _END in text else "its text may be cut: an element, a comment or a quote does not close"
    return Text(" ".join(title.replace(_END, "").split()), text.replace(_END, "").strip(), flaw, around)


def _decoded(content: bytes) -> str:
    """Decode a page by its byte order mark or by its declaration, or else as UTF-8."""
    from bs4.dammit import EncodingDetector

    content, encoding = EncodingDetector.strip_byte_order_mark(content)
    declared = EncodingDetector.find_declared_encoding(content, is_html=True) or "utf-8"
    name = codecs.lookup(encoding or declared).name
    return _without_nul(content.decode(_EXTENDED.get(name, name)), "a page")


def _converted(content: bytes, kind: str) -> tuple[str, str]:
    """Return the title and the text that markitdown reads of a file, without marks of Markdown within a line."""
    from markitdown import StreamInfo, converters

    kinds = {".epub": converters.EpubConverter, ".docx": converters.DocxConverter, ".pptx": converters.PptxConverter}
    reader = kinds.get(kind, converters.HtmlConverter)()
    marks = {"strip": _WITHIN_WORDS, "escape_asterisks": False, "escape_underscores": False}
    result = reader.convert(io.BytesIO(content), StreamInfo(extension=kind), **marks)
    return result.title or "", result.markdown


def _archive(path: Path) -> Text:
    """Return a book, a Word or a PowerPoint file: what markitdown reads, then the paragraphs that it leaves out."""
    title, text = _converted(path.read_bytes(), path.suffix.lower())
    text = re.sub(r"<!-- Slide number: \d+ -->\n?", "", _without_nul(text, str(path)))
    text = re.sub(r"!\[(.*?)\]\(.*?\)", r"\1", text)  # of a picture, only its description
    letters = _letters(text)
    known = set(map(_letters, text.splitlines()))
    others = []
    for paragraph in _paragraphs(path):
        own = _letters(paragraph)
        if own not in known and own not in letters:
            known.add(own)
            others.append(" ".join(paragraph.split()))
    heading, text = ("", text) if title else _headed(text)
    return Text(title or heading, "\n\n".join(filter(None, [text, *others])))


def _letters(text: str) -> str:
    """Return a text without white space, punctuation and marks of footnotes, to compare it."""
    return re.sub(r"\[\d+\]|\W|_", "", text)


def _paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of all parts of a book, a Word or a PowerPoint file, but those of examples.

    markitdown leaves out headers, footers, comments, text boxes, diagrams, pages outside of a book's order of reading,
    and elements of a paragraph that it does not know.
    """
    from bs4 import BeautifulSoup
    from lxml import etree

    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith((".htm", "html")):
                yield from BeautifulSoup(archive.read(name), "html.parser").get_text("\n").splitlines()
            if not name.endswith(".xml") or _EXAMPLES.search(name):
                continue
            texts: dict[Any, str] = {}
            for run in etree.fromstring(archive.read(name)).iter("{*}t", "{*}tab", "{*}br", "{*}v", "{*}text"):
                owner = next(run.iterancestors("{*}p", "{*}pt"), run)
                texts[owner] = texts.get(owner, "") + (run.text or " ")
            yield from texts.values()


def _excel(path: Path, name: str) -> Iterator[Document]:
    """Yield the rows of an Excel file: each sheet is a table below a row of column names. Empty rows do not count."""
    with _guarded(path):
        import openpyxl

        # The second one has formulas in the place of their values.
        books = [openpyxl.load_workbook(path, read_only=True, data_only=is_value) for is_value in (True, False)]
        pairs = zip(*(book.worksheets for book in books), strict=True)
        sheets = {values.title: rows for values, formulas in pairs if (rows := [*_filled(path, values, formulas)])}
    for sheet, ((_, names), *rows) in sheets.items():
        place = f"{path}, sheet {sheet}"
        if not rows:
            warn(f"{place}: its only row is taken for names of columns")
        lines.check_columns(filter(None, names), place)
        names += [""] * (max((len(cells) for _, cells in rows), default=0) - len(names))
        columns = [name or f"column {number}" for number, name in enumerate(names, start=1)]
        table = ((dict(zip_longest(columns, cells, fillvalue="")), f"{place} row {number}") for number, cells in rows)
        yield from _rows(table, f"{name}#{sheet}" if len(sheets) > 1 else name)


def _filled(path: Path, values: Any, formulas: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each row of a sheet that has any; refuse a formula without a value."""
    for sheet in (values, formulas):
        sheet.reset_dimensions()  # a row is as long as its cells, not as the sheet is wide
    for number, (row, of_formulas) in enumerate(zip(values.rows, formulas.rows, strict=True), start=1):
        pairs = zip(row, of_formulas, strict=True)
        if any(cell.data_type == "n" and cell.value is None and other.data_type == "f" for cell, other in pairs):
            place = f"{path}, sheet {values.title} row {number}"
            raise DataError(f"{place}: a formula without a value: save the file in a spreadsheet program")
        cells = ["" if cell.value is None else str(cell.value) for cell in row]
        if any(cell.strip() for cell in cells):
            yield number, cells


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
        yield identifier, _without_nul(read_text(row, text, place), place), (row, place)
    if unread:
        counts = ", ".join(f"{name or 'without a name'} ({number:,} values)" for name, number in unread.items())
        warn(f"columns up to {place} that are not read: {counts}")


def _rows(rows: Iterable[Row], name: str) -> Iterator[Document]:
    for identifier, text, (row, place) in named_rows(rows, _IDS, _TEXTS, ("title",), f"{name}#"):
        yield Document(identifier, read_text(row, "title", place), text)


_READERS: dict[str, Callable[[Path], Text]] = {
    ".md": _markdown,
    ".txt": lambda path: Text("", _source(path).strip()),
    ".pdf": _pdf,
    **dict.fromkeys((".html", ".htm"), _page),
    **dict.fromkeys((".epub", ".docx", ".pptx"), _archive),
}
# Readers of tables by their endings.
ROWS: dict[str, Callable[[Path], Iterable[Row]]] = {
    ".parquet": _parquet,
    **dict.fromkeys((".jsonl", ".ndjson"), json_lines),
    **dict.fromkeys((".csv", ".tsv", ".tab"), lines.table),
}
