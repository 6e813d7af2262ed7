"""Nothing is imported from where the grader is started, nor from the submissions.

`python -m` puts the working directory first on the import path, and so does an empty
place in PYTHONPATH: a student's torch.py would run with your rights. This comes before
every other import, and needs nothing but what each Python has loaded already.
"""

import os
import sys

ROOT = os.path.realpath(os.path.join(__file__, *[os.pardir] * 3))


def forget() -> None:
    """Take these places off the import path, of this process and of its children."""
    words = [os.path.realpath(word) for word in sys.argv[1:]]
    named = [x if os.path.isdir(x) else os.path.dirname(x) for x in words
             if os.path.exists(x)]  # fmt: skip
    sys.path[:] = [place for place in sys.path if _kept(place, named)]
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [os.path.abspath(place) for place in places if _kept(place, named)]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)


def _kept(place: str, named: list[str]) -> bool:
    place = os.path.realpath(place or os.curdir)
    if place == ROOT:  # what is imported from there is ours
        return True
    installed = _below(place, [sys.prefix, sys.base_prefix])
    return place != os.getcwd() and (installed or not _below(place, named))


def _below(place: str, folders: list[str]) -> bool:
    return any(f"{place}{os.sep}".startswith(f"{x}{os.sep}") for x in folders)
