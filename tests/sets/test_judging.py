"""Make an evaluation set: documents, queries, the store of judgements, and the judging server."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beirgrid.core.errors import BeirgridError, DataError
from beirgrid.sets import documents, queries, server
from beirgrid.sets.evaluation_set import EvaluationSet
from beirgrid.sets.store import STALE, Grading, JudgementStore

HOSTILE = "<script>document.title = 'hacked'</script> & </textarea>"


@pytest.fixture
def folder(tmp_path):
    """A folder with one document of each kind."""
    place = tmp_path / "docs"
    (place / "sub folder").mkdir(parents=True)
    (place / "a.md").write_text("---\ndate: 2020\n---\n# Rye bread\n\nBake it *slowly*.\n")
    (place / "sub folder/b.txt").write_text("\ufeffPlain text.\r\nSecond line.\r\n", encoding="utf-8")
    (place / "c.html").write_text(
        "<html><head><title>A  page</title><style>p{}</style></head><body><p>One</p><script>x</script><p>Two</p></body>"
    )
    (place / "d.jsonl").write_text('{"_id": "j1", "title": "T", "text": "JSON"}\n{"text": "no id"}\n')
    (place / "e.csv").write_text('id,title,body\n7,Row,"a, b"\n')
    pq.write_table(pa.table({"docid": ["p1"], "contents": ["parquet text"]}), place / "f.parquet")
    return place


def test_documents_of_every_kind_are_read(folder):
    found = {document.id: (document.title, document.text) for document in documents.read(folder)[0]}
    assert found == {
        "a.md": ("Rye bread", "Bake it *slowly*.\n\ndate: 2020"),
        "c.html": ("A page", "One\n\nTwo"),
        "j1": ("T", "JSON"),
        "d.jsonl#2": ("", "no id"),
        "7": ("Row", "a, b"),
        "p1": ("", "parquet text"),
        "sub%20folder/b.txt": ("b", "Plain text.\nSecond line."),
    }


def test_a_pdf_is_read_and_a_scan_is_refused(tmp_path):
    backend = pytest.importorskip("matplotlib.backends.backend_pdf")
    figure = pytest.importorskip("matplotlib.pyplot").figure()
    figure.text(0.1, 0.5, "Rye bread keeps for days")
    figure.savefig(tmp_path / "a.pdf", metadata={"Title": "Bread"})
    (found,), _ = documents.read(tmp_path)
    assert (found.id, found.title) == ("a.pdf", "Bread")
    assert "Rye bread keeps" in found.text
    with backend.PdfPages(tmp_path / "a.pdf") as pages:
        figure.savefig(pages, format="pdf")
        figure.clear()
        figure.savefig(pages, format="pdf")
    (found,), flaws = documents.read(tmp_path)
    assert "Rye bread keeps" in found.text
    assert flaws == {"a.pdf": "1 of its 2 pages have no text: scans need character recognition first"}
    figure.savefig(tmp_path / "a.pdf")
    with pytest.raises(DataError, match="1 of its 1 pages have no text: scans need"):
        documents.read(tmp_path)


def test_the_first_line_of_a_pdf_is_its_title_if_it_states_none(tmp_path, capsys):
    figure = pytest.importorskip("matplotlib.pyplot").figure()
    figure.text(0.1, 0.9, "App pairing")
    figure.savefig(tmp_path / "one.pdf")
    figure.text(0.1, 0.5, "Hold the button.")
    figure.savefig(tmp_path / "two.pdf")
    figure.savefig(tmp_path / "stated.pdf", metadata={"Title": "Pairing"})
    figure.savefig(tmp_path / "same.pdf", metadata={"Title": "App  pairing"})
    found = {document.id: (document.title, document.text.split("\n")) for document in documents.read(tmp_path)[0]}
    assert found == {
        "one.pdf": ("one", ["App pairing"]),
        "two.pdf": ("App pairing", ["Hold the button."]),
        "stated.pdf": ("Pairing", ["App pairing", "Hold the button."]),
        "same.pdf": ("App  pairing", ["Hold the button."]),
    }
    assert "left out of the texts: 2 repeated titles\n" in capsys.readouterr().err


CLAIM = "<h1>Making a <b>claim</b></h1><p>Bake.</p>"


@pytest.mark.parametrize(
    ("page", "title", "text", "said"),
    [
        (f"<title>Making a\nclaim</title>{CLAIM}", "Making a claim", "Bake.", "1 repeated titles"),
        (f"<p>Home ></p>{CLAIM}", "Making a claim", "Home >\n\n\n\nBake.", "1 repeated titles"),
        (f"<title>Claims</title>{CLAIM}", "Claims", "# Making a claim\n\nBake.", ""),
        (
            f"<nav>Home</nav><header>Shop {CLAIM}</header>Oats<footer>(c)</footer>",
            "Making a claim",
            "Oats",
            "1 nav, 1 header, 1 footer",
        ),
        ("<nav><nav>a</nav></nav>Oats<header><nav>b</nav></header>", "a", "Oats", "3 nav, 1 header"),
        ("<main><header>By Ann</header><p>Oats</p><footer>Note</footer></main>", "a", "By Ann\nOats\nNote", ""),
        ("<article><section><header>By Ann</header><p>Oats", "a", "By Ann\nOats", ""),
    ],
)
def test_a_page_has_its_title_once_and_nothing_around_its_content(tmp_path, capsys, page, title, text, said):
    (tmp_path / "a.html").write_text(page)
    (found,), _ = documents.read(tmp_path)
    assert (found.title, re.sub(r"\n+", "\n", found.text)) == (title, re.sub(r"\n+", "\n", text))
    told = capsys.readouterr().err
    assert f"left out of the texts: {said}" in told if said else not told


def test_office_files_are_read(tmp_path):
    """The files are what the libraries write, or what their formats require at least."""
    pptx, openpyxl = pytest.importorskip("pptx"), pytest.importorskip("openpyxl")
    talk = pptx.Presentation()
    slide = talk.slides.add_slide(talk.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Rye bread", f"It keeps for days\n{HOSTILE}"
    slide.notes_slide.notes_text_frame.text = "Show a loaf"
    talk.save(tmp_path / "talk.pptx")
    table = openpyxl.Workbook()
    for row in (["id", "title", "text"], [7, None, "a row"], ["b", "B", 12.5]):
        table.active.append(row)
    table.create_sheet("empty")
    table.save(tmp_path / "table.xlsx")
    two = openpyxl.Workbook()
    for sheet in (two.active, two.create_sheet("more")):
        for row in (["text"], [f"of {sheet.title}"]):
            sheet.append(row)
    two.save(tmp_path / "two.xlsx")
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Flour_types</w:t></w:r></w:p>'
    _zip(tmp_path / "flour.docx", _word(f"{heading}{_paragraph('Rye &lt;b&gt; 3*4')}{WRAPPED}"))
    _zip(tmp_path / "book.epub", _book({"a.xhtml": "<html><body><h1>Flour</h1><p>One chapter</p></body></html>"}))
    found = {document.id: (document.title, document.text) for document in documents.read(tmp_path)[0]}
    assert found["talk.pptx"] == ("Rye bread", f"It keeps for days\n{HOSTILE}\n\n### Notes:\nShow a loaf")
    assert found["7"] == ("", "a row")
    assert found["b"] == ("B", "12.5")
    assert found["two.xlsx#Sheet#1"] == ("", "of Sheet")
    assert found["two.xlsx#more#1"] == ("", "of more")
    assert found["flour.docx"] == ("Flour_types", "Rye <b> 3*4\n\nmoved here, a field of letters, right to left, kanji")
    assert found["book.epub"] == ("Baking", "# Flour\n\nOne chapter")


WORD = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def _related(**targets: str) -> str:
    """The relationships of a part of an Office file: the XML files of other parts by their kinds."""
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    each = (f'<Relationship Id="{of}" Type="{OFFICE}/{of}" Target="{name}.xml"/>' for of, name in targets.items())
    return f'<Relationships xmlns="{space}">{"".join(each)}</Relationships>'


def _word(body: str, **parts: str) -> dict[str, str]:
    """The parts of a Word file by their kinds."""
    return {
        "_rels/.rels": _related(officeDocument="word/document"),
        "word/_rels/document.xml.rels": _related(**{kind: kind for kind in parts}),
        "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
        **{f"word/{kind}.xml": f"<w:hdr {WORD}>{text}</w:hdr>" for kind, text in parts.items()},
    }


def _book(pages: dict[str, str | bytes], spine: str | None = None) -> dict[str, str | bytes]:
    """The files of an EPUB; ``spine`` has the names in the order of reading."""
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in pages)
    order = "".join(f'<itemref idref="{name}"/>' for name in (spine.split() if spine else pages))
    metadata = '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Baking</dc:title></metadata>'
    package = f"<manifest>{items}</manifest><spine>{order}</spine>"
    return {
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>',
        "a.opf": f'<package xmlns="http://www.idpf.org/2007/opf">{metadata}{package}</package>',
        **pages,
    }


BOX = f"<w:txbxContent>{_paragraph('in a box')}</w:txbxContent>"
BOXES = (f"<w:p><w:r><m:AlternateContent><m:Choice>{BOX}</m:Choice>", "</m:AlternateContent></w:r></w:p>")
NOTE = '<w:p><w:r><w:t>Rye</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
FOOTNOTE = '<w:footnote w:id="2"><w:p/></w:footnote>'
LATIN = '<?xml version="1.0" encoding="latin1"?><body>Rogg\xe9n</body>'
UNCLOSED = "its text may be cut: an element, a comment or a quote does not close"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (_word(_paragraph("Rye") + "".join(BOXES)), "Rye\n\nin a box"),
        (_word(_paragraph("Rye") + f"<m:Fallback>{BOX}</m:Fallback>".join(BOXES)), "Rye\n\nin a box"),
        (_word(_paragraph("Rye"), header=_paragraph("on top"), other=_paragraph("below")), "Rye\n\non top\n\nbelow"),
        (_word(_paragraph("see ![a](b) [c](d)")), "see a [c](d)\n\nsee ![a](b) [c](d)"),
        (_word("<w:p><w:r><w:t>R</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>ye</w:t></w:r></w:p>"), "Rye"),
        (_word("<w:p><w:r><w:t>R</w:t></w:r><w:r><w:rPr><w:strike/></w:rPr><w:t>ye</w:t></w:r></w:p>"), "Rye"),
        (_word(NOTE, footnotes=FOOTNOTE), "Rye[1]\n\n1. ↑"),
        (_book({"b.html": "<p>Rye", "a": "<p>Oats"}), "Rye\n\nOats"),
        (_book({"b.html": "<p>Rye", "a": "<p>Oats"}, spine="a"), "Oats\n\nRye"),
        (_book({"a": f"{'<div>' * 3000}Rye", "x y": "Oats"}), "Rye\n\nOats"),
        (_book({"a": LATIN.encode("latin1")}), "Roggén"),
    ],
)
def test_no_text_of_an_office_file_or_a_book_is_lost(tmp_path, parts, text):
    """markitdown leaves out headers, footers and text boxes, and pages outside of a book's order of reading."""
    _zip(tmp_path / ("a.docx" if "word/document.xml" in parts else "a.epub"), parts)
    (found,), flaws = documents.read(tmp_path)
    assert (found.text, flaws) == (text, {})


