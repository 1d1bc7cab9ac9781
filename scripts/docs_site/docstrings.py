"""An extension of griffe: what docstrings and decorators of peerlane mean on the pages of the Python reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_PAGES = Path(__file__).parents[2] / "docs" / "api"
_ROLE = re.compile(r":(?:meth|class|func|mod|attr|exc|data):`(~?)([^`]+)`")
_ATTRIBUTES = re.compile(r"\n\nAttributes\n-{10}\n(.*?)(?=\n\n|\Z)", re.DOTALL)
_COMMENT = re.compile(r"#: (.+)$")
_DIRECTIVE = re.compile(r"^::: (peerlane\.[\w.]+)$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Makes links of roles such as ``:meth:`Device.allocate```, and attributes of what ``declared`` decorates."""

    def __init__(self) -> None:
        shown = [
            name for page in sorted(_PAGES.glob("*.md")) for name in _DIRECTIVE.findall(page.read_text())
        ]
        self._shown = {name.removeprefix("peerlane."): name for name in shown}

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show a getter that ``declared`` decorates as an attribute."""
        if any(str(each.value) == "declared" for each in func.decorators) and func.parent is not None:
            attribute = griffe.Attribute(
                func.name,
                lineno=func.lineno,
                endlineno=func.endlineno,
                annotation=func.returns,
                docstring=func.docstring,
                parent=func.parent,
            )
            attribute.labels |= {"property"}
            func.parent.set_member(func.name, attribute)
            self._link(attribute)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the comment behind a member of an enumeration, ``#: what it means``, for its docstring."""
        if attr.docstring is None and attr.lineno is not None and isinstance(attr.filepath, Path):
            comment = _COMMENT.search(attr.lines_collection[attr.filepath][attr.lineno - 1])
            if comment is not None:
                text = f"{comment[1][0].upper()}{comment[1][1:]}.".replace("``", "`")
                attr.docstring = griffe.Docstring(text, parent=attr)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show how programs make objects of a class, and what has a docstring of its own only once."""
        constructor, begun = cls.members.get("__new__"), cls.members.get("__init__")
        if isinstance(constructor, griffe.Function) and begun is None:
            cls.set_member("__init__", constructor)
        if isinstance(begun, griffe.Function) and [each.name for each in begun.parameters] == ["self", "_"]:
            cls.del_member("__init__")  # it raises: programs do not make these objects
        if cls.docstring is not None:
            cls.docstring.value = _ATTRIBUTES.sub(
                lambda match: "" if _documented(cls, match[1]) else match[0], cls.docstring.value
            )

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Make links of a docstring's roles."""
        self._link(obj)

    def _link(self, obj: griffe.Object) -> None:
        if obj.docstring is not None:
            inside = obj if obj.is_class else obj.parent
            obj.docstring.value = _ROLE.sub(lambda match: self._linked(match, inside), obj.docstring.value)

    def _linked(self, match: re.Match[str], inside: griffe.Object | None) -> str:
        name = match[2]
        text = name.rpartition(".")[2] if match[1] else name
        owner, _, member = name.removeprefix("peerlane.").rpartition(".")
        if owner in self._shown:
            return f"[`{text}`][{self._shown[owner]}.{member}]"
        if member in self._shown and not owner:
            return f"[`{text}`][{self._shown[member]}]"
        if not owner and inside is not None and inside.name in self._shown and member in inside.members:
            return f"[`{text}`][{self._shown[inside.name]}.{member}]"
        return f"`{text}`"


def _documented(cls: griffe.Class, section: str) -> bool:
    """Tell whether each attribute of a docstring's section has a docstring of its own."""
    names = [
        name
        for line in section.splitlines()
        if not line.startswith(" ")
        for name in line.partition(" : ")[0].split(", ")
    ]
    return all(name in cls.members and cls.members[name].has_docstring for name in names)
