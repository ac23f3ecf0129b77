"""What was made of an object, kept while the object is: a cache hands out the same objects to pass after pass.

Part of ``Ports``, used by ``reconcilers/gather``. Knows an object by its identity, so callers must not change objects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

T = TypeVar("T")
#: Objects at most; what was not asked for longest goes first.
KEPT = 2048


@dataclass
class Memory:
    """Not thread-safe: one event loop owns it."""

    _made: OrderedDict[tuple[int, Hashable], tuple[Mapping[str, Any], object]] = field(default_factory=OrderedDict)

    def recall(self, raw: Mapping[str, Any], what: Hashable, make: Callable[[Mapping[str, Any]], T]) -> T:
        """What ``make`` makes of ``raw``, made once; ``what`` names it."""
        key = (id(raw), what)
        held = self._made.get(key)
        # The object is held with what was made of it, so no other one can have its identity.
        if held is not None:
            self._made.move_to_end(key)
            return cast(T, held[1])
        made = make(raw)
        self._made[key] = (raw, made)
        if len(self._made) > KEPT:
            self._made.popitem(last=False)
        return made
