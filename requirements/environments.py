"""Complete the pip sections of envs/*.yaml: below the packages that one names, what those require, as locked.

conda's pip takes no constraints from this folder, as Snakemake copies an environment's file elsewhere.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from resolve import CUDA

REQUIREMENTS = Path(__file__).parent
MARK = "      # Required by those above (make lock).\n"


def required(named: list[str], present: list[str]) -> list[str]:
    """Return the pins of all that some packages require on conda's Python, themselves included.

    Each is as the lock has it or, if the lock lacks it (what only pyserini requires), as ``present`` has it.
    """
    locks = "".join((REQUIREMENTS / f"{name}.txt").read_text() for name in ("lock", "dev", "torch-cuda"))
    pins = re.findall(r"^\S+==[^\\\n]+", locks, re.MULTILINE)
    locked = {pin.split("==")[0] for pin in pins}
    command = ["uv", "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate"]
    command += ["--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu", "-"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join([*pins, *(pin for pin in present if pin.split("==")[0] not in locked)]))
        constraints.flush()
        command += ["--constraint", constraints.name]
        return subprocess.run(
            command, input="\n".join(named), text=True, stdout=subprocess.PIPE, check=True
        ).stdout.split()


def main() -> None:
    """Write what stands below ``MARK`` in each file anew."""
    for path in sorted((REQUIREMENTS.parent / "envs").glob("*.yaml")):
        kept, _, below = path.read_text().partition(MARK)
        named = [pin.removesuffix("+cpu") for pin in re.findall(r"^ +- (\S+==\S+)", kept, re.MULTILINE)]
        pins = set(required(named, re.findall(r"\S+==\S+", below))) - set(named)
        if "+cpu" in kept:
            pins = {pin for pin in pins if not CUDA.match(pin)}
        path.write_text(kept + MARK + "".join(f"      - {pin}\n" for pin in sorted(pins)))


if __name__ == "__main__":
    main()
