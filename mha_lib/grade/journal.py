"""What a run has finished, so that a killed one goes on where it was.

The journal is a file to which one line is added for each finished submission, in one
write. A line that a kill cut short is dropped. All other outputs are made from it, and
replaced as a whole.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Journal", "write"]


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


class Journal:
    """Rows by name, kept in a file; the last row of a name counts.

    Args:
        path: the file; it is made, readable for its owner alone, where there is none.
        header: what all rows have in common; a journal that exists keeps its own.
        new: start again.

    Raises:
        ValueError: the file belongs to another assignment.
        BlockingIOError: another run is writing it.
    """

    def __init__(self, path: Path, header: dict, new: bool = False):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = open(handle, "r+b", buffering=0)  # noqa: SIM115 - until close()
        self._places: dict[str, tuple[str, int]] = {}  # name -> digest, offset
        try:
            _lock(self._file, path)
            if new:
                self._file.truncate(0)
            self.header = self._read()
            if self.header is None:
                self.header = header
                self._file.write(_line(header))
            elif self.header["assignment"] != header["assignment"]:
                raise ValueError(
                    f"{path} belongs to another assignment, or to another version of "
                    "it; give another output, or start again with --again"
                )
        except BaseException:
            self.close()
            raise

    def _read(self) -> dict | None:
        """The header, if there is one; notes where names stand, cuts off a torn end."""
        header, offset = None, 0
        self._file.seek(0)
        with open(os.dup(self._file.fileno()), "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    self._file.truncate(offset)
                    break
                row = json.loads(line)
                if header is None:
                    header = row
                else:
                    self._places[row["submission"]] = (row["digest"], offset)
                offset += len(line)
        return header

    def digest(self, name: str) -> str | None:
        """Of the content that was finished under this name; None if none was."""
        return self._places.get(name, (None, 0))[0]

    def add(self, row: dict) -> None:
        """Note a finished submission."""
        offset = self._file.seek(0, os.SEEK_END)
        self._file.write(_line(row))
        self._places[row["submission"]] = (row["digest"], offset)

    def rows(self) -> Iterator[dict]:
        """The last row of each name, in order of the names."""
        with open(os.dup(self._file.fileno()), "rb") as lines:
            for name in sorted(self._places):
                lines.seek(self._places[name][1])
                yield json.loads(lines.readline())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(row: dict) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _lock(file, path: Path) -> None:
    """Keep a second run out; where there are no such locks, trust the user."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(
            f"another run is writing {path}: wait for it, or give another output"
        ) from None
