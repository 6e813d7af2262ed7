"""YAML with the lines in which things stand: for errors that say where.

Plans are YAML and not TOML, which Python 3.10 cannot read, nor JSON, which has no
comments: Gradescope's exports are YAML, so it has to be read anyway. Nothing is
constructed: what comes out are texts, lists and dicts.
"""

from dataclasses import dataclass

__all__ = ["Node", "decoded", "parse"]


@dataclass(frozen=True)
class Node:
    """A text, a list or a dict of nodes, and where it stands."""

    value: "str | list[Node] | dict[str, Node]"
    where: str

    def fail(self, reason: str) -> ValueError:
        """An error that says in which file and line."""
        return ValueError(f"{self.where}: {reason}")

    def text(self) -> str:
        """The text that this is; an error if it is none."""
        if not isinstance(self.value, str):
            raise self.fail("one value is required; got several")
        return self.value.strip()

    def items(self) -> "list[Node]":
        """The list that this is; an error if it is none."""
        if not isinstance(self.value, list):
            raise self.fail("a list is required, such as [ada, ben]")
        return self.value

    def fields(self) -> "dict[str, Node]":
        """The names and values that this is; an error if it is none."""
        if not isinstance(self.value, dict):
            raise self.fail("names and values are required, such as due: …")
        return self.value


def decoded(content: bytes, path: object) -> str:
    r"""The text in a file of UTF-8, with or without the mark at its beginning.

    Example:
        >>> from mha_lib.grade.lines import decoded
        >>> decoded(b"\xef\xbb\xbfa: 1", "plan.yaml")
        'a: 1'
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: save it as UTF-8") from None


def parse(text: str, path: object) -> Node:
    r"""The one document in a text of YAML; the path is for the errors.

    Example:
        >>> from mha_lib.grade.lines import parse
        >>> parse("a: 1\nb: [2, 3]", "plan.yaml").fields()["b"].where
        'plan.yaml, line 2'
    """
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path} needs PyYAML: pip install pyyaml") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    try:
        node = yaml.compose(text, Loader=loader)
        return Node({}, f"{path}, line 1") if node is None else _node(node, path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ValueError(f"{path}, line {line}: {error.problem}") from None
    except yaml.YAMLError as error:  # a character that it may not hold
        raise ValueError(f"{path}: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: it is nested too deeply") from None


def _node(given, path: object) -> Node:
    where = f"{path}, line {given.start_mark.line + 1}"
    if given.id == "scalar":
        return Node(given.value, where)
    if given.id == "sequence":
        return Node([_node(item, path) for item in given.value], where)
    fields: dict[str, Node] = {}
    for name, value in given.value:
        place = _node(name, path)
        node = _node(value, path)
        if place.text() in fields:
            raise place.fail(f"{place.text()!r} was there before")
        # Of a value on lines of its own, the line of its name says more.
        fields[place.text()] = Node(node.value, place.where)
    return Node(fields, where)
