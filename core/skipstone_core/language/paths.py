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
    while found := _PART.match(name, at):
        parts.append(found[2] if found[2] is not None else found[1].replace("``", "`"))
        at = found.end() + 1
        if found.end() == len(name):
            return tuple(parts)
        if name[found.end()] != ".":
            break
    return (name,)


def is_path(name: str) -> bool:
    """Whether ``name`` can mean a field within a column."""
    return len(split_path(name)) > 1


def like_hint(name: str, names: Iterable[str]) -> str:
    """What to do when ``name`` is none of ``names``: the one that differs in case or blanks only, else some of them."""
    known = list(names)
    alike = next((one for one in known if one.strip().lower() == name.strip().lower()), None)
    if alike is not None:
        return f"write {alike!r}, names are exact"
    if not known:
        return "remove it"
    shown = ", ".join(sorted(known)[:_SHOWN])
    return f"name one of {shown}" + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
