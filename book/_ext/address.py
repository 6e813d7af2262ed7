"""Where the book's repository and pages are: nowhere before `make stamp`."""

import re

from sphinx.config import Config

UNSTAMPED = (
    "YOUR_NAME"  # the owner that `_config.yml` names until somebody does
)
REPOSITORY = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)")


def owner_and_name(config: Config) -> tuple[str, str] | None:
    """Of the repository, if it has an address."""
    url = config.html_theme_options.get("repository_url", "")
    found = REPOSITORY.fullmatch(url)
    return found.groups() if found and found[1] != UNSTAMPED else None


def pages(config: Config) -> str:
    """Where GitHub Pages shows the book; empty if that is not known."""
    if not (repository := owner_and_name(config)):
        return ""
    owner, name = repository
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" + (f"{name}/" if name.lower() != host else "")


def colab(config: Config, notebook: str) -> str:
    """Where Colab opens a notebook of the book; empty if that is not known."""
    if not (repository := owner_and_name(config)):
        return ""
    branch = config.html_theme_options["repository_branch"]
    where = "/".join((*repository, "blob", branch, notebook))
    return f"https://colab.research.google.com/github/{where}"