def test_diagrams_of_slides_and_notes_of_pages_are_read(tmp_path):
    pptx, pypdf = pytest.importorskip("pptx"), pytest.importorskip("pypdf")
    annotations = pytest.importorskip("pypdf.annotations")
    talk = pptx.Presentation()
    talk.slides.add_slide(talk.slide_layouts[5]).shapes.title.text = "Rye"
    talk.save(tmp_path / "a.pptx")
    with zipfile.ZipFile(tmp_path / "a.pptx", "a") as parts:
        parts.writestr("ppt/diagrams/data1.xml", "<d><p><t>in a </t><t>diagram</t></p></d>")
        parts.writestr("ppt/comments/comment1.xml", "<c><text>in a comment</text></c>")
    talk.slides[0].shapes.title.text = ""
    talk.save(tmp_path / "blank.pptx")
    page = pypdf.PdfWriter()
    page.add_blank_page(200, 200)
    page.add_annotation(0, annotations.FreeText(text="in a note", rect=(0, 0, 9, 9)))
    page.add_annotation(0, annotations.FreeText(text="\ufffd", rect=(0, 0, 9, 9)))
    page.add_annotation(0, annotations.Rectangle(rect=(0, 0, 9, 9)))
    page.add_blank_page(200, 200)
    name, text = pypdf.generic.NameObject, pypdf.generic.TextStringObject
    choice = {name("/FT"): name("/Ch"), name("/T"): text("flour"), name("/V"): text("of a list")}
    fields = pypdf.generic.ArrayObject([page._add_object(pypdf.generic.DictionaryObject(choice))])
    page._root_object[name("/AcroForm")] = pypdf.generic.DictionaryObject({name("/Fields"): fields})
    page.write(tmp_path / "b.pdf")
    found, flaws = documents.read(tmp_path)
    diagram, note = "in a diagram\n\nin a comment", "in a note\n\n\ufffd\n\nof a list"
    assert [document.text for document in found] == [diagram, note, ""]
    assert flaws["b.pdf"].split("; ") == [
        "2 of its 2 pages have no text: scans need character recognition first",
        "the letters of some characters are not known",
    ]
    assert flaws["blank.pptx"] == "it has no text"


