"""A page of the report as a tree, so that tests can ask what is in it. Raises for HTML that is not well-formed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find(self, name: str = "", **attributes: str) -> list[Element]:
        """Elements below with this name and these attributes; ``class_`` is one of the classes."""
        wanted = {key.replace("_", "-"): value for key, value in attributes.items() if key != "class_"}
        style = attributes.get("class_")
        return [
            one
            for one in self.walk()
            if name in ("", one.name)
            and all(one.attributes.get(key) == value for key, value in wanted.items())
            and (style is None or style in one.attributes.get("class", "").split())
        ]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> ends <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"a processing instruction: {data}")


def read_page(html: str) -> Element:
    """The tree of a whole page, every element closed."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].name}> stays open"
    ids = [one.attributes["id"] for one in reader.root.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids)), "an id is given twice"
    return reader.root
