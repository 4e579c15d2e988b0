"""Pages that say which tests hold what: what they link to, and whether it is there."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[`?(?P<label>[^]`]+)`?\]\((?P<target>[^)#]+)\)(?P<marked> †)?")


@dataclass(frozen=True)
class Link:
    label: str
    path: Path
    marked: bool
    """As one that is proven to fail."""

    @property
    def is_test(self) -> bool:
        return self.label.startswith("test_") and not self.label.endswith(".py")

    @property
    def node(self) -> str:
        return f"{self.path.relative_to(ROOT)}::{self.label}"

    @property
    def is_there(self) -> bool:
        """A test that is named is defined where it is said to be; of another link, its file exists."""
        return self.label in defined(self.path) if self.is_test else self.path.exists()


class Page:
    def __init__(self, name: str, head: str) -> None:
        """Of docs; `head` begins each of its tables."""
        self.path = ROOT / "docs" / name
        self._head = head

    def links(self, text: str | None = None) -> list[Link]:
        """Those of a part; of the whole page, but for those that lead out of it."""
        found = LINK.finditer(self.path.read_text() if text is None else text)
        return [
            Link(one["label"], (self.path.parent / one["target"]).resolve(), bool(one["marked"]))
            for one in found
            if not one["target"].startswith("https:")
        ]

    def rows(self) -> Iterator[Sequence[str]]:
        for line in self.path.read_text().splitlines():
            if line.startswith("|") and line != self._head and not set(line) <= set("|- "):
                yield [cell.strip() for cell in line.strip("|").split("|")]


@cache
def defined(module: Path) -> frozenset[str]:
    """What a module defines, and its classes."""
    return frozenset(_names(ast.parse(module.read_text()), ""))


def _names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for child in node.body:
        match child:
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from _names(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case _:
                pass
