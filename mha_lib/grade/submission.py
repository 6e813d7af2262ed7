"""What was handed in: a file, read once, so that one content is graded and noted."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LARGEST", "SUFFIXES", "Submission", "read", "refused", "taken", "unfit"]

LARGEST = 20 << 20  # bytes of a file
SUFFIXES = (".ipynb", ".py")
NO_FILE = "it is no file, but a link or a folder"
NO_ZIP = (
    "a zip is opened if it is whole, has no password, is not too large and in no zip"
)


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
    known = b""
    try:
        status = path.lstat()
        known = f"{status.st_size} {status.st_mtime_ns}".encode()
        if not stat.S_ISREG(status.st_mode):
            return refused(known, NO_FILE)
        if why := unfit(path.suffix):
            return refused(known, why)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(LARGEST) if size <= LARGEST else b""
    except OSError as error:
        return refused(known, f"it cannot be read: {error.strerror}")
    if why := unfit(path.suffix, size):
        return refused(known, why)
    return taken(content, path.name)


def unfit(suffix: str, size: int = 0) -> str:
    """Why no file of this kind and size is graded; empty where one is."""
    if suffix.lower() not in SUFFIXES:
        due = "a notebook (.ipynb) or a .py file is required"
        return f"{due}; {NO_ZIP}" if suffix.lower() == ".zip" else due
    if size > LARGEST:
        return (
            f"a file may have {LARGEST >> 20} MB; this one has {size / (1 << 20):.0f}: "
            "clear the outputs of the notebook and hand it in again"
        )
    return ""


def taken(content: bytes, name: str) -> Submission:
    """What can be graded."""
    kind = Path(name).suffix.lower()[1:]
    return Submission(content, kind, hashlib.sha256(content).hexdigest())


def refused(known: bytes, problem: str) -> Submission:
    """``known`` is what tells it from another one, as nothing in it was read."""
    return Submission(b"", "", hashlib.sha256(known).hexdigest(), problem)
