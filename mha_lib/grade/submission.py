"""What was handed in: a file, read once, so that one content is graded and noted."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LARGEST", "SUFFIXES", "Submission", "read"]

LARGEST = 20 << 20  # bytes of a file
SUFFIXES = (".ipynb", ".py")


@dataclass(frozen=True)
class Submission:
    """The content of a file, or why it cannot be graded.

    Attributes:
        content: its bytes; none where there is a problem.
        kind: "ipynb" or "py"; empty where there is a problem.
        digest: tells contents apart; of a file that was not read, its size and time do.
        problem: in words; empty where there is none.
    """

    content: bytes
    kind: str
    digest: str
    problem: str = ""


def read(path: os.PathLike | str) -> Submission:
    """Open a file once, and keep what was in it.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from mha_lib.grade.submission import read
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "ada.py")
        ...     _ = path.write_text("x = 1")
        ...     submission = read(path)
        >>> submission.content, submission.kind, submission.problem
        (b'x = 1', 'py', '')
    """
    path = Path(path)
    kind = path.suffix.lower()
    known = b""
    try:
        status = path.lstat()
        known = f"{status.st_size} {status.st_mtime_ns}".encode()
        if not stat.S_ISREG(status.st_mode):
            return _refused(known, "it is no file, but a link or a folder")
        if kind not in SUFFIXES:
            return _refused(known, "a notebook (.ipynb) or a .py file is required")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(LARGEST) if size <= LARGEST else b""
    except OSError as error:
        return _refused(known, f"it cannot be read: {error.strerror}")
    if size > LARGEST:
        most, came = LARGEST >> 20, size / (1 << 20)
        return _refused(
            known,
            f"a file may have {most} MB; this one has {came:.0f}: clear the outputs "
            "of the notebook and hand it in again",
        )
    return Submission(content, kind[1:], hashlib.sha256(content).hexdigest())


def _refused(known: bytes, problem: str) -> Submission:
    """``known`` is what tells it from another one, as nothing in it was read."""
    return Submission(b"", "", hashlib.sha256(known).hexdigest(), problem)