def _zip(path: Path, files: dict[str, str | bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


@pytest.mark.parametrize(("kind", "library"), [("pdf", "pypdf"), ("docx", "markitdown"), ("xlsx", "openpyxl")])
def test_a_file_without_the_extra_names_the_command_that_installs_it(tmp_path, monkeypatch, kind, library):
    (tmp_path / f"a.{kind}").write_bytes(b"%PDF-1.7")
    monkeypatch.setitem(sys.modules, library, None)
    expected = rf"a\.{kind}: to read {kind} files: pip install 'beirgrid\[documents\]'"
    with pytest.raises(BeirgridError, match=expected):
        documents.read(tmp_path)


def test_ids_stay_the_same_when_other_documents_come(folder):
    before = {document.id: document.text for document in documents.read(folder, chunk=20)[0]}
    (folder / "0-first.md").write_text("# New\n\nA document that comes first.")
    (folder / "sub folder/aa.txt").write_text("Another one, before b.")
    after = {document.id: document.text for document in documents.read(folder, chunk=20)[0]}
    assert len(after) == len(before) + 2
    assert {name: after[name] for name in before} == before


def test_long_documents_are_cut_at_paragraphs(tmp_path):
    paragraphs = [" ".join(f"{name}{i}" for i in range(30)) for name in "abc"]
    (tmp_path / "long.txt").write_text("\n\n".join(paragraphs))
    found, _ = documents.read(tmp_path, chunk=70)
    assert [document.id for document in found] == ["long.txt#1", "long.txt#2"]
    assert found[0].text == f"{paragraphs[0]}\n\n{paragraphs[1]}"
    assert [len(document.text.split()) for document in documents.read(tmp_path, chunk=20)[0]] == [20, 10] * 3
    assert [document.id for document in documents.read(tmp_path, chunk=100)[0]] == ["long.txt"]
    steps = [f"- step {number}:  mix" for number in range(30)]
    (tmp_path / "long.txt").write_text("\n".join(steps) + "\n\nDone.")
    texts = [document.text for document in documents.read(tmp_path, chunk=40)[0]]
    assert texts == [*("\n".join(steps[at : at + 10]) for at in (0, 10, 20)), "Done."], "line breaks stay"


with pa.BufferOutputStream() as _file:
    pq.write_table(pa.table([["rye"], ["oats"]], names=["text", "text"]), _file)
TWICE = _file.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"id,name\n1,x\n", "a.csv row 1: no column text, body"),
        ("a.jsonl", b"[]\n", "a.jsonl:1: expected a JSON object"),
        ("a.parquet", b"PAR1", "a.parquet is damaged"),
        ("a.parquet", TWICE, "a.parquet: two columns are named 'text'"),
        ("a.html", b"<!-- nothing -->", "no document with text (a.html: it has no text)"),
        ("a.csv", b"id,text\n", "no document with text (it has neither files nor rows)"),
        ("a.csv", b"id,text\n1,a, b\n", "a.csv row 1 has 3 columns, the header 2: put texts with ',' in quotes"),
        ("a.csv", "text\nrye\n".encode("utf-16-le"), "a.csv row 1: no column text"),
        ("a.csv", "text\nrye\n".replace("ye", "\0ye").encode(), "a.csv row 1: NUL characters: is the file in UTF-16?"),
        ("a.txt", "rye".encode("utf-16-le"), "a.txt: NUL characters: is the file in UTF-16?"),
        ("a.html", "<p>rye".encode("utf-16-le"), "a page: NUL characters: is the file in UTF-16?"),
        ("a.csv", b"id,text,text\n1,a,b\n", "two columns are named 'text'"),
        ("a.pdf", b"%PDF-1.7 broken", "a.pdf cannot be read as a pdf file"),
        ("a.xlsx", b"no", "a.xlsx cannot be read as a xlsx file"),
    ],
)
def test_a_document_that_cannot_be_read_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        documents.read(tmp_path)


# Elements of Word around runs: text that was moved, a field, a direction, and readings above letters.
WRAPPED = (
    '<w:p><w:moveTo w:id="1" w:author="A > B"><w:r><w:t>moved here, </w:t></w:r></w:moveTo>'
    '<w:fldSimple w:instr="IF 1 &gt; 2"><w:r><w:t>a field of letters, </w:t></w:r></w:fldSimple>'
    '<w:bdo w:val="rtl"><w:r><w:t>right to left, </w:t></w:r></w:bdo>'
    "<w:r><w:ruby><w:rubyPr/><w:rubyBase><w:r><w:t>kanji</w:t></w:r></w:rubyBase></w:ruby></w:r></w:p>"
)
DEEP = "".join(f"<font color=red>word{i}<br>" for i in range(400))


