"""Complete the pip sections of envs/*.yaml: below the packages that one names, what those require, as locked.

conda's pip takes no constraints from this folder, as Snakemake copies an environment's file elsewhere.
"""

import re
import subprocess
from pathlib import Path

from resolve import CUDA

REQUIREMENTS = Path(__file__).parent
MARK = "      # Required by those above (make lock).\n"


def required(named: list[str]) -> list[str]:
    """Return the pins of all that some packages require on conda's Python, themselves included."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", "3.11"]
    command += ["--python-platform", "x86_64-unknown-linux-gnu"]
    for lock in ("lock", "torch-cuda"):
        command += ["--constraint", str(REQUIREMENTS / f"{lock}.txt")]
    pins = "\n".join(named)
    return subprocess.run([*command, "-"], input=pins, text=True, stdout=subprocess.PIPE, check=True).stdout.split()


def main() -> None:
    """Write what stands below ``MARK`` in each file anew."""
    for path in sorted((REQUIREMENTS.parent / "envs").glob("*.yaml")):
        kept = path.read_text().partition(MARK)[0]
        named = re.findall(r"^ +- (\S+==\S+)", kept, re.MULTILINE)
        pins = set(required([pin.removesuffix("+cpu") for pin in named])) - {pin.removesuffix("+cpu") for pin in named}
        if any(pin.endswith("+cpu") for pin in named):
            pins = {pin for pin in pins if not CUDA.match(pin)}
        path.write_text(kept + MARK + "".join(f"      - {pin}\n" for pin in sorted(pins)))


if __name__ == "__main__":
    main()
