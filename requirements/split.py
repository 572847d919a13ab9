"""Split a resolved lock into the part that is the same everywhere and torch's CPU and CUDA builds.

pip cannot choose between torch's two builds under one name with hashes, and the CUDA build needs
packages of several GB that the CPU build does not. Usage: split.py RESOLVED CPU_WHEEL_SHA256
"""

import re
import sys
from pathlib import Path

CUDA = re.compile(r"(nvidia-|cuda-|triton)")


def main(resolved: str, cpu_hash: str) -> None:
    """Write lock.txt, torch-cpu.txt and torch-cuda.txt beside this file."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", Path(resolved).read_text().split("\n", 2)[2].rstrip())
    torch = next(block for block in blocks if block.startswith("torch=="))
    cuda = [block for block in blocks if CUDA.match(block)]
    rest = [block for block in blocks if block is not torch and block not in cuda]
    version = torch.split()[0].removeprefix("torch==")
    here = Path(__file__).parent
    (here / "lock.txt").write_text("\n".join(rest) + "\n")
    (here / "torch-cpu.txt").write_text(f"torch=={version}+cpu \\\n    --hash=sha256:{cpu_hash}\n")
    (here / "torch-cuda.txt").write_text("\n".join([torch, *cuda]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
