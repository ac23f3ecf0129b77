"""All objects of Skipstone that may be listed, and what may not.

Called by commands that show many objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from skipstone_cli.cluster.api import Api
from skipstone_cli.errors import Forbidden
from skipstone_cli.kinds import KINDS, ResourceKind, Target
from skipstone_cli.reading import JsonObject


@dataclass
class Gathered:
    """Objects that were read and rights that were missing, by kind."""

    objects: dict[ResourceKind, Sequence[JsonObject]] = field(default_factory=dict)
    lacking: dict[ResourceKind, Forbidden] = field(default_factory=dict)


def gather(api: Api, target: Target | None = None) -> Gathered:
    """The objects of all kinds that may be listed, and the target.

    Raises Forbidden when none may and no target is asked for, NotFound without the target, and Unreachable.
    """
    gathered = Gathered()
    named = api.get(target) if target is not None else None
    # What others name is listed after them: what is created meanwhile is found, and only what is gone is missing.
    for kind in reversed(KINDS):
        try:
            gathered.objects[kind] = api.list_kind(kind)
        except Forbidden as error:
            gathered.lacking = {kind: error, **gathered.lacking}
            gathered.objects[kind] = (named,) if named is not None and target and target.kind is kind else ()
    if len(gathered.lacking) == len(KINDS) and target is None:
        raise next(iter(gathered.lacking.values()))
    return gathered
