"""Which manifests of a snapshot are written again as few larger ones.

Used by a table's health and by the data plane's rewriting. Tiers of sizes that grow by a factor, as in an LSM tree: a
manifest is written again once for each tier, and only when a tier is full. So a table with a commit a minute is
rewritten every few commits, little of it each time, and a scan reads no more than a few manifests of each tier.
Must not read manifests: only what a manifest list says of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: So many manifests of one tier become one of the next; a tier holds those of up to ``RADIX`` times the bytes.
RADIX = 8
#: Bytes of the first tier.
SMALLEST = 16 * 1024
#: Bytes of a manifest that is left as it is, unless the table says otherwise.
TARGET_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ManifestFacts:
    """One manifest: its number in the list, ``kind`` (only manifests of one kind become one), bytes, and files.

    ``live``: files that it holds, ``gone``: entries of files that were taken away. ``lacks_bounds``: its list lacks a
    bound of a partition that has values, by which other engines skip it.
    """

    number: int
    kind: Hashable
    size: int
    live: int
    gone: int
    lacks_bounds: bool = False


def plan_manifest_groups(
    manifests: Sequence[ManifestFacts], target_bytes: int = TARGET_BYTES
) -> tuple[tuple[int, ...], ...]:
    """Numbers of the manifests that are written again together, in their order."""
    kinds: dict[Hashable, list[ManifestFacts]] = defaultdict(list)
    for manifest in manifests:
        if manifest.live and (manifest.lacks_bounds or manifest.size < target_bytes // 2):
            kinds[manifest.kind].append(manifest)
    return tuple(group for some in kinds.values() if (group := _group(some)))


def _group(manifests: Sequence[ManifestFacts]) -> tuple[int, ...]:
    """All up to the highest tier that is full with what comes up from those below it, and those that lack bounds; empty
    when there are none.
    """
    tiers: dict[int, list[ManifestFacts]] = defaultdict(list)
    for manifest in manifests:
        tiers[_tier(manifest.size)].append(manifest)
    faulty = {manifest.number for manifest in manifests if manifest.lacks_bounds}
    taken: list[int] = []
    below: list[int] = []
    carried = 0
    for tier in sorted(tiers):
        below += [manifest.number for manifest in tiers[tier]]
        is_full = len(tiers[tier]) + carried >= RADIX
        taken, carried = (list(below), 1) if is_full else (taken, 0)
    return tuple(sorted(faulty.union(taken)))


def _tier(size: int) -> int:
    tier, most = 0, SMALLEST
    while size > most:
        tier, most = tier + 1, most * RADIX
    return tier
