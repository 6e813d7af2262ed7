"""What other libraries' layers and other people's cases said of ours, when last asked.

    python -m evidence.judged    # asks them again; half a minute, into judged.json

To load them and to run their cases takes three times as long as all the rest of the
page *How we know it is right*, so the page shows a stored run, and says when the
library, the tests or one of the judges has changed since. `make test` runs the same
tests anew each time.
"""

import hashlib
import json
from collections import Counter
from importlib.metadata import version

import torch

from evidence import oracles, watch
from evidence.watch import ROOT, Comparison

RESULT = ROOT / "evidence" / "judged.json"
OPTIONS = "tests/library/test_dropin.py::test_output_weights_and_gradients"
EVERY = {OPTIONS: 8}  # torch's layer, option by option: each eighth case
JUDGES = ("torch", "onnx", "transformers", "keras", "jax", "flax", "x-transformers")
READ = (  # what a run depends on, beside the versions of the judges
    "mha_lib/*.py",
    "mha_lib/masks/*.py",
    "mha_lib/styles/*.py",
    "mha_lib/convert/*.py",
    "evidence/*.py",
    "tests/oracles/*.py",
    "tests/library/*.py",
)


def sources() -> str:
    """Changes with the library, with the tests, and with a judge's release."""
    state = hashlib.sha256("\n".join(map(version, JUDGES)).encode())
    for pattern in READ:
        for path in sorted(ROOT.glob(pattern)):
            state.update(path.relative_to(ROOT).as_posix().encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def ask() -> dict:
    """Run all of it, here and now.

    Raises:
        AssertionError: a test failed; it is named.
    """
    files = [oracles.tests_of(key) for key in oracles.COUNTS]
    covered = sorted({spot.seen_by for spot in oracles.BLIND_SPOTS})
    judged = watch.run(*files, *covered, every=EVERY)
    from evidence import empty_rows  # late: it loads Keras and JAX

    return {
        "sources": sources(),
        "versions": {name: version(name) for name in JUDGES},
        "tests": len(judged.passed),
        "names": sorted({test.split("[")[0] for test in judged.passed}),
        "options": sum(test.startswith(OPTIONS) for test in judged.passed),
        "comparisons": {
            place: summary([x for x in judged.comparisons if x.test.startswith(place)])
            for place in (*files, OPTIONS)
        },
        "empty rows": [list(row) for row in empty_rows.rows()],  # as JSON has them
    }


def summary(comparisons: list[Comparison]) -> dict:
    """How many numbers were compared; for each dtype, how often a distance came."""
    distances = {}
    for x in comparisons:
        dtype = str(x.dtype).removeprefix("torch.")
        distances.setdefault(dtype, Counter())[f"{x.distance:.1e}"] += 1
    return {"numbers": sum(x.numbers for x in comparisons), "distances": distances}


def stored() -> dict:
    """What `python -m evidence.judged` found when it was run last."""
    return json.loads(RESULT.read_text(encoding="utf-8"))


def points(distances: dict[str, dict[str, int]]) -> list[tuple[float, torch.dtype]]:
    """A distance, to two digits, and the dtype of each comparison in a summary."""
    return [
        (float(distance), getattr(torch, dtype))
        for dtype, found in distances.items()
        for distance, times in found.items()
        for _ in range(times)
    ]


def is_stale() -> bool:
    """Whether the library, a test or a judge has changed since the stored run."""
    return stored()["sources"] != sources()


def main() -> None:
    RESULT.write_text(json.dumps(ask(), ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
