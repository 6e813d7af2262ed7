"""Landlock: files are read where that is allowed by path, by anybody, Linux 5.13 on."""

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import kernel

SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


def ruleset(hidden: Iterable[Path]) -> int:
    """Under which Python's own files can be read, and nothing else; a descriptor."""
    create = kernel.LANDLOCK_CREATE_RULESET
    version = kernel.system(create, None, ctypes.c_size_t(0), 1)
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)  # how many this kernel knows
    handled = kernel.Handled((1 << rights) - 1, 0b11 if version >= 4 else 0, 0)
    handled.scopes = 0b11 if version >= 6 else 0
    size = ctypes.c_size_t(8 if version < 4 else 16 if version < 6 else 24)
    made = kernel.system(create, ctypes.byref(handled), size, 0)
    libraries = {sysconfig.get_path(x) for x in ("stdlib", "platstdlib", "purelib")}
    libraries |= {path for path in sys.path if path}
    hidden = set(hidden)
    above = {folder for path in hidden for folder in path.parents}
    for path in map(Path, (*libraries, *SYSTEM)):
        _allow(made, path, kernel.READ_DIR)  # importing lists a folder first
        for part in _beside(path.resolve(), hidden, above):
            _allow(made, part, kernel.READ_FILE)
    for device in DEVICES:
        _allow(made, Path(device), kernel.READ_FILE)
    return made


def _beside(path: Path, hidden: set[Path], above: set[Path]) -> Iterator[Path]:
    """The path; where something hidden lies in it, all that lies beside that."""
    if hidden.isdisjoint((path, *path.parents)):
        if path not in above:
            yield path
        elif path.is_dir():
            for part in path.iterdir():
                yield from _beside(part, hidden, above)


def _allow(made: int, path: Path, access: int) -> None:
    if not path.exists() or (access == kernel.READ_DIR and not path.is_dir()):
        return
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = kernel.Beneath(access, place)
    kernel.system(kernel.LANDLOCK_ADD_RULE, made, 1, ctypes.byref(rule), 0)
    os.close(place)
