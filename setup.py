"""Add to wheels what the package reads beside its modules: the workflow, its configuration, and the commit."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "workflow"))  # a build has no installed package
from beirgrid.core import checkout  # noqa: E402

# What stands in `beirgrid/share` of a wheel as it stands in a checkout. MANIFEST.in names the same for archives.
SHARED = ["Snakefile", "CITATION.cff", "config", "docs", "envs", "profiles", "workflow/Snakefile"]
SHARED += [f"workflow/{folder}" for folder in ("report", "resources", "rules")]


def keep_commit(folder: Path) -> None:
    """Write the commit of this checkout, if it is known."""
    if commit := checkout.commit(HERE):
        (folder / checkout.COMMIT).write_text(f"{commit}\n", encoding="utf-8")


class Package(build_py):
    """Copy the shared files into the package, unless it stays where it is (an editable install)."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if self.editable_mode:
            return
        share = Path(self.build_lib, "beirgrid", "share")
        shutil.rmtree(share, ignore_errors=True)
        for name in SHARED:
            if (HERE / name).is_dir():
                shutil.copytree(HERE / name, share / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (share / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(HERE / name, share / name)
        keep_commit(share)


class Archive(sdist):
    """Keep the commit in a source archive, which has no history."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the folder of the archive."""
        super().make_release_tree(base_dir, files)
        keep_commit(Path(base_dir))


setup(cmdclass={"build_py": Package, "sdist": Archive})
