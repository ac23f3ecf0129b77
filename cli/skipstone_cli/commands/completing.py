"""What a shell offers when the user presses Tab: kinds, then the names that the API server lists.

A shell shows no errors meanwhile: whatever fails, or takes too long, offers nothing. Must not print anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from skipstone_cli.cluster.api import Api
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import GROUP, KINDS, ResourceKind, can_exist, find_kind
from skipstone_cli.reading import name_of

#: How long a user who pressed Tab waits for names, with credentials and all.
SECONDS = 3.0


def offer_targets(open_api: Callable[[], Api], incomplete: str, allowed: Sequence[ResourceKind] = KINDS) -> list[str]:
    """Beginnings of ``KIND/NAME`` for what is written so far; whole ones as soon as that is of one kind."""
    word, slash, begins = incomplete.partition("/")
    kinds = [(kind, spelled) for kind in allowed if (spelled := _spelled(kind, word, whole=bool(slash)))]
    if len(kinds) != 1:
        return [] if slash else [f"{spelled}/" for _, spelled in kinds]
    ((kind, spelled),) = kinds
    names = in_time(lambda: [name_of(obj) for obj in open_api().list_kind(kind)])
    # A shell may run what it is given: a name that is none comes from a server that is none.
    return sorted(f"{spelled}/{name}" for name in names if name.startswith(begins) and can_exist(name))


def in_time(read: Callable[[], list[str]]) -> list[str]:
    """Return the result of ``read``; nothing if it fails or takes longer than ``SECONDS``; it is not awaited then.

    A thread of its own, because a name server, a credential plugin or a server that sends a byte now and then cannot be
    interrupted otherwise.
    """
    given: list[str] = []

    def attempt() -> None:
        with suppress(Exception):
            given.extend(read())

    reader = Thread(target=attempt, daemon=True)
    reader.start()
    reader.join(SECONDS)
    return list(given)


def _spelled(kind: ResourceKind, word: str, *, whole: bool) -> str:
    """``word``, completed to a name of ``kind`` unless it is ``whole``; empty if it is none.

    Shells take only what begins with what the user wrote, in the user's case.
    """
    if whole:
        return word if _is_name_of(kind, word) else ""
    names = (kind.short, kind.singular, kind.plural, f"{kind.plural}.{GROUP}")
    return next((f"{word}{name[len(word) :]}" for name in names if name.startswith(word.lower())), "")


def _is_name_of(kind: ResourceKind, word: str) -> bool:
    try:
        return find_kind(word) is kind
    except CliError:
        return False
