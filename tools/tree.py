"""The project's files apart from what was built: what git has, or would add."""

import shutil
import subprocess
from pathlib import Path

from tools import book


def files() -> list[str]:
    """Their paths from the root; files that were deleted are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=book.ROOT, capture_output=True, check=True)
    names = filter(None, found.stdout.decode().split("\0"))
    return sorted(name for name in names if (book.ROOT / name).is_file())


def copy(folder: Path) -> Path:
    """Copy them as they are now."""
    for name in files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(book.ROOT / name, folder / name)
    return folder
