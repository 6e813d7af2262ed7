"""Everything that was handed in, by name: files, folders of them, zips of them.

A zip is never unpacked: its members are read where they are, each at most as large as
a file may be, so that nothing of it reaches the disk. What lies in a folder or in a zip
may be a zip again, as many students hand one in; one that holds a third is not opened.
"""

import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mha_lib.grade import lines, submission
from mha_lib.grade.submission import Submission

__all__ = ["Member", "is_zip", "read", "submissions", "text"]

BESIDE = ("__pycache__", "__MACOSX")  # folders that other programs leave
MOST = 100_000  # members of a zip
LARGEST = 1 << 30  # bytes that a zip may claim to hold, unless it is large itself
RATIO = 100  # between what it claims and its own size
INNER = (1_000, 200 << 20, 10)  # the same three of a zip that somebody handed in
OUTSIDE = re.compile(r"^/|^[A-Za-z]:|\\|(^|/)\.\.(/|$)")


@dataclass(frozen=True)
class Member:
    """A file in a zip.

    Attributes:
        archive: the zip, which may be in another one.
        name: of the file in it.
    """

    archive: "Path | Member"
    name: str

    def __str__(self) -> str:
        return f"{self.name} in {self.archive}"

    @property
    def root(self) -> Path:
        """The zip on the disk."""
        outer = self.archive
        return outer.root if isinstance(outer, Member) else outer


def submissions(places: Iterable[Path]) -> dict[str, Path | Member]:
    """Files, all files below folders but for hidden ones, and those in zips, by name.

    Links, and folders that cannot be listed, are among them: they are told so.

    Raises:
        ValueError: a place is missing, two files have one name, or a zip is broken,
            holds what cannot be, or would become too large.
    """
    found: dict[str, Path | Member] = {}
    for start in places:
        if not start.exists():
            raise ValueError(f"there is no file or folder {start}")
        for name, file in _in(start):
            if name in found:
                raise ValueError(
                    f"names must differ; got {found[name]} and {file}: rename one, or "
                    "put both into folders and give the folder above"
                )
            found[name] = file
    return dict(sorted(found.items()))


def _in(start: Path) -> Iterator[tuple[str, Path | Member]]:
    if start.is_dir():
        for path in _below(start):
            yield from _inside(path.relative_to(start).as_posix(), path)
    elif is_zip(start.name):
        for name in _members(start, MOST, LARGEST, RATIO):
            yield from _inside(PurePosixPath(name).as_posix(), Member(start, name))
    else:
        yield start.name, start


def is_zip(name: str) -> bool:
    """Whether this is the name of a zip."""
    return PurePosixPath(name).suffix.lower() == ".zip"


def _inside(name: str, file: Path | Member) -> Iterator[tuple[str, Path | Member]]:
    """The files of a zip that was handed in; itself, if none of it can be read."""
    names = []
    if is_zip(name) and _may_be_opened(file):
        with suppress(ValueError):  # its report will say so
            names = list(_members(file, *INNER))
    if not names:
        yield name, file
    for inner in names:
        yield f"{name}/{PurePosixPath(inner).as_posix()}", Member(file, inner)


def _below(start: Path) -> Iterator[Path]:
    """Without recursion, as folders may be deeper than that goes."""
    with os.scandir(start):
        folders = [start]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as inside:
                entries = list(inside)
        except OSError:
            yield folder
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield folder / entry.name
            elif entry.name not in BESIDE:
                folders.append(folder / entry.name)


# --- zips ---------------------------------------------------------------------------

UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),  # what is in it
    *(EOFError, OSError),  # what is left of it
)


def _may_be_opened(file: Path | Member) -> bool:
    """A file, no link and no pipe; in a zip, none that would fill the memory."""
    if isinstance(file, Path):
        return stat.S_ISREG(file.lstat().st_mode)
    with _opened(file.archive) as archive:
        return archive.getinfo(file.name).file_size <= submission.LARGEST


def _opened(file: Path | Member) -> zipfile.ZipFile:
    """A zip on the disk, or one in a zip, which is held in memory."""
    if isinstance(file, Path):
        return zipfile.ZipFile(file)
    with _opened(file.archive) as outer:
        return zipfile.ZipFile(io.BytesIO(outer.read(file.name)))


def _members(path: Path | Member, most: int, largest: int, ratio: int) -> Iterator[str]:
    """The files of a zip that is whole, is no bomb and stays in its place.

    Args:
        path: the zip.
        most: how many files it may have.
        largest: bytes that it may claim to hold, unless it is large itself.
        ratio: between what it claims and its own size.
    """
    try:
        with _opened(path) as archive:
            infos = archive.infolist()
            size = archive.fp.seek(0, os.SEEK_END)
            claimed = sum(info.file_size for info in infos)
            if len(infos) > most or claimed > max(largest, ratio * size):
                raise ValueError(
                    f"{path} claims {len(infos)} files of {claimed >> 20} MB in all, "
                    "which looks like a zip bomb: unpack it where that does no harm, "
                    "give the folder"
                )
            for info in infos:
                _check_member(path, info)
            broken = archive.testzip()
    except UNREADABLE as error:
        raise ValueError(f"{path} is a broken zip: {error}; export it again") from None
    if broken is not None:
        raise ValueError(f"{path} is a broken zip, at {broken!r}; export it again")
    for info in infos:
        parts = PurePosixPath(info.filename).parts
        hidden = any(part.startswith(".") or part in BESIDE for part in parts)
        if not info.is_dir() and not hidden:
            yield info.filename


def _check_member(path: Path | Member, info: zipfile.ZipInfo) -> None:
    name = info.filename
    if OUTSIDE.search(name):
        raise ValueError(f"{path} holds a path that leads out of it: {name!r}")
    if info.flag_bits & 1:
        raise ValueError(f"{path} holds {name!r} under a password; export it without")


def read(file: Path | Member) -> Submission:
    """A submission, from the disk or from a zip."""
    if isinstance(file, Path):
        return submission.read(file)
    with _opened(file.archive) as archive:
        info = archive.getinfo(file.name)
        known = f"{info.file_size} {info.CRC}".encode()
        if stat.S_ISLNK(info.external_attr >> 16):
            return submission.refused(known, submission.NO_FILE)
        if why := submission.unfit(PurePosixPath(file.name).suffix, info.file_size):
            return submission.refused(known, why)
        return submission.taken(archive.read(info), file.name)


def text(file: Path | Member) -> str:
    """The text of a file that is no submission, but says something of them."""
    if isinstance(file, Path):
        return lines.decoded(file.read_bytes(), file)
    with _opened(file.archive) as archive:
        return lines.decoded(archive.read(file.name), file)