@pytest.mark.parametrize(
    ("page", "first", "last"),
    [
        (f"<body>{DEEP}<p>end</body>", "word0", "end"),
        (f"{'<div>' * 5_000}end", "end", "end"),
        (f"<p>one<img src='data:image/png;base64,{'A' * 10_100_000}'><p>end", "one", "end"),
        (f"<script>{'x' * 10_100_000}</script><p>end", "end", "end"),
        (f"one<!--{'x' * 10_100_000}--><p>end", "one", "end"),
        (f"{'x ' * 5_100_000}<p>end", f"x{' x' * 5_099_999}", "end"),
        ("<p>one</p><!--><p>two</p><!-- x --><p>end", "one", "end"),
        ("<p>one</p><!-- x --!><p>two</p><!-- y --><p>end", "one", "end"),
        ("<html><body><p>one</body></html><p>end", "one", "end"),
        ("<html><head><title>T</title><style>p{}</style><meta x><p>one<p>end", "one", "end"),
        ("<frameset><frame src=a></frameset><noframes>one</noframes><p>end", "one", "end"),
        ("<p>1 < 2 &amp; 3<4<textarea>5_6*7", "1 < 2 & 3<45_6*7", "1 < 2 & 3<45_6*7"),
        ("<ruby>one<rp>(</rp><rt>end", "one(end", "one(end"),
        ("<template>one</template><noscript><p>two</noscript><p>end<noscript></noscript>", "one", "end"),
        ("one<img alt='two' src='x'>end<img src=data:xyz>", "one two end", "one two end"),
        ("<p>o<b>n</b><!-- x -->e</p>e<span>n<wbr>d</span>", "one", "end"),
        ("<table><tr><td>one</td><td>end<br></td></tr></table>", "|  |  |", "| one | end |"),
        ("<meta charset=iso-8859-1><p>“onë”<p>end".encode("cp1252"), "“onë”", "end"),
        ("<meta charset=tis-620><p>“ก”<p>end".encode("cp874"), "“ก”", "end"),
        ("\ufeff<p>onë<p>end".encode("utf-16-le"), "onë", "end"),
        ("<meta charset=latin1><p>onë<p>end".encode("latin1"), "onë", "end"),
        ("<meta charset=utf-16><p>onë<p>end".encode(), "onë", "end"),
    ],
)
def test_no_text_of_a_page_is_lost(tmp_path, page, first, last):
    (tmp_path / "a.html").write_bytes(page if isinstance(page, bytes) else page.encode())
    (found,), flaws = documents.read(tmp_path)
    words = found.text.splitlines()
    assert (words[0], words[-1], flaws) == (first, last, {})
    assert "T" not in words
    assert ("two" in str(page)) == ("two" in found.text)


@pytest.mark.parametrize(
    "page",
    [
        "one<a href='x>two",
        "one<script>x</script y>two",
        "one<title>two",
        "one<!-- two",
        "one<style>two",
        "one<![CDATA[two",
        "<body>one<template>two<p>three</body>",
        "<body>one<noscript>two<p>three</body>",
    ],
)
def test_what_does_not_close_is_read_or_its_page_is_named(tmp_path, page):
    """Parsers of several versions of Python differ."""
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.txt").write_text("another")
    (found, _), flaws = documents.read(tmp_path)
    if "two" not in found.text:
        assert flaws == {"a.html": UNCLOSED}


def test_documents_that_cannot_be_read_or_have_no_text_are_named_and_the_others_read(tmp_path, monkeypatch):
    pytest.importorskip("markitdown")
    pytest.importorskip("bs4")  # here, as the first import may take longer than _LONGEST
    monkeypatch.setattr(documents, "_LARGEST", 300_000)
    monkeypatch.setattr(documents, "_LONGEST", 0.2)
    (tmp_path / "good.md").write_text("---\nRye between two rules\n\n---\nBread")
    (tmp_path / "cut.html").write_text("Rye<script>var a; <p>Bread")
    (tmp_path / "damaged.docx").write_text("no archive")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "large.md").write_text("x" * 300_001)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "slow.html").write_text("</" * 100_000)
    (tmp_path / "rows.csv").write_text("id,text\n1,\n2,rye\n")
    _zip(tmp_path / "unpacked.docx", {"word/document.xml": "x" * 300_001})
    found, flaws = documents.read(tmp_path)
    assert [document.id for document in found] == ["cut.html", "empty.txt", "good.md", "1", "2"]
    assert found[2].text == "---\nRye between two rules\n\n---\nBread"
    expected = {
        "cut.html": UNCLOSED,
        "damaged.docx": r"left out: .*/damaged\.docx cannot be read as a docx file",
        "empty.txt": "it has no text",
        "large.md": "left out: .*it has 300,001 bytes, more than 300,000",
        "latin.txt": r"left out: .*/latin\.txt:1: not UTF-8",
        "slow.html": r"left out: .*/slow\.html .*it takes longer than 0\.2 seconds",
        "unpacked.docx": "left out: .*it has 300,001 bytes",
        "1": "it has no text",
    }
    assert flaws.keys() == expected.keys()
    assert all(re.match(pattern, flaws[name]) for name, pattern in expected.items()), flaws


def test_rows_of_excel_are_not_lost(tmp_path, capsys):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = ([None], ["id", "text", None, "note"], ["1", "x"], [None, " "], ["2", "y", "aside", "z"])
    for row in (*rows, ["3", None, None, "no text"]):
        book.active.append(row)
    book.active["XFD50000"] = " "  # a cell of the last column
    book.create_sheet("notes").append(["no rows"])
    book.save(tmp_path / "a.xlsx")
    found, flaws = documents.read(tmp_path)
    assert [(document.id, document.text) for document in found] == [("1", "x"), ("2", "y"), ("3", "")]
    assert flaws == {"3": "it has no text"}
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "column 3 (1 values), note (2 values)",
        "its only row is taken for names of columns",
    ]
    book.active["C2"] = "text"
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match=r"a\.xlsx, sheet Sheet: two columns are named 'text'"):
        documents.read(tmp_path)
    book.active["C2"], book.active["B3"] = None, '="rye"'
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match=r"a\.xlsx, sheet Sheet row 3: a formula without a value: save the file in a"):
        documents.read(tmp_path)


@pytest.mark.parametrize(
    ("rows", "ids", "told"),
    [
        (
            '1,rye\n2,"oats\n3,wheat\n4,15"\n5,"two\nlines"\n',
            "125",
            "2, row 2 first",
        ),
        ('1,rye\n2,"two\nlines"\n', "12", "1, row 2 first"),
    ],
)
def test_a_quote_that_closes_rows_later_is_told(tmp_path, capsys, rows, ids, told):
    (tmp_path / "a.csv").write_text(f"id,text\n{rows}")
    assert [document.id for document in documents.read(tmp_path)[0]] == [*ids]
    assert (
        f"{tmp_path / 'a.csv'}: rows with a text over several lines: {told}. Does a text begin with a quote"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "id,text,body,note\n1,rye,oats,\n", "columns up to {} row 1 that are not read: body (1 values)"),
        ("a.jsonl", '{"text": "rye", "note": "oats"}\n', "columns up to {}:1 that are not read: note (1 values)"),
        ("a.tsv", "title\ttext\t\nrye\toats\twheat\n", "columns up to {} row 1 that are not read: without a name (1"),
    ],
)
def test_columns_that_are_not_read_are_named(tmp_path, capsys, name, content, told):
    (tmp_path / name).write_text(content)
    documents.read(tmp_path)
    assert capsys.readouterr().err.startswith(f"warning: {told.format(tmp_path / name)}")


