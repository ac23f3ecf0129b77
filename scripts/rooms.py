"""The house as a picture: the rooms of each package by floors, read off the imports of its modules.

A room stands one floor above the highest room that it imports, so every import goes down. Rooms that import each other
would share a floor; the rules of imports forbid them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import grimp
from drawing import Area, box, picture, text

#: Packages from the top of the house to its ground; those of one row do not import each other.
STOREYS = (
    ("skipstone_local",),
    ("skipstone_cli",),
    ("skipstone_operator", "skipstone"),
    ("skipstone_report",),
    ("skipstone_core",),
)
_WIDTH, _MARGIN, _GAP, _HEIGHT, _ROOM_WIDTH = 1100, 14, 8, 28, 124
#: Rooms in one line of the picture.
_MOST = 4


@dataclass(frozen=True)
class _House:
    """A package and its rooms by floors, the highest first."""

    name: str
    floors: Sequence[Sequence[str]]

    @property
    def lines(self) -> list[Sequence[str]]:
        """The floors as lines of the picture; a long floor takes several."""
        return [floor[start : start + _MOST] for floor in self.floors for start in range(0, len(floor), _MOST)]

    @property
    def width(self) -> float:
        """The width of its frame."""
        return _line_width(max(len(line) for line in self.lines))


def rooms() -> str:
    """All packages with their rooms."""
    parts: list[str] = []
    top = float(_MARGIN)
    for storey in STOREYS:
        houses = [_house(package) for package in storey]
        height = 34 + (_HEIGHT + _GAP) * max(len(house.lines) for house in houses)
        left = (_WIDTH - sum(house.width for house in houses) - _MARGIN * (len(houses) - 1)) / 2
        for house in houses:
            parts += _drawn(house, Area(left, top, house.width, height))
            left += house.width + _MARGIN
        top += height + _MARGIN
    return picture(_WIDTH, int(top), "Packages and their rooms; every import goes down", parts)


def _drawn(house: _House, area: Area) -> Iterator[str]:
    yield box(area, (), "frame")
    yield text(area.x + area.width / 2, area.y + 20, house.name, "head")
    for number, line in enumerate(house.lines):
        x = area.x + (area.width - _line_width(len(line))) / 2 + _GAP
        y = area.y + 30 + (_HEIGHT + _GAP) * number
        for column, room in enumerate(line):
            kind = "main" if room.endswith("/") else "box"
            yield box(Area(x + (_ROOM_WIDTH + _GAP) * column, y, _ROOM_WIDTH, _HEIGHT), [room], kind)


def _line_width(count: int) -> float:
    return _GAP + (_ROOM_WIDTH + _GAP) * count


def _house(package: str) -> _House:
    graph = grimp.build_graph(package)
    children = sorted(child for child in graph.find_children(package) if not child.endswith(".__main__"))
    below = {
        above: [
            child
            for child in children
            if child != above and graph.direct_import_exists(importer=above, imported=child, as_packages=True)
        ]
        for above in children
    }
    heights = dict.fromkeys(children, 0)
    # a round lifts each room above what it imports; without circles, as many rounds as rooms settle all
    for _ in children:
        heights = {room: max((heights[child] + 1 for child in below[room]), default=0) for room in children}
    floors: dict[int, list[str]] = {}
    for room, height in heights.items():
        floors.setdefault(height, []).append(room)
    return _House(package, [[_named(room) for room in floors[height]] for height in sorted(floors, reverse=True)])


def _named(room: str) -> str:
    """A folder ends with a slash; else it is a module beside the rooms."""
    name = room.rpartition(".")[2]
    return f"{name}/" if find_spec(room).submodule_search_locations else name
