"""Logger plugin of Snakemake (``--logger beirgrid``), which shows a run in place of Snakemake's own lines.

Each Snakemake of an environment imports this package when it looks for plugins. It imports beirgrid only when a run
starts: the Snakefile then has chosen which checkout of beirgrid that is.
"""

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent


def slurm_is_missing() -> bool:
    """Tell whether somebody asks for beirgrid's SLURM profile, and Snakemake's plugin for SLURM is not installed."""
    asked = [argument.removeprefix("--profile=") for argument in sys.argv[1:]]
    profiles = [Path(name).resolve() for name in (*asked, os.environ.get("SNAKEMAKE_PROFILE", ""))]
    ours = [path for path in profiles if path.parts[-2:] == ("profiles", "slurm")]
    ours = [path for path in ours if (path.parents[1] / "workflow" / "rules" / "common.smk").exists()]
    return bool(ours) and not find_spec("snakemake_executor_plugin_slurm")


# Snakemake imports this package before it reads its options, which it would answer with its usage of 100 lines.
if slurm_is_missing():
    install = f"{sys.executable} -m pip install snakemake-executor-plugin-slurm"
    sys.exit(f"beirgrid: error: SLURM needs a package that is not installed: {install}")


class LogHandler(LogHandlerBase):
    """Shows a run. Before one starts, it shows warnings and errors."""

    writes_to_file = needs_rulegraph = False
    has_filter = has_formatter = True

    def __post_init__(self) -> None:
        """Begin without a run."""
        self.screen: Any = None
        self.stream = sys.stdout if self.common_settings.stdout else sys.stderr

    @property
    def writes_to_stream(self) -> bool:
        """Whether nobody asked for more or less of Snakemake's own lines, which are shown otherwise."""
        asked = self.common_settings
        return not (asked.quiet or asked.verbose or asked.debug_dag or asked.printshellcmds)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record of Snakemake's log if it matters. An error of the screen does not end a run."""
        try:
            if self.screen:
                self.screen.show(record)
            elif self.writes_to_stream and getattr(record, "event", None) == LogEvent.WORKFLOW_STARTED:
                from beirgrid.tools.status import DryRun, Screen

                screen = DryRun if self.common_settings.dryrun else Screen
                self.screen = screen(self.stream, self.common_settings.nocolor)
            elif self.writes_to_stream and record.levelno >= logging.WARNING:
                print(record.getMessage(), file=self.stream, flush=True)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """End the screen."""
        if self.screen:
            self.screen.close()
        self.screen = None
        super().close()
