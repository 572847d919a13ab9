"""beirgrid: a Snakemake workflow that reproduces the BEIR retrieval benchmark.

``evaluate`` and ``grid`` run the workflow. The other functions work on files of the workflow and on files of your own,
without Snakemake. ``import beirgrid`` is quick: a function imports its libraries on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.evaluator import Evaluator as Evaluator
    from .api.notebook import evaluate as evaluate
    from .api.notebook import grid as grid
    from .core.checkout import __version__ as __version__
    from .encoders import open_encoder as open_encoder
    from .results.scores import load_scores as load_scores
    from .runs.metrics import evaluate_run as evaluate_run
    from .tools.export import ranx_runs as ranx_runs

_MODULES = {
    "__version__": "core.checkout",
    "Evaluator": "api.evaluator",
    "evaluate": "api.notebook",
    "grid": "api.notebook",
    "evaluate_run": "runs.metrics",
    "load_scores": "results.scores",
    "ranx_runs": "tools.export",
    "open_encoder": "encoders",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
