"""Targets of requests: which part of Iceberg's REST protocol one asks for, and whether its path is safe to send on.

Paths are judged and sent on as they came: an encoded character stays encoded, so that the catalog reads the same names
as this server. Must not know answers but refusals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from skipstone.serving.answers import bad_request

ROOT: Final = "/v1/"
#: Separates the levels of a namespace in a path, unless the catalog says otherwise.
UNIT_SEPARATOR: Final = "\x1f"
_TABLE = "namespaces/{namespace}/tables/{table}"


class Route(StrEnum):
    """The kinds of requests; the value is the path as the access log shows it."""

    CONFIG = "config"
    TOKENS = "oauth/tokens"
    NAMESPACES = "namespaces"
    NAMESPACE = "namespaces/{namespace}"
    TABLES = "namespaces/{namespace}/tables"
    TABLE = _TABLE
    CREDENTIALS = f"{_TABLE}/credentials"
    PLAN = f"{_TABLE}/plan"
    PLAN_ID = f"{_TABLE}/plan/{{plan-id}}"
    TASKS = f"{_TABLE}/tasks"
    METRICS = f"{_TABLE}/metrics"
    SIGN = "s3/sign"
    VIEWS = "namespaces/{namespace}/views"
    VIEW = "namespaces/{namespace}/views/{view}"
    OTHER = "other"


#: Routes that stand for themselves: nothing comes before them.
_WHOLE: Final = frozenset({Route.CONFIG, Route.TOKENS})
_PATTERNS: Final = tuple((route, tuple(route.value.split("/"))) for route in Route if route is not Route.OTHER)
_PRINTABLE = re.compile(rb"[\x21-\x7e]+")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1e\x7f-\x9f]")
#: How often a path may have been encoded by whoever wants to get past the checks.
_DECODINGS: Final = 3


@dataclass(frozen=True)
class Target:
    """The target of a request. ``prefix``: decoded; ``namespace``: decoded, with the separators of its levels.

    ``path``: as it came.
    """

    route: Route
    path: str
    prefix: str = ""
    namespace: str = ""
    table: str = ""

    @property
    def table_path(self) -> str:
        """The path of the table whose plan, tasks or other part the request asks for."""
        tail = len(Route.TABLE.value.split("/"))
        extra = len(self.route.value.split("/")) - tail
        return "/".join(self.path.split("/")[:-extra]) if extra else self.path

    def levels(self, separator: str = UNIT_SEPARATOR) -> tuple[str, ...]:
        """The levels of the namespace."""
        return tuple(self.namespace.split(separator))

    def identifier(self, separator: str = UNIT_SEPARATOR) -> tuple[str, ...]:
        """Levels of the namespace, and the table's name."""
        return (*self.levels(separator), self.table)


def read_target(raw_path: bytes) -> Target:
    """The target of a request for ``raw_path``, without the query.

    Raises Refused (400) for a path that this server and a catalog might read differently.
    """
    if not _PRINTABLE.fullmatch(raw_path) or not raw_path.startswith(ROOT.encode()):
        raise bad_request(f"the path of the request does not begin with {ROOT}: set the catalog's uri to this address")
    path = raw_path.decode("ascii")
    raw = path.removeprefix(ROOT).split("/")
    segments = [_decoded(segment) for segment in raw]
    for route, pattern in _PATTERNS:
        if _fits(segments, pattern, is_whole=route in _WHOLE):
            named = dict(zip(pattern, segments[-len(pattern) :], strict=True))
            prefix = "/".join(segments[: -len(pattern)])
            return Target(route, path, prefix, named.get("{namespace}", ""), named.get("{table}", ""))
    return Target(Route.OTHER, path)


def _fits(segments: list[str], pattern: tuple[str, ...], *, is_whole: bool) -> bool:
    if len(segments) < len(pattern) or (is_whole and len(segments) != len(pattern)):
        return False
    pairs = zip(segments[-len(pattern) :], pattern, strict=True)
    return all(part.startswith("{") or part == segment for segment, part in pairs)


def _decoded(segment: str) -> str:
    """One segment of a path. Raises Refused when it is empty, leads elsewhere or holds control characters."""
    if not segment or _ESCAPE.search(segment) or "\\" in segment:
        raise bad_request("the path of the request has an empty or a badly encoded part: encode names as URLs do")
    text = decoded = _unquoted(segment)
    for _ in range(_DECODINGS):
        _require_plain(text)
        text = unquote(text, errors="replace")
    return decoded


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise bad_request("the path of the request is not UTF-8: encode names as URLs do") from None


def _require_plain(text: str) -> None:
    parts = re.split(r"[/\\]", text)
    if any(part.partition(";")[0] in (".", "..") for part in parts):
        raise bad_request("the path of the request leads elsewhere by '.' or '..': name the table itself")
    if _CONTROL.search(text):
        raise bad_request("the path of the request has control characters: leave them out of names")
