"""What a shell offers when the user presses Tab: kinds, then the names that the API server lists.

A shell shows no errors meanwhile: whatever fails offers nothing. Must not print anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skipstone_cli.cluster.api import Api
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import KINDS, ResourceKind
from skipstone_cli.reading import name_of


def offer_targets(open_api: Callable[[], Api], incomplete: str, allowed: Sequence[ResourceKind] = KINDS) -> list[str]:
    """Beginnings of ``KIND/NAME`` for what is written so far; whole ones as soon as that is of one kind."""
    word, slash, name = incomplete.partition("/")
    kinds = [(kind, spelled) for kind in allowed if (spelled := _spelled(kind, word, whole=bool(slash)))]
    if len(kinds) != 1:
        return [] if slash else [f"{spelled}/" for _, spelled in kinds]
    ((kind, spelled),) = kinds
    try:
        found = open_api().list_kind(kind)
    except CliError:
        return []
    return sorted(f"{spelled}/{name_of(one)}" for one in found if name_of(one).startswith(name))


def _spelled(kind: ResourceKind, word: str, *, whole: bool) -> str:
    """The first name of ``kind`` that begins with ``word``, or is it; empty if none does."""
    names = (kind.short, kind.singular, kind.plural)
    return next((one for one in names if (one == word if whole else one.startswith(word))), "")
