"""Figures draw the numbers of their tables; files and captions."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest

from beirgrid.page import drawing
from beirgrid.paper import figures as paper_figures
from beirgrid.paper import words


@pytest.fixture(autouse=True)
def style():
    with drawing.style():
        yield


def test_names_of_near_points_do_not_cover_each_other():
    systems = ["minilm", "minilm-int8", "bm25+minilm-wsum", "bm25", "bm25-flat", "minilm-hnsw"]
    sizes, means = [10.7, 10.9, 11, 1.4, 1.5, 11.1], [0.6166, 0.6164, 0.6201, 0.5238, 0.5258, 0.6166]
    points = pd.DataFrame({"system": systems, "index_bytes": sizes, "mean": means, "index_bytes_front": False})
    figure = drawing.trade_off(points, "index_bytes", "size, bytes", "ndcg@10").figure
    figure.draw_without_rendering()
    (axis,) = figure.axes
    boxes = {note.get_text(): note.get_window_extent() for note in axis.texts}
    assert set(boxes) == set(systems)
    assert not [pair for pair in itertools.combinations(systems, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]


def test_a_trade_off_joins_its_front():
    points = pd.DataFrame({"system": ["bm25", "ce", "dpr"], "latency_ms": [1, 2, 3], "mean": [0.42, 0.48, 0.2]})
    points["latency_ms_front"] = [True, True, False]
    (axis,) = drawing.trade_off(points, "latency_ms", "latency, ms", "ndcg@10").figure.axes
    front, others = axis.lines
    assert front.get_xydata().tolist() == [[1, 0.42], [2, 0.48]]
    assert others.get_xydata().tolist() == [[3, 0.2]]


def test_lengths_are_drawn_where_they_are():
    counts = {f"d{i}": i for i in range(40)}
    top = {"short": {"q": ["d1", "d2", "d3"]}, "long": {"q": ["d30", "d31", "d39"]}}
    table = words.describe(words.lengths("set", top, {"q": {"d1": 0, "d20": 2, "d21": 2}}, counts))
    (axis,) = paper_figures.retrieved_lengths(table).figure.axes
    boxes = [patch.get_path().vertices[:, 0] for patch in axis.patches]
    assert [(box.min(), box.max()) for box in boxes] == [(1.5, 2.5), (30.5, 35)]
    drawn = [tuple(line.get_xdata()) for line in axis.lines]
    assert drawn.count((2, 2)) == drawn.count((31, 31)) == 1
    assert any(ends == pytest.approx((35, 38.2)) for ends in drawn)  # 95 % of the documents are shorter
    (axis,) = paper_figures.judged_lengths(table).figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["grade 2", "grade 0"]


def test_datasets_stand_in_the_order_of_the_grid():
    """The first of them has no document of the lowest grade."""
    first = words.lengths("first", {}, {"q": {"d1": 1}}, {"d1": 5})
    second = words.lengths("second", {}, {"q": {"d1": 0, "d2": 1}}, {"d1": 5, "d2": 6})
    axes = paper_figures.judged_lengths(words.describe(pd.concat([first, second]))).figure.axes
    assert [axis.get_title() for axis in axes] == ["first", "second"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["grade 1", "grade 0"]


def heatmap(*pairs: tuple[str, str, float]) -> drawing.DrawnFigure:
    return paper_figures.overlap_heatmap(pd.DataFrame(pairs, columns=["dataset", "other", "similarity"]))


def test_the_overlap_of_datasets():
    axis = heatmap(("a", "b", 0.5), ("a", "c", 0.25), ("b", "c", 0.125)).figure.axes[0]
    expected = [[0, 0.5, 0.25], [0.5, 0, 0.125], [0.25, 0.125, 0]]
    assert axis.images[0].get_array().filled(0).tolist() == expected


def test_files_and_captions(tmp_path):
    drawn = heatmap(("$x^2$_&<b>", "b", 0.5))
    paper_figures.write({"overlap": drawn}, tmp_path)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(found) == ["captions.json", "overlap.pdf", "overlap.png", "overlap.svg"]
    assert found["overlap.pdf"].startswith(b"%PDF")
    assert found["overlap.png"].startswith(b"\x89PNG")
    text = re.sub("<[^>]*>", "", found["overlap.svg"].decode())
    assert "$x^2$_&amp;&lt;b&gt;" in text  # as it stands, not as a formula or as markup
    captions = json.loads(found["captions.json"])
    assert captions == {"overlap": f"Overlap of vocabularies. {drawn.caption} Numbers: overlap.csv."}
    paper_figures.write({"overlap": heatmap(("$x^2$_&<b>", "b", 0.5))}, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == found


def test_queries_are_counted_before_their_curve_is_thinned():
    differences = np.concatenate([np.full(700, 0.5), np.zeros(20), np.full(300, -0.25)])
    (axis,) = drawing.by_query({"one": differences}, "a", "b", "ndcg@10").figure.axes
    assert axis.get_title() == "one\n700 higher, 20 equal, 300 lower"
    assert max(len(path.get_paths()[0].vertices) for path in axis.collections) < 2500


def test_an_svg_follows_the_colour_scheme_and_its_texts_stay_texts():
    svg = drawing.content(drawing.by_query({"dpr": np.arange(3)}, "a", "b", "ndcg@10").figure, "svg").decode()
    assert svg.count("prefers-color-scheme: dark") == 1
    assert "fill: currentColor" in svg
    assert "stroke: var(--line)" in svg
    assert ">dpr</text>" in svg or ">dpr<" in svg
    assert "<script" not in svg
