"""The methods of fusion and the norms of scores, as ranx names them (Bassani and Romelli, 2022)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, pairwise
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, WithJsonSchema

from ..core.errors import nearest

# The values that ranx tries for a parameter between 0 and 1.
_HUNDREDTHS = tuple(number / 100 for number in range(1, 101))
# Weights that are tuned are tenths.
_TENTHS = 10
NORMS = ("min-max", "zmuv", "rank", "max", "sum", "borda", "min-max-inverted")
# Norms that do not keep the order of documents.
_REORDERING = ("borda", "min-max-inverted")


class Method(NamedTuple):
    """A method of fusion.

    Attributes:
        parameter: its parameter, which a system may give or tune.
        values: the values that tuning tries; those of weights follow from the number of runs.
        default: the value without tuning; None if there is none, and for weights, which are then equal.
        trained: whether it estimates probabilities on judged queries.
        reads: what it reads of a run. Ranks have no norm.
    """

    parameter: str = ""
    values: Sequence[float] = ()
    default: float | None = None
    trained: bool = False
    reads: Literal["scores", "ranks", "both"] = "scores"

    @property
    def norms(self) -> tuple[str, ...]:
        """The norms that the method takes."""
        if self.reads == "scores":
            return NORMS
        return () if self.reads == "ranks" else tuple(norm for norm in NORMS if norm not in _REORDERING)

    def candidates(self, runs: int) -> list[Any]:
        """Return the values that tuning tries for a number of runs; one, None, for a method without parameter.

        Weights are all tenths that sum to 1, the most even ones first: so many stars with ``runs - 1`` bars between.
        """
        if self.parameter != "weights":
            return [*self.values] or [None]
        places = combinations(range(_TENTHS + runs - 1), runs - 1)
        counts = [tuple(end - start - 1 for start, end in pairwise((-1, *bars, _TENTHS + runs - 1))) for bars in places]
        counts.sort(key=lambda point: sum(share * share for share in point))
        return [tuple(share / _TENTHS for share in point) for point in counts]


METHODS = {
    "rrf": Method("k", range(10, 101, 10), 60, reads="ranks"),
    "wsum": Method("weights"),
    "sum": Method(),
    "mnz": Method(),
    "gmnz": Method("gamma", _HUNDREDTHS),
    "anz": Method(),
    "max": Method(),
    "min": Method(),
    "med": Method(),
    "mixed": Method("weights"),
    "wmnz": Method("weights"),
    "isr": Method(reads="ranks"),
    "log_isr": Method(reads="ranks"),
    "logn_isr": Method("sigma", _HUNDREDTHS, 0.01, reads="ranks"),
    "rbc": Method("phi", _HUNDREDTHS, reads="ranks"),
    "bordafuse": Method(reads="ranks"),
    "w_bordafuse": Method("weights", reads="ranks"),
    "condorcet": Method(reads="ranks"),
    "w_condorcet": Method("weights", reads="ranks"),
    "bayesfuse": Method(trained=True, reads="ranks"),
    "mapfuse": Method(trained=True, reads="ranks"),
    "posfuse": Method(trained=True, reads="ranks"),
    "probfuse": Method("n_segments", range(1, 101), trained=True, reads="ranks"),
    "segfuse": Method(trained=True, reads="both"),
    "slidefuse": Method("w", range(1, 101), trained=True, reads="ranks"),
}
PARAMETERS = tuple(dict.fromkeys(method.parameter for method in METHODS.values() if method.parameter))


def _named(kind: str, name: str, known: Collection[str]) -> str:
    if name not in known:
        raise ValueError(f"there is no {kind} {name!r}{nearest(name, known, 0.5)} (known: {', '.join(known)})")
    return name


FusionName = Annotated[
    str, AfterValidator(lambda name: _named("method", name, METHODS)), WithJsonSchema({"enum": [*METHODS]})
]
Norm = Annotated[str, AfterValidator(lambda name: _named("norm", name, NORMS)), WithJsonSchema({"enum": [*NORMS]})]
