"""What Snakemake prints of a grid: lists of hundreds of files are cut."""

from __future__ import annotations

from collections.abc import Iterable
from logging import Logger, LogRecord

# Names of a list that are printed.
_SHOWN = 3
# Partial tables stand where the rules write the final ones, which Snakemake remarks on.
_REMARK = "Warning: the following output files of rule"


def shorten(logger: Logger) -> None:
    """Let Snakemake's logger print a few files of each list. Filters that were added before get the whole lists."""
    logger.addFilter(_shorten)


def _shorten(record: LogRecord) -> bool:
    told = vars(record)
    if "reason" in told:
        told["reason"] = _few_reasons(str(told["reason"]))
    for files in ("input", "output"):
        if isinstance(told.get(files), Iterable):
            told[files] = few(list(map(str, told[files])))
    return not (str(record.msg).startswith(_REMARK) and "results/grids/" in str(record.msg))


def _few_reasons(text: str) -> str:
    """Shorten a text such as ``Missing output files: a, b, c, d; Params have changed``."""
    return "; ".join(", ".join(few(reason.split(", "))) for reason in text.split("; "))


def few(names: list[str]) -> list[str]:
    """Return the first names of a list, and how many more there are."""
    return names if len(names) <= _SHOWN + 1 else [*names[:_SHOWN], f"and {len(names) - _SHOWN} more"]
