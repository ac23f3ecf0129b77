"""Texts of a pod that name a path in it, with the path of this machine in its place. Pure.

A pod mounts a claim at, say, /skipstone/lake; a process of an ordinary user cannot, so what it is told names the
claim's folder. Only what a path can be in is changed: of a request, where its Warehouse is; of Spark's properties, and
of variables, their values. What a user computes with never is, even if it looks like a path.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skipstone_core.contract.places import PlaceRef
from skipstone_operator.manifests.shape import PROPERTIES_FILE, REQUEST_FILE

#: What may stand before a path: nothing, a separator of a list, and these beginnings of addresses of files.
_BEFORE = (
    r"(?<![^\s,;=\"'\[\](){}|])"
    r"(?:file:(?://)?(?=/)|sqlite(?:\+\w+)?:///(?=/)|jdbc:sqlite:(?=/)|(?=/))"
)
#: What may stand behind it: nothing, what is below it, or a separator.
_BEHIND = r"(?=$|[\s,;=\"'\[\](){}|/?#&:])"
#: The part of a request that names the places of its Warehouse, and all that name places.
_PLACES = "warehouse"
_ALL_PLACES = (_PLACES, "sourceWarehouse")
#: Variables that hold words as a shell reads them.
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_WORDS = frozenset({SUBMIT_ARGUMENTS})


def has_bucket(request: str) -> bool:
    """Return whether a run's request names a place in a bucket, where its tables or sources are."""
    try:
        places = json.loads(request)[_PLACES]
        return any(place.get(name) for place in (places, *places.get("locations", ())) for name in PlaceRef.BUCKETS)
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


@dataclass(frozen=True)
class Mounts:
    """Where paths of a pod are on this machine: ``places`` from absolute path to absolute path.

    What is below ``root``, an absolute path of this machine, names its place already and stays.
    """

    places: Mapping[str, str]
    root: str

    def map_text(self, text: str) -> str:
        """``text`` with every path that is at or below a place of the pod replaced; what only looks alike stays."""
        return self._pattern.sub(self._replace, text)

    def map_variable(self, name: str, value: str) -> str:
        """The value of a variable."""
        if name not in _WORDS:
            return self.map_text(value)
        try:
            words = shlex.split(value)
        except ValueError:
            return value
        return shlex.join(map(self.map_text, words))

    def map_file(self, name: str, text: str) -> str:
        """The text of a ConfigMap's entry ``name``: a run's request, or its properties; others stay."""
        if name == REQUEST_FILE:
            return self._map_request(text)
        return self._map_properties(text) if name == PROPERTIES_FILE else text

    def _map_request(self, text: str) -> str:
        try:
            request = json.loads(text)
        except ValueError:
            return text
        if not isinstance(request, dict) or _PLACES not in request:
            return text
        mapped = {name: self._map_values(request[name]) for name in _ALL_PLACES if name in request}
        return json.dumps(request | mapped)

    def _map_values(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.map_text(value)
        if isinstance(value, list):
            return [self._map_values(item) for item in value]
        if isinstance(value, dict):
            return {name: self._map_values(item) for name, item in value.items()}
        return value

    def _map_properties(self, text: str) -> str:
        return "".join(self._map_property(line) for line in text.splitlines(keepends=True))

    def _map_property(self, line: str) -> str:
        """A line NAME=VALUE in which ``=`` and ``:`` of the name are escaped, and more of the value than need be."""
        name, separator, value = re.split(r"(?<!\\)(=)", line, maxsplit=1) if "=" in line else (line, "", "")
        plain = re.sub(r"\\([=:#! ])", r"\1", value)
        mapped = self.map_text(plain)
        return line if mapped == plain else f"{name}{separator}{mapped}"

    def _replace(self, match: re.Match[str]) -> str:
        kept = match["kept"]
        return match[0] if kept else f"{match['before']}{self.places[match['place']]}"

    @property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.places, key=len, reverse=True)
        places = "|".join(map(re.escape, longest_first))
        return re.compile(f"(?P<before>{_BEFORE})(?:(?P<kept>{re.escape(self.root)})|(?P<place>{places})){_BEHIND}")
