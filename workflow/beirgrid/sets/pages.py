"""Read web pages and books (EPUB) as text."""

from __future__ import annotations

import codecs
import posixpath
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..core.errors import DataError

# Title and text of a file that is one document, and what is missing of the text. Each may be empty.
Text = tuple[str, str, str]
# A character after the end of a page. A text that does not end with it has an element or a quote that does not close.
_END = "\ue000"
# Elements of a page that do not end a word: 100<b>0</b> is one.
_WITHIN_WORDS = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|del|dfn|em|font|i|ins|kbd|mark|nobr|q|s|samp|small|span|strike|strong|su[bp]"
    "|tt|u|var|wbr"
)
# Encodings as browsers read them: by their extensions.
_EXTENDED = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "big5": "big5hkscs",
    "tis-620": "cp874",
    "iso8859-11": "cp874",
}


def without_nul(text: str, place: str) -> str:
    """Return a text; refuse one with NUL characters, which a file in UTF-16 has where it is read as UTF-8."""
    if "\0" in text:
        raise DataError(f"{place}: NUL characters: is the file in UTF-16? Save it as UTF-8")
    return text


def read_page(content: bytes) -> Text:
    """Return the text of a page, each of its pieces on a line of its own.

    Python's own parser, unlike lxml and html5lib, has no largest depth and no end before the end of the file.
    """
    from bs4 import BeautifulSoup

    # Python's parser before 3.13.6 takes <!--> for the begin of a comment, and --!> for no end of one.
    source = re.sub(r"<!--(?:-?>|.*?--!?>)", "", decode_page(content), flags=re.DOTALL)
    page = BeautifulSoup(source + _END, "html.parser")
    title = " ".join(page.title.get_text().split()) if page.title else ""
    unclosed = [name for name in ("noscript", "template") if len(page(name)) > source.lower().count(f"</{name}")]
    for unseen in [*page("title", limit=1), *page("noscript"), *page("template", shadowrootmode=False)]:
        unseen.extract()
    for picture in page(["img", "area"], alt=True):
        picture.replace_with(f"\n{picture['alt']}\n")
    for frame in page("iframe", srcdoc=True):
        frame.append(read_page(str(frame["srcdoc"]).encode())[1])
    text = _joined(page)
    is_cut = unclosed or not text.endswith(_END)
    pieces = (" ".join(line.split()) for line in text.removesuffix(_END).splitlines())
    flaw = "its text may be cut: an element, a comment or a quote does not close" if is_cut else ""
    return title.removesuffix(_END), "\n".join(filter(None, pieces)), flaw


def _joined(page: Any) -> str:
    """Join the texts of a page: without a break between two of one paragraph, as a word may be partly bold."""
    from bs4.element import CData, NavigableString, RubyParenthesisString, RubyTextString, Tag, TemplateString

    seen = (NavigableString, CData, RubyParenthesisString, RubyTextString, TemplateString)
    texts, last, paragraphs = [], None, {id(page): page}
    for element in page.descendants:
        paragraph = paragraphs[id(element.parent)]
        if type(element) in seen:
            texts.append(element if paragraph is last else f"\n{element}")
            last = paragraph
        elif isinstance(element, Tag) and _WITHIN_WORDS.fullmatch(element.name):
            paragraphs[id(element)] = paragraph
        elif isinstance(element, Tag):
            paragraphs[id(element)], last = element, None
    return "".join(texts)


def decode_page(content: bytes) -> str:
    """Decode a page by its byte order mark or by its declaration, or else as UTF-8."""
    from bs4.dammit import EncodingDetector

    content, encoding = EncodingDetector.strip_byte_order_mark(content)
    declared = EncodingDetector.find_declared_encoding(content, is_html=True) or "utf-8"
    if not encoding:
        declared = "utf-8" if declared.startswith("utf-16") else declared  # in UTF-16, it could not be read
        encoding = _EXTENDED.get(codecs.lookup(declared).name, declared)
    return without_nul(content.decode(encoding), "a page")


def read_book(path: Path) -> Text:
    """Return a book: its metadata, the pages of its spine in order, and other pages, such as a table of contents."""
    from lxml import etree

    texts, unread = [], []
    with zipfile.ZipFile(path) as book:
        container = etree.fromstring(book.read("META-INF/container.xml"))
        main, *others = (rendition.attrib["full-path"] for rendition in container.iter("{*}rootfile"))
        flaw = f"its text may be cut: {others[0]} is not read" if others else ""
        package = etree.fromstring(book.read(main))
        items = {item.get("id"): item for item in package.iter("{*}item")}
        spine = [item.get("idref") for item in package.iter("{*}itemref")]
        pages = [name for name, item in items.items() if "html" in item.get("media-type", "") + item.get("href", "")]
        for name in dict.fromkeys([*spine, *pages]):
            try:
                _, text, flaw_of_page = read_page(_member(book, main, items[name].attrib["href"]))
            except (LookupError, ValueError, RuntimeError, DataError, zipfile.BadZipFile, zlib.error):
                unread.append(name)
                continue
            texts.append(text)
            flaw = flaw or flaw_of_page
    if unread:
        flaw = f"{len(unread)} of its {len(unread) + len(texts)} pages are absent or cannot be read: {unread[0]} first"
    elif not any(texts):
        flaw = "its pages have no text"
    facts = [fact.strip() for element in package.iter("{*}metadata") for fact in element.itertext() if fact.strip()]
    title = next((element.text or "" for element in package.iter("{*}title")), "")
    return title, "\n\n".join(filter(None, ["\n".join(facts), *texts])), flaw


def _member(book: zipfile.ZipFile, main: str, link: str) -> bytes:
    """Read a file of a book by a link of its main file, in which characters may be percent-encoded."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(main), link.partition("#")[0]))
    return book.read(place if place in book.namelist() else unquote(place))