LINES = 'first line\n\n"second"\tline\rend, and\nmore'
QUOTED = 'first line\n\n""second""\tline\rend, and\nmore'


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.md", "---\ntitle: Rye\ntags: [oats]\n---\n# Bread\nBake.", ("Bread", "Bake.\n\ntitle: Rye\ntags: [oats]")),
        ("a.md", "---\nNote: hot\n\nRye\n---\nOats", ("a", "Oats\n\nNote: hot\n\nRye")),
        ("a.md", "# C#\nBake.", ("C#", "Bake.")),
        ("a.md", "# Rye ##\nBake.", ("Rye", "Bake.")),
        ("a.md", "# Old\rlines of a Macintosh", ("Old", "lines of a Macintosh")),
        ("a.html", '<?xml version="1.0" encoding="utf-8"?>\n<html><body>Käse</body></html>', ("a", "Käse")),
        ("a.csv", f"id,text\na.csv,{'word ' * 60_000}\n", ("", "word " * 60_000)),
        ("a.csv", f'id,text\na.csv,"{QUOTED}"\nb,x\n', ("", LINES)),
        (os.fsdecode(b"c\xff.txt"), "a name that is no UTF-8", ("c\ufffd", "a name that is no UTF-8")),
    ],
)
def test_no_text_of_a_file_is_lost(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, newline="")
    first, *_ = documents.read(tmp_path)[0]
    assert (first.id, first.title, first.text) == (name.replace("\udcff", "%FF"), *expected)


def test_links_are_not_followed_out_of_the_folder(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "key").write_text("PRIVATE KEY")
    (tmp_path / "docs/a.md").write_text("Rye bread")
    for name, target in {"b.md": "a.md", "c.md": "../key", "d": "..", "e.md": "nowhere"}.items():
        (tmp_path / "docs" / name).symlink_to(target)
    found, flaws = documents.read(tmp_path / "docs")
    assert [document.id for document in found] == ["a.md", "b.md"]
    assert flaws == dict.fromkeys(["c.md", "d", "e.md"], "left out: a link out of the folder")


@pytest.mark.parametrize("name", ["b.txt", "b.csv"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    (tmp_path / "a.md").write_text("Rye bread")
    (found,), flaws = documents.read(tmp_path)
    assert (found.id, flaws) == ("a.md", {name: "left out: a pipe, a socket or a device"})
    with pytest.raises(DataError, match="has no document with text"):
        documents.read(tmp_path / name)


def test_queries_are_read_and_checked(tmp_path, capsys):
    path = tmp_path / "queries.csv"
    path.write_text("query,id\n how  to bake ,q7\n,q8\n")
    assert queries.read(path) == [queries.SetQuery("q7", "how to bake")]
    assert capsys.readouterr().err == f"warning: {path}: 1 row has no query\n"
    reading, writing = os.pipe()  # of a shell
    os.write(writing, b"first query\nsecond\n")
    os.close(writing)
    assert [query.id for query in queries.read(Path(f"/dev/fd/{reading}"))] == ["q1", "q2"]
    os.close(reading)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "words\nx\n", r"row 1: no column query, text, q \(it has words\)"),
        ("a.csv", "query,count\nwhat is, say, x\n", "has 3 columns, the header 2"),
        ("a.csv", "query,count\nx,0\n", "'0' is not a number of times"),
        ("a.csv", "query,count\nx,\n", "'' is not a"),
        ("a.csv", 'query,count\none,1\n"how to bake,1\ntwo,1\n', r"a\.csv row 2: unexpected end of data"),
        ("a.csv", 'query,count\n"how to bake,1\n"what is rye,1\n', r"a\.csv row 1: ',' expected after"),
        ("a.csv", 'query,count\n"how to bake,1\ntwo,1\nrye",1\n', r"a\.csv row 1: a line break within the query"),
        ("a.csv", 'query,count\n5" pipe,1\n"say ""rye""",1\n', ['5" pipe', 'say "rye"']),
        ("a.tsv", 'query\tcount\n"how to bake\t1\ntwo\t1\n5" pipe\t1\n', ['"how to bake', "two", '5" pipe']),
        ("a.tab", 'query\tcount\n"rye" or "oat"\t1\n\n"rye"\t2\n', ['"rye" or "oat"', '"rye"']),
        ("a.tsv", 'query\tcount\n"say ""rye"""\t1\n', r"a\.tsv row 1: a text in quotes, and each quote within"),
        ("a.tsv", 'query\tcount\n""rye"" or ""oat""\t1\n""\t1\n', ['""rye"" or ""oat""', '""']),
        ("a.tsv", 'query\tcount\n"a\ttab"\t1\none\t1\n', r"a\.tsv row 1 has 3 columns, the header 2: save texts"),
        ("a.tsv", 'query\tcount\n"two\nlines"\t1\n', r"a\.tsv row 1 has 1 columns, the header 2: save texts"),
        ("a.tsv", '"query"\tcount\n"one"\t1\n', r"a\.tsv: a name of a column is in quotes"),
        ("a.tsv", "query\tcount\rone\t1\r", r"a\.tsv:1: a carriage return within a line"),
        ("a.json", '{"query": "one\\ncat"}\n{"q": "two"}\n', ["one cat", "two"]),
        ("a.json", '[\n{"query": "one cat"}]', r"a\.json:1: not JSON"),
        ("a.ndjson", '{"query": "one"}\n', ["one"]),
        ("a.jsonl.gz", '{"query": "one"}\n', ["one"]),
        ("a.CSV.gz", "query,count\none,3\n", ["one"]),
        ("a.txt.gz", "one\n", ["one"]),
        ("a.txt", "7\tone\n8\ttwo\n", r"a\.txt:1: in a text, each line is a query, but this is '7\\tone': save it as"),
        ("a.log", "one\ntwo\t12\n", r"a\.log:2: in a text, each line is a query"),
        ("a", '{"query": "one"}\n', r"a:1: in a text, each line is a query"),
        ("a.txt", "<top>\n<num> Number: 301\n", r"a\.txt:1: in a text, each line is a query"),
        ("a.txt", "one\n{two} <br> [three]\n", ["one", "{two} <br> [three]"]),
        ("a.xml", "<query>one</query>\n", r"a\.xml: queries come from files that end in \.parquet, .*, \.log"),
    ],
)
def test_no_row_of_queries_is_lost_or_read_as_text(tmp_path, name, content, expected):
    opener = gzip.open if name.endswith(".gz") else open
    with opener(tmp_path / name, "wt") as stream:
        stream.write(content)
    if isinstance(expected, list):
        assert [query.text for query in queries.read(tmp_path / name)] == expected
    else:
        with pytest.raises(DataError, match=expected):
            queries.read(tmp_path / name)


