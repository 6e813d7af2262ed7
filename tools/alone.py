"""Run chapters as on Colab: each alone in an empty folder, without `mha_lib`.

    python -m tools.alone                         # every chapter and deeper page
    python -m tools.alone book/04_masks.ipynb

The set-up cell has to install `mha_lib` from the repository that it names. No
network is used: git is told to find that repository in a snapshot of this folder,
and pip builds with the setuptools that is here.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from tools import book

PACKAGE = ["mha_lib", "pyproject.toml", "setup.py", "README.md", "LICENSE"]
EXECUTE = "from nbclient.cli import main; main()"  # what `jupyter execute` runs


def snapshot(folder: Path) -> None:
    """Commit the package as it is now to a new repository in `folder`."""
    folder.mkdir()
    for name in PACKAGE:
        copy = shutil.copytree if (book.ROOT / name).is_dir() else shutil.copy
        copy(book.ROOT / name, folder / name)
    git = ["git", "-c", "user.name=book", "-c", "user.email=book@localhost"]
    _, branch = book.repository()
    for command in (["init", "-qb", branch], ["add", "."], ["commit", "-qm", "now"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


def python_without_mha_lib(folder: Path) -> Path:
    """Make an environment that has all that is installed here except `mha_lib`."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "mha_lib" not in entry.name and entry.name != "__pycache__":
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def offline(repository: Path) -> dict[str, str]:
    """The environment in which git finds the repository here and pip asks nobody."""
    url, _ = book.repository()
    settings = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": url,
        "GIT_TERMINAL_PROMPT": "0",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # 0 means: do not isolate
    }
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return inherited | settings


def run_alone(path: Path) -> tuple[bool, str]:
    """Execute one notebook; say whether it worked, and from where `mha_lib` came."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        snapshot(folder / "repository")
        python = python_without_mha_lib(folder / "python")
        empty = folder / "empty"
        empty.mkdir()
        shutil.copy(path, empty)
        done = subprocess.run(
            [python, "-c", EXECUTE, path.name],
            cwd=empty,
            env=offline(folder / "repository"),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return False, (done.stdout + done.stderr).strip().splitlines()[-1]
        return True, origin(folder / "python")


def origin(environment: Path) -> str:
    """The address from which pip installed `mha_lib` into an environment."""
    record = next(environment.rglob("mha_lib-*.dist-info/direct_url.json"), None)
    return json.loads(record.read_text())["url"] if record else "it was not installed"


def main(arguments: list[str]) -> int:
    failed = False
    for path in [Path(name) for name in arguments] or book.lessons():
        worked, message = run_alone(path)
        print(f"{path.stem}: {'mha_lib from' if worked else 'FAILED,'} {message}")
        failed |= not worked
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
