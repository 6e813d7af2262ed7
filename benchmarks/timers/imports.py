"""What `import mha_lib` adds to `import torch`. Goal: under 10 %.

    python -m benchmarks.timers.imports

Fresh processes, the two kinds in turn, so that a busy machine slows both alike.
"""

import subprocess
import sys
import time
from statistics import median

ROUNDS = 15


def seconds(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def main() -> None:
    seconds("import torch, mha_lib")  # fills the disk cache
    pairs = [
        (seconds("import torch"), seconds("import torch, mha_lib"))
        for _ in range(ROUNDS)
    ]
    ratio = median(ours / torch for torch, ours in pairs)
    print(f"import torch: {median(torch for torch, _ in pairs):.2f} s")
    print(f"import torch, mha_lib: {ratio:.3f} times that (goal: under 1.10)")


if __name__ == "__main__":
    main()