QUOTES = re.compile(r'"(?:[^"]|"")*"')


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text('a" ,\t'), min_size=1), st.sampled_from((",", "\t")), st.booleans())
def test_a_table_that_people_typed_has_all_its_rows_or_is_refused(tmp_path_factory, texts, delimiter, first):
    """The query is in the first column or in the last."""
    path = tmp_path_factory.getbasetemp() / f"a{'.csv' if delimiter == ',' else '.tsv'}"
    texts = [text.replace(delimiter, "a") for text in texts]
    rows = [("query", "id"), *((text, f"q{at}") for at, text in enumerate(texts))]
    path.write_text("".join(f"{delimiter.join(row if first else row[::-1])}\n" for row in rows))
    if delimiter == ",":  # which has quotes around a field as a whole
        texts = [text[1:-1].replace('""', '"') if QUOTES.fullmatch(text) else text for text in texts]
    expected = [(f"q{at}", " ".join(text.split())) for at, text in enumerate(texts) if text.strip()]
    with contextlib.suppress(DataError):
        assert [query[:2] for query in queries.read(path)] == expected


def test_a_log_is_sampled_by_frequency():
    log = [queries.SetQuery("", "bread", 90), queries.SetQuery("", "Bread", 10), queries.SetQuery("", "rye flour", 60)]
    log += [queries.SetQuery("", f"bread {i}") for i in range(200)]
    found = queries.sample(log, 12, seed=1)
    assert found == queries.sample(log, 12, seed=1) != queries.sample(log, 12, seed=2)
    assert Counter(query.stratum for query in found) == {"head": 2, "torso": 5, "tail": 5}
    head = [(query.text, query.times) for query in found if query.stratum == "head"]
    assert head == [("bread", 100), ("rye flour", 60)]
    assert len(queries.sample(log, 10_000)) == 202


def test_personal_data_and_near_duplicates_are_named():
    texts = ["mail ann@example.org", "call +49 30 1234 5678", "DE89 3704 0044 0532 0130 00", "bread 2024", "3.11.7"]
    texts += ["x" * 200_000, "write to .ann.b+c@d-e.fg"]  # of which the first would take minutes in quadratic time
    found = queries.personal([queries.SetQuery(str(i), text) for i, text in enumerate(texts)])
    assert found == {"an e-mail address": ["0", "6"], "a telephone number": ["1", "2"], "an IBAN": ["2"]}
    texts = ["How to bake bread", "bread bake how to?", "???", "rye"]
    twins = [queries.SetQuery(str(i), text) for i, text in enumerate(texts)]
    assert queries.without_near_duplicates(twins) == [twins[0], *twins[2:]]


@pytest.fixture
def store(tmp_path):
    found = JudgementStore(tmp_path / "judgements.sqlite")
    found.add_pool((f"q{query}", f"d{document}") for query in range(8) for document in range(3))
    return found


def test_judges_share_the_pool_and_never_meet_on_a_query(store):
    assert store.waiting("ann") != sorted(store.waiting("ann"))

    def judge(name: str) -> None:
        while pair := store.next(name):
            store.judge(Grading(name, *pair, 1))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(judge, ("ann", "ben", "cem")))
    found = store.judgements()
    assert len({(judgement.query, judgement.document) for judgement in found}) == len(found) == 24
    assert len({(judgement.query, judgement.judge) for judgement in found}) == 8
    for name in ("ann", "ben", "cem"):
        own = [judgement.query for judgement in found if judgement.judge == name]
        assert own == [query for query in own[::3] for _ in range(3)], "documents of a query follow each other"


def test_shared_queries_are_judged_by_everyone(tmp_path):
    shared = JudgementStore(tmp_path / "shared.sqlite")
    shared.add_pool([("q", "d")], overlap=1.0)
    for judge in ("ann", "ben"):
        assert shared.next(judge) == ("q", "d")
        shared.judge(Grading(judge, "q", "d", 2))
    assert shared.next("ann") is None
    assert [judgement.judge for judgement in shared.judgements()] == ["ann", "ben"]


@pytest.mark.parametrize("later", [STALE + 1, -86_400])  # the clock of the judge was ahead
def test_a_judge_who_leaves_frees_the_query(store, monkeypatch, later):
    monkeypatch.setattr(time, "time", lambda: 100_000.0)
    query, _ = store.next("ann")
    while pair := store.next("ben"):
        assert pair[0] != query
        store.judge(Grading("ben", *pair, 0))
    monkeypatch.setattr(time, "time", lambda: 100_000.0 + later)
    assert store.next("ben")[0] == query


def test_judgements_can_be_changed_and_undone(store):
    first = store.next("ann")
    for grade in (1, 3):
        store.judge(Grading("ann", *first, grade))
        assert [judgement.grade for judgement in store.judgements()] == [grade]
    assert store.undo("ann") == first
    assert [judgement.grade for judgement in store.judgements()] == [1]
    assert store.undo("ann") == first
    assert store.undo("ann") is None
    assert store.judgements() == []
    with pytest.raises(DataError, match="does not have document 'd9' of query 'q0'"):
        store.judge(Grading("ann", "q0", "d9", 1))


def test_progress_counts_pairs_and_a_pool_that_grows_keeps_its_judgements(store):
    for number in range(3):
        assert store.progress("ann") == {"judged": number, "left": 24 - number}
        store.judge(Grading("ann", *(pair := store.next("ann")), 1))
    assert store.add_pool([pair, ("q0", "new")]) == 1
    assert (len(store.judgements()), len(store.pool())) == (3, 25)


