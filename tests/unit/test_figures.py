"""Figures draw the numbers of their tables; files and captions."""

from __future__ import annotations

import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.spatial.distance import pdist
from sklearn.manifold import ClassicalMDS

from beirgrid.page import drawing
from beirgrid.paper import figures as paper_figures
from beirgrid.paper import words
from beirgrid.results.summary import DatasetSummary, GridSummary


@pytest.fixture(autouse=True)
def style():
    with drawing.style():
        yield


@pytest.mark.parametrize("last", ["minilm-hnsw", "sentence-transformers__all-mpnet-base-v2"])
def test_names_of_near_points_do_not_cover_each_other(last):
    """Nor does a long name on the right make the axis smaller."""
    systems = ["minilm", "minilm-int8", "bm25+minilm-wsum", "bm25", "bm25-flat", last]
    sizes, means = [10.7, 10.9, 11, 1.4, 1.5, 11.1], [0.6166, 0.6164, 0.6201, 0.5238, 0.5258, 0.6166]
    points = pd.DataFrame({"system": systems, "index_bytes": sizes, "mean": means, "index_bytes_front": False})
    figure = drawing.trade_off(points, "index_bytes", "size, bytes", "ndcg@10").figure
    figure.draw_without_rendering()
    (axis,) = figure.axes
    boxes = {note.get_text(): note.get_window_extent() for note in axis.texts}
    assert set(boxes) == set(systems)
    assert all(axis.bbox.x0 < box.x0 and box.x1 <= axis.bbox.x1 + 1 for box in boxes.values())
    assert axis.bbox.width > 0.75 * figure.bbox.width
    assert not [pair for pair in itertools.combinations(systems, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]
    places = axis.transData.transform(points[["index_bytes", "mean"]])
    assert not [name for name, box in boxes.items() if any(box.contains(*place) for place in places)]


def test_a_system_that_costs_nothing_is_shown_and_ticks_have_the_unit_of_the_axis():
    points = pd.DataFrame(
        {"system": [*"abc"], "price": [0.0, 0.2, 2.0], "mean": [0.5, 0.6, 0.55], "price_front": [True, True, False]}
    )
    (axis,) = drawing.trade_off(points, "price", "price, euros", "ndcg@10").figure.axes
    assert {text.get_text() for text in axis.texts} == {"a", "b", "c"}
    (free,) = [line for line in axis.lines if line.get_label() == "costs nothing"]
    assert free.get_xydata().tolist() == [[0.05, 0.5]]
    assert axis.xaxis.get_major_formatter()(0.2, 0) == "0.2"


def test_a_trade_off_joins_its_front():
    points = pd.DataFrame({"system": ["bm25", "ce", "dpr"], "latency_ms": [1, 2, 3], "mean": [0.42, 0.48, 0.2]})
    points["latency_ms_front"] = [True, True, False]
    (axis,) = drawing.trade_off(points, "latency_ms", "latency, ms", "ndcg@10").figure.axes
    front, others = axis.lines
    assert front.get_xydata().tolist() == [[1, 0.42], [2, 0.48]]
    assert others.get_xydata().tolist() == [[3, 0.2]]


def of_lengths(*measured: pd.DataFrame, **similarities: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of lengths that the figures read."""
    whole = pd.concat(measured)
    return words.with_similarity(words.describe(whole), similarities), words.histogram(whole)


def humps(shape: PolyCollection) -> list[float]:
    """Return the lengths at which the upper edge of a shape has a maximum."""
    edge = shape.get_paths()[0].vertices
    above = edge[edge[:, 1] > edge[:, 1].mean()]
    above = above[np.argsort(above[:, 0])]
    heights = above[:, 1]
    return [float(above[i, 0]) for i in range(1, len(above) - 1) if heights[i - 1] < heights[i] >= heights[i + 1]]


def test_two_kinds_of_documents_make_two_humps():
    """As TREC-COVID's: titles alone, and whole abstracts. Quartiles and a median would not show them."""
    numbers = np.random.default_rng(0)
    titles, abstracts = (np.exp(numbers.normal(np.log(of), 0.3, 400)).round().astype(int) for of in (11, 200))
    counts = {f"d{i}": int(length) for i, length in enumerate([*titles, *abstracts])}
    top = {"both": {"q": [*counts]}, "abstracts": {"q": [*counts][400:]}}
    tables = of_lengths(words.lengths("set", top, {}, counts))
    (axis,) = paper_figures.retrieved_lengths(*tables).figure.axes
    shapes = [found for found in axis.collections if isinstance(found, PolyCollection)]
    assert [pytest.approx(humps(shape), rel=0.25) for shape in shapes] == [[11, 200], [200]]
    assert 0 <= axis.get_xlim()[0] < titles.min()
    assert abstracts.max() < axis.get_xlim()[1] < 3 * abstracts.max()


def test_lengths_are_drawn_where_they_are():
    counts = {f"d{i}": i for i in range(40)}
    top = {"short": {"q": ["d1", "d2", "d3"]}, "long": {"q": ["d30", "d31", "d39"]}}
    tables = of_lengths(words.lengths("set", top, {"q": {"d1": 0, "d20": 2, "d21": 2}}, counts))
    (axis,) = paper_figures.retrieved_lengths(*tables).figure.axes
    assert axis.lines[0].get_xdata().tolist() == [2, 31]
    (quartiles,) = [found for found in axis.collections if isinstance(found, LineCollection)]
    assert [segment[:, 0].tolist() for segment in quartiles.get_segments()] == [[1.5, 2.5], [30.5, 35]]
    (axis,) = paper_figures.judged_lengths(*tables).figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["grade 2", "grade 0"]


@pytest.mark.parametrize("length", [0, 1, 7, 120, 3_000_000])
def test_documents_of_one_length_are_drawn(length):
    tables = of_lengths(words.lengths("set", {"one": {"q": ["d"]}}, {}, {"d": length}))
    (axis,) = paper_figures.retrieved_lengths(*tables).figure.axes
    assert axis.get_xlim()[0] <= length <= axis.get_xlim()[1]
    assert len(axis.get_xticks())


def test_datasets_stand_in_the_order_of_the_grid():
    """The first of them has no document of the lowest grade."""
    first = words.lengths("first", {}, {"q": {"d1": 1}}, {"d1": 5})
    second = words.lengths("second", {}, {"q": {"d1": 0, "d2": 1}}, {"d1": 5, "d2": 6})
    axes = paper_figures.judged_lengths(*of_lengths(first, second)).figure.axes
    assert [axis.get_title() for axis in axes] == ["first", "second"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["grade 1", "grade 0"]


def test_lengths_by_similarity_name_it_and_leave_other_systems_out():
    top = {name: {"q": ["d1", "d2"]} for name in ("tas-b", "bm25", "minilm")}
    tables = of_lengths(words.lengths("set", top, {}, {"d1": 5, "d2": 9}), **{"tas-b": "dot", "minilm": "cosine"})
    (axis,) = paper_figures.similarity_lengths(*tables).figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["tas-b (dot)", "minilm (cosine)"]


def grid_of(systems: list[str], datasets: list[str], **keys) -> GridSummary:
    entries = {name: DatasetSummary(corpus=name, domain=f"domain {place % 9}") for place, name in enumerate(datasets)}
    own = {"systems": systems, "rows": datasets, "datasets": entries, "metrics": ("ndcg@10",), "baseline": systems[0]}
    return GridSummary(**own | keys)


def test_wins_and_losses_are_counted_and_shown_on_each_dataset():
    grid = grid_of(["bm25", "a", "b"], ["one", "two", "three", "four"])
    values = {"bm25": [0.5, 0.5, 0.5, 0.5], "a": [0.6, 0.7, 0.4, 0.5], "b": [0.1, 0.2, 0.3, np.nan]}
    rows = [(s, d, of) for s, listed in values.items() for d, of in zip(grid.rows, listed, strict=True)]
    scores = pd.DataFrame(rows, columns=["system", "dataset", "value"]).dropna()
    across = pd.DataFrame({"metric": "ndcg@10", "over": "all", "mean": 0.5, "names": [", ".join(grid.rows)]})
    differences = paper_figures.against(scores, across, grid)
    counts, cells, _ = paper_figures.wins(differences, grid).figure.axes
    assert [bar.get_height() for bar in counts.patches] == [2, 0, -1, -3]
    assert {text.get_text() for text in counts.texts} == {"2", "", "1", "3"}
    expected = [[0.1, -0.4], [0.2, -0.3], [-0.1, -0.2], [0.0, np.nan]]
    assert cells.images[0].get_array().filled(np.nan).tolist() == pytest.approx(np.array(expected), nan_ok=True)
    assert len(cells.texts) == 7
    assert "of a system is better or worse than that of bm25" in paper_figures.wins(differences, grid).caption
    # Of holes, fewer are better.
    assert paper_figures.against(
        scores, across.assign(metric="hole@10"), grid_of(["bm25", "a", "b"], [*grid.rows], metrics=("hole@10",))
    ).loc["one"].tolist() == pytest.approx([-0.1, 0.4])


def test_effectiveness_has_the_intervals_of_the_scores():
    scores = pd.DataFrame({"system": ["a", "b"], "value": [0.5, 0.6], "low": [0.4, 0.55], "high": [0.7, 0.65]})
    figure = paper_figures.effectiveness(scores.assign(dataset="set"), grid_of(["b", "a"], ["set"])).figure
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
    (bars,) = [found for found in axis.collections if isinstance(found, LineCollection)]
    ends = {tuple(segment[:, 1]): segment[:, 0].tolist() for segment in bars.get_segments()}
    assert ends == {(0, 0): pytest.approx([0.4, 0.7]), (1, 1): pytest.approx([0.55, 0.65])}
    assert figure.get_supxlabel() == "nDCG@10"


def test_the_map_has_the_distances_of_another_implementation():
    numbers = np.random.default_rng(3)
    names = [f"d{i}" for i in range(9)]
    pairs = [(a, b, float(numbers.uniform(0, 0.5))) for a, b in itertools.combinations(names, 2)]
    overlap = pd.DataFrame(pairs, columns=["dataset", "other", "similarity"])
    found = words.places(overlap)
    distances = 1 - words.matrix(overlap).fillna(1).to_numpy()
    other = ClassicalMDS(n_components=2, metric="precomputed").fit_transform(distances)
    assert found["dataset"].tolist() == names
    assert pdist(found[["x", "y"]]) == pytest.approx(pdist(other))


MANY = [
    *("msmarco", "trec-covid", "bioasq", "nfcorpus", "nq", "hotpotqa", "fiqa", "signal1m", "trec-news", "robust04"),
    *("arguana", "webis-touche2020", "cqadupstack", "quora", "dbpedia-entity", "scidocs", "fever", "climate-fever"),
]
SYSTEMS = ["bm25", "deepct", "sparta", "doct5query", "dpr", "ance", "tas-b", "genq", "colbert", "bm25+ce"]


def shown_texts(figure: Figure) -> list[Text]:
    """Return the texts of a figure, without those of ticks beyond the ends of an axis, which are not drawn."""
    beyond = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        beyond |= {label for tick in ticks if not low <= tick.get_loc() <= high for label in (tick.label1, tick.label2)}
    found = (text for text in figure.findobj(Text) if text not in beyond)
    return [text for text in found if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("size", [1, 2, 4, pytest.param(len(MANY), marks=pytest.mark.slow)])
def test_no_label_of_a_figure_covers_another(size):
    """The whole grid of the paper, and small ones."""
    numbers, names = np.random.default_rng(size), MANY[:size]
    grid = grid_of(SYSTEMS[: max(size, 2)], names)
    rows = list(itertools.product(grid.systems, names))
    scores = pd.DataFrame(rows, columns=["system", "dataset"]).assign(value=numbers.uniform(0.1, 0.8, len(rows)))
    scores = scores.assign(low=scores["value"] - 0.03, high=scores["value"] + 0.03)
    counts = {f"d{i}": int(length) for i, length in enumerate(numbers.lognormal(4, 1, 300))}
    top = {system: {"q": list(numbers.choice([*counts], 50))} for system in grid.systems}
    qrels = {"q": {name: i % 3 for i, name in enumerate(counts)}}
    similarities = dict(zip(grid.systems, itertools.cycle(["cosine", "dot"]), strict=False))
    lengths = of_lengths(*(words.lengths(name, top, qrels, counts) for name in names), **similarities)
    pairs = [(a, b, float(numbers.uniform(0.05, 0.4))) for a, b in itertools.combinations(names, 2)]
    overlap = pd.DataFrame(pairs, columns=["dataset", "other", "similarity"])
    tables = {"lengths": lengths[0], "length_histogram": lengths[1], "overlap": overlap, "map": words.places(overlap)}
    across = pd.DataFrame({"metric": "ndcg@10", "over": "all", "mean": 0.5, "names": [", ".join(names)]})
    answers = SimpleNamespace(scores=scores.assign(metric="ndcg@10"), across=across)
    drawn = paper_figures.draw(grid, answers, tables)
    expected = {"effectiveness", "lengths_retrieved", "lengths_similarity", "lengths_judged"}
    expected |= {"wins", "overlap"} if size > 1 else set()
    assert drawn.keys() == expected | ({"overlap_map"} if size > 2 else set())
    for name, (figure, *_) in drawn.items():
        figure.draw_without_rendering()
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(figure)]
        page = figure.bbox.padded(2)
        ends = [(text, *box.min, *box.max) for text, box in boxes]
        assert not [of for of in ends if not page.contains(*of[1:3]) or not page.contains(*of[3:])], name
        covered = [
            (one, other)
            for (one, box), (other, place) in itertools.combinations(boxes, 2)
            if box.padded(-0.5).overlaps(place.padded(-0.5))
        ]
        assert not covered, name


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
