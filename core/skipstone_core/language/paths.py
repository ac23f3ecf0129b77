"""Names of columns, and of fields within columns, as resources write them: ``after.id`` is the field id of after.

Called where names become columns. A name that is a column as it stands means that column; only then is it a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
#: How many names a sentence lists.
_SHOWN = 5


def join_path(parts: Sequence[str]) -> str:
    """The name of a column (one part), or of a field within it; parts with a dot or backtick are quoted in paths."""
    if len(parts) == 1:
        return parts[0]
    return ".".join(f"`{part.replace('`', '``')}`" if set(part) & {".", "`"} else part for part in parts)


def split_path(name: str) -> tuple[str, ...]:
    """The parts of a path; the name alone when it is none."""
    parts, at = [], 0
    while match := _PART.match(name, at):
        parts.append(match[2] if match[2] is not None else match[1].replace("``", "`"))
        at = match.end() + 1
        if match.end() == len(name):
            return tuple(parts)
        if name[match.end()] != ".":
            break
    return (name,)


def is_path(name: str) -> bool:
    """Return whether ``name`` can mean a field within a column."""
    return len(split_path(name)) > 1


def like_hint(name: str, names: Iterable[str]) -> str:
    """Return advice for a ``name`` that is none of ``names``: the one that differs in case or blanks only, or some."""
    known = list(names)
    alike = next((candidate for candidate in known if candidate.strip().lower() == name.strip().lower()), None)
    if alike is not None:
        return f"write {alike!r}, names are exact"
    if not known:
        return "remove it"
    shown = ", ".join(sorted(known)[:_SHOWN])
    return f"name one of {shown}" + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