@pytest.fixture
def made(tmp_path):
    """A set with two queries and a pool of three pairs."""
    texts = [documents.Document("d1", "Rye", f"Rye bread. {HOSTILE}"), documents.Document("d2", "", "Wheat")]
    found = EvaluationSet.create(tmp_path / "notes", texts, "here")
    found.write_queries([queries.SetQuery("q1", "rye bread"), queries.SetQuery("q2", "wheat")])
    found.store.add_pool([("q1", "d1"), ("q1", "d2"), ("q2", "d2")])
    return found


@pytest.fixture
def served(made):
    """The address of a page on which the set is judged."""
    running, listening, address = server.serve(server.Judging(made))
    thread = threading.Thread(target=running.run, args=([listening],))
    thread.start()
    yield address
    running.should_exit = True
    thread.join()


def ask(address: str, path: str, body: object = None, judge: str = "ann", **headers: str):
    url = address.replace("/?", f"/{path}?") + f"&judge={judge}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def judge_all(address: str, **judgement: object) -> dict[str, str]:
    """Judge all pairs alike, and return the texts of their documents."""
    texts = {}
    while pair := ask(address, "next")[1]["pair"]:
        texts[pair["document"]] = pair["text"]
        assert ask(address, "judge", {"query": pair["query"], "document": pair["document"], **judgement})[0] == 200
    return texts


def test_the_server_takes_judgements_and_refuses_what_is_none(made, served):
    _, first = ask(served, "next")
    pair = {key: first["pair"][key] for key in ("query", "document")}
    assert ask(served, "judge", {**pair, "grade": 7}) == (400, {"error": "the grade '7' is not one of 0, 1, 2, 3"})
    assert ask(served, "judge", {**pair, "grade": None}) == (400, {"error": "a skipped document needs a reason"})
    of_no_file = {**pair, "grade": None, "reason": "\ud800"}, {**pair, "query": "\ud800", "grade": 1}
    for body in (*of_no_file, ["no object"], [], 5, [1]):
        assert ask(served, "judge", body)[0] == 400
    assert ask(served, "next", judge="%3Cb%3E")[0] == 400
    with pytest.raises(urllib.error.HTTPError, match="413"):
        urllib.request.urlopen(served.replace("/?", "/judge?") + "&judge=ann", b" " * 2**17, timeout=10)
    assert made.store.judgements() == []
    status, second = ask(served, "judge", {**pair, "grade": 3})
    assert status == 200
    assert second["progress"]["judged"] == 1
    assert ask(served, "undo", {})[1]["pair"] == first["pair"]
    assert ask(served, "judge", {**pair, "grade": None, "reason": "no  text"})[1]["progress"]["judged"] == 1
    assert [judgement.reason for judgement in made.store.judgements()] == ["no text"]
    # Grades of two judges stand both, also where the page of one was left open over night.
    for judge, grade in (("ben", 0), ("ann", 3)):
        assert ask(served, "judge", {**pair, "grade": grade}, judge)[0] == 200
    assert made.grades() == {judge: {tuple(pair.values()): grade} for judge, grade in (("ben", 0), ("ann", 3))}


def test_documents_that_join_the_pool_are_judged(made, served):
    """The page was opened before ``beirgrid set pool`` was called again."""
    made.store.add_pool([("q2", "d3")])
    with (made.folder / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "d3", "title": "", "text": "Oats"}\n')
    assert judge_all(served, grade=1)["d3"] == "Oats"


def test_the_server_answers_its_address_alone_at_a_free_port_with_grades_and_the_next_step(made, served):
    bare = served.partition("?")[0]
    stale = ask(f"{bare}?token=of-yesterday", "judge", {"query": "q1", "document": "d1", "grade": 3})
    assert stale == (403, {"error": "open the address that beirgrid printed"})
    assert made.store.judgements() == []
    assert ask(served, "next", None, "ann", Host="evil.example:80")[0] == 403
    assert ask(served, "elsewhere")[0] == 404
    assert ask(served, "next", None, "ann", Host="localhost:80")[0] == 200
    with urllib.request.urlopen(served, timeout=10) as answer:
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        data = json.loads(re.search(r"const data = (.*);", answer.read().decode())[1])
    assert data["grades"] == {str(grade): meaning for grade, meaning in made.description.grades.items()}
    assert data["next"] == f"beirgrid set accept {made.folder}"
    for port in (urlsplit(served).port, 65_536):  # taken, and none
        with pytest.raises(BeirgridError, match=f"port {port}: "):
            server.serve(server.Judging(made), port)


def test_a_page_that_goes_away_while_it_sends_leaves_no_traceback(served, caplog):
    place = urlsplit(served)
    with socket.create_connection((place.hostname, place.port)) as page:
        head = f"POST /judge?{place.query}&judge=ann HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 99\r\n\r\n"
        page.sendall(f'{head}{{"query"'.encode())
        time.sleep(0.2)
    assert ask(served, "next")[0] == 200
    assert not caplog.records


def test_hostile_texts_stay_text(made, served):
    """They come as JSON that the page shows as text, and no browser may read it as anything else."""
    assert HOSTILE in judge_all(served, grade=None, reason=HOSTILE)["d1"]
    with urllib.request.urlopen(served, timeout=10) as answer:
        assert HOSTILE not in answer.read().decode()
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    made.description.guideline = f"</script>{HOSTILE}"
    page = server.Judging(made).offline("cem", made.store.waiting("cem"))
    assert page.count("</script>") == 1
    assert "\\u003cscript>document.title" in page
    assert "<script>document.title" not in page


def test_files_for_several_judges_share_the_queries_and_repeat_those_of_the_overlap(tmp_path):
    made = EvaluationSet.create(tmp_path / "dealt", [documents.Document("d", "", "text")], "here")
    made.write_queries([queries.SetQuery(f"q{n}", f"query {n}") for n in range(30)])
    made.store.add_pool([(f"q{n}", "d") for n in range(30)], overlap=0.3)
    shared = {pair for pair, of_all in made.store.pool().items() if of_all}
    assert 0 < len(shared) < 30
    dan = made.store.next("dan")  # a query that dan has begun on the page is in no file, unless all judge it
    files = server.Judging(made).pairs_by_judge(["ann", "ben", "cem"])
    own = [set(pairs) - shared for pairs in files.values()]
    assert all(shared <= set(pairs) for pairs in files.values())
    assert sum(map(len, own)) == len(set.union(*own)) == 30 - len(shared) - (dan not in shared)
    assert max(map(len, own)) - min(map(len, own)) <= 1


