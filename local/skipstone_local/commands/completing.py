"""What a shell offers when the user presses Tab: kinds, and the names of objects.

Whatever fails, or takes too long, offers nothing: a shell shows no errors meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from skipstone_cli.commands.completing import in_time
from skipstone_cli.kinds import KINDS, can_exist
from skipstone_cli.reading import entries_of, name_of

from skipstone_local.client.objects import Selection
from skipstone_local.client.opening import open_root
from skipstone_local.places import RootFolder


def offer_words(root: RootFolder, namespace: str, before: Sequence[str], incomplete: str) -> list[str]:
    """Names of kinds for the first word, then names of objects of that kind, or both as ``KIND/NAME``."""
    kind, slash, begins = incomplete.partition("/")
    if not before and not slash:
        return [
            name
            for listed_kind in KINDS
            for name in (listed_kind.plural, listed_kind.short)
            if name.startswith(incomplete.lower())
        ]
    if not slash:
        kind, begins = before[0], incomplete
    names = in_time(lambda: _names(root, namespace, kind))
    # A shell may run what it is given.
    return sorted(f"{kind}/{name}" if slash else name for name in names if name.startswith(begins) and can_exist(name))


def _names(root: RootFolder, namespace: str, kind: str) -> list[str]:
    if not root.objects.exists():
        return []
    with ExitStack() as until:
        objects = open_root(root, namespace, until, lambda warning: None)
        (resource,) = objects.resources.find(kind)
        listed = objects.list_objects(resource, Selection(namespace=namespace))
        return [name_of(entry) for entry in entries_of(listed, "items")]