HEADER = "query,document,grade,reason\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEADER}q1,d1,3,\nq1,d2,,\nq2,d2,0,\n", {("q1", "d1"): 3, ("q2", "d2"): 0}),
        ("query,document,grade,by ben\nq2,d2,0,1\n", {("q2", "d2"): 0}),
        (f"{HEADER}q1,d1,3,\nq2,d2,9,\n", r"back\.csv row 2: the grade '9' is not one of"),
        (f"{HEADER}q1,d1,3,\nq2,other,1,\n", "does not have document 'other' of query 'q2'"),
        (f'{HEADER}q1,d1,3,"unsure\nq2,d2,0,\n', r"back\.csv row 1: unexpected end of data"),
        (
            "query;document;grade;reason\nq2;d2;3;\n",
            r"back\.csv row 1 has no column 'query': does .* commas",
        ),  # of some countries
        ("q2,d2,3,\n", r"back\.csv has no judgements below a row of the names query, document, grade, reason"),
        ("", r"back\.csv has no judgements below a row of the names"),
        (f'{HEADER}q1,d1,3,"unsure\nq1,d2,3,\nq2,d2,0,15"\n', r"row 1: a line break within the reason\. Does a text"),
        (f'{HEADER}q1,d1,"3\nq2,d2,0",\n', "row 1: a line break within the grade"),
        (f'{HEADER}q1,"d1\n",3,\n', "row 1: a line break within the document"),
        (f'{HEADER}q1,d1,3,"un\rsure"\n', "row 1: a line break within the reason"),
        (f"{HEADER}q1,d1,3,\nq1,d1,2,\n", "row 2: document 'd1' of query 'q1' has another grade than in .* row 1"),
    ],
)
def test_a_csv_comes_back_whole_or_not_at_all(made, tmp_path, capsys, text, expected):
    judging, path = server.Judging(made), tmp_path / "back.csv"
    path.write_text(text)
    if isinstance(expected, dict):
        assert judging.take_back("ann", path) == len(expected)
        assert made.grades() == {"ann": expected}
        assert ("1 row has neither a grade nor a reason" in capsys.readouterr().err) == (",,\n" in text)
    else:
        with pytest.raises(BeirgridError, match=expected):
            judging.take_back("ann", path)
        assert made.grades() == {}


def test_a_set_that_was_opened_hours_ago_overwrites_nothing(made):
    """A person and another command change set.json meanwhile."""
    path, other = made.folder / "set.json", EvaluationSet(made.folder)
    path.write_text(json.dumps({**json.loads(path.read_text()), "guideline": "Grade the answer.", "licence": "CC0"}))
    made.write_queries([queries.SetQuery("q1", "rye bread")], synthetic=True)
    description = EvaluationSet(made.folder).description
    assert (description.guideline, description.licence) == ("Grade the answer.", "CC0")
    assert description.queries == {"synthetic": True, "number": 1}
    pair = next(iter(made.store.pool()))
    for opened, grade in ((made, 2), (other, 3)):
        made.store.judge(Grading("ann", *pair, grade))
        opened.accept("majority")
    assert [[*other.qrels(number).values()] for number in (1, 2)] == [[{pair[1]: 2}], [{pair[1]: 3}]]


def test_commands_at_the_same_time_lose_nothing_of_set_json(made):
    with ThreadPoolExecutor(1) as threads, made.edit() as description:
        threads.submit(EvaluationSet(made.folder).write_queries, [queries.SetQuery("q1", "oats")])
        time.sleep(0.2)
        description.licence = "CC0"
    description = EvaluationSet(made.folder).description
    assert (description.licence, description.queries) == ("CC0", {"number": 1})


def test_versions_keep_who_when_and_how(made):
    with pytest.raises(BeirgridError, match=r"none of the 0 judged documents is relevant \(judges are none\)"):
        made.accept("majority")
    for judge, grade in (("ann", 2), ("ben", 0)):
        made.store.judge(Grading(judge, "q1", "d1", grade))
    with pytest.raises(BeirgridError, match="none of the 1 judged documents is relevant"):
        made.accept("strictest")
    assert not (made.folder / "qrels").exists()
    with pytest.raises(BeirgridError, match=r"nobody has graded as 'bne' \(judges are ann, ben\)"):
        made.accept("majority", without=["bne"])
    made.accept("majority", without=["ben"])
    made.store.judge(Grading("cem", "q1", "d1", 3))
    version = made.accept("adjudicated", "cem")
    again = EvaluationSet(made.folder)
    assert [found.number for found in again.description.versions] == [1, 2]
    assert version.model_dump_json() == again.description.versions[1].model_dump_json()
    assert version.judges == ["ann", "ben", "cem"]
    assert (again.qrels(1), again.qrels(2)) == ({"q1": {"d1": 2}}, {"q1": {"d1": 3}})
    assert (made.folder / "qrels/test.tsv").read_text() == (made.folder / "versions/2.tsv").read_text()
    (made.folder / "versions/1.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    with pytest.raises(DataError, match="was changed after version 1 was accepted"):
        again.qrels(1)
    with pytest.raises(BeirgridError, match=r"has no version 3 \(it has 1, 2\)"):
        again.qrels(3)


def test_what_is_no_set_or_store_is_refused(tmp_path, made):
    with pytest.raises(DataError, match=r"has no set\.json"):
        EvaluationSet(tmp_path)
    with pytest.raises(BeirgridError, match="is an evaluation set already"):
        EvaluationSet.create(made.folder, [], "here")
    text = documents.Document("a", "", "b")
    with pytest.raises(BeirgridError, match="cannot be the name of a dataset"):
        EvaluationSet.create(tmp_path / "white space", [text], "here")
    with pytest.raises(DataError, match="two documents have the id 'a'"):
        EvaluationSet.create(tmp_path / "twice", [text, text], "here")
    assert not (tmp_path / "twice/corpus.jsonl").exists()
    (made.folder / "set.json").write_text('{"name": "notes", "colour": "red"}')
    with pytest.raises(DataError, match=r"set\.json: (?s:.*)colour\n  Extra inputs"):
        EvaluationSet(made.folder)
    (made.folder / "set.json").write_text('{"name": "notes", "grades": {"0": "no", "101": "yes"}}')
    with pytest.raises(DataError, match=r"set\.json: (?s:.*)grades\.101(?s:.*) less than or equal to 100"):
        EvaluationSet(made.folder)
    (tmp_path / "x.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match=r"x\.sqlite is damaged"):
        JudgementStore(tmp_path / "x.sqlite").judgements()
