"""Which data files a compaction rewrites, and which of them together.

Used by the compaction, and by the health of a table, which counts what is due. Pure: facts in, numbers of files out.
Must not know how rows are read, sorted or written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skipstone_core.maintenance.policies import CompactionPolicy


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A live data file. ``partition``: files of different numbers are never rewritten together.

    ``deleted``: rows that deletes take from it, as far as that is known. ``is_outdated``: it is of a partition spec
    that is not the table's; such files of one spec have one number. ``order``: files that are near each other in it are
    rewritten together.
    """

    file_id: int
    partition: int
    size: int
    rows: int
    deleted: int = 0
    is_outdated: bool = False
    order: int = 0

    @property
    def live_rows(self) -> int:
        """Rows that a rewrite keeps."""
        return max(self.rows - self.deleted, 0)

    @property
    def live_bytes(self) -> int:
        """About what these take."""
        return self.size * self.live_rows // max(self.rows, 1)


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Files that become ``outputs`` files of about the same size; ``size``: bytes of all of them."""

    file_ids: tuple[int, ...]
    size: int
    outputs: int


def plan_groups(
    files: Iterable[FileFacts], policy: CompactionPolicy, *, is_sorted: bool, max_bytes: int
) -> tuple[RewriteGroup, ...]:
    """The groups that are due; each file is in one at most.

    Files with many deleted rows, or of an old partition spec, are always due. Small ones are when so many of a tier (by
    rows) are there as the policy says: what they become is of a higher tier, so a row is written again at most once per
    tier, O(log n) times (size-tiered merging of a log-structured merge tree). They are due as well when they fill a
    target file, for good. After the rewrite nothing is due, as far as the new files are as large as planned and rows of
    an old spec stay together.

    ``is_sorted``: a group's rows are sorted, so it is as large as ``max_bytes`` allows; else a group becomes one file.
    """
    parts: defaultdict[int, list[FileFacts]] = defaultdict(list)
    for file in files:
        parts[file.partition].append(file)
    size = max_bytes if is_sorted else policy.target_file_size
    return tuple(
        _group(bundle, policy, is_sorted=is_sorted)
        for part in sorted(parts)
        for bundle in _bundles(parts[part], policy, max(size, policy.target_file_size))
    )


def plan_commits(groups: Iterable[RewriteGroup], max_bytes: int) -> tuple[tuple[RewriteGroup, ...], ...]:
    """``groups`` by commits of at most so many bytes each, unless one group has more."""
    commits: list[list[RewriteGroup]] = []
    filled = 0
    for group in groups:
        if not commits or filled + group.size > max_bytes:
            commits.append([])
            filled = 0
        commits[-1].append(group)
        filled += group.size
    return tuple(tuple(commit) for commit in commits)


def outputs_of(nbytes: int, target: int) -> int:
    """How many files so many bytes become: none of several is smaller than three quarters of the target."""
    return max(1, (nbytes + target // 2) // target)


def _bundles(files: Sequence[FileFacts], policy: CompactionPolicy, size: int) -> Iterable[list[FileFacts]]:
    """Files of one partition that are rewritten together; ``size``: bytes that are enough for a group."""
    if files[0].is_outdated:
        filled, rest = _filled(files, size, policy)
        return [*filled, rest] if rest else filled
    must = [file for file in files if _is_decayed(file, policy)]
    pool = [file for file in files if file.size < policy.small_below and not _is_decayed(file, policy)]
    pool += [file for file in must if file.live_bytes < policy.small_below]
    filled, rest = _filled(pool, size, policy) if _bytes(pool) >= policy.target_file_size else ([], pool)
    whole = ([file] for file in must if file.live_bytes >= policy.small_below)
    return [*whole, *filled, *_tiers(rest, policy)]


def _filled(
    files: Iterable[FileFacts], size: int, policy: CompactionPolicy
) -> tuple[list[list[FileFacts]], list[FileFacts]]:
    """Groups of about ``size`` bytes of files that are near each other, and files left that fill no target file."""
    groups: list[list[FileFacts]] = []
    group: list[FileFacts] = []
    nbytes = 0
    for file in sorted(files, key=lambda facts: (facts.order, facts.file_id)):
        more = nbytes + file.live_bytes
        if nbytes >= policy.small_below and more - size > size - nbytes:
            groups.append(group)
            group, more = [], file.live_bytes
        group.append(file)
        nbytes = more
    if nbytes < policy.small_below:
        return groups, group
    return [*groups, group], []


def _is_decayed(file: FileFacts, policy: CompactionPolicy) -> bool:
    return 0 < policy.delete_permille * file.rows <= 1000 * file.deleted


def _tiers(files: Sequence[FileFacts], policy: CompactionPolicy) -> list[list[FileFacts]]:
    """Files that fill a tier, or must be rewritten anyhow; their bundle may fill tiers as well."""
    members: defaultdict[int, list[list[FileFacts]]] = defaultdict(list)
    must = [file for file in files if _is_decayed(file, policy)]
    for bundle in (must, *([file] for file in files if not _is_decayed(file, policy))):
        if bundle:
            members[_tier(bundle, policy)].append(bundle)
    done: list[list[FileFacts]] = []
    while members:
        lowest = min(members)
        tier = members.pop(lowest)
        if len(tier) < policy.min_input_files:
            done += tier
            continue
        merged = [file for inputs in tier for file in inputs]
        members[max(lowest + 1, _tier(merged, policy))].append(merged)
    return [group for group in done if len(group) > 1 or group is must]


def _bytes(files: Iterable[FileFacts]) -> int:
    return sum(file.live_bytes for file in files)


def _tier(files: Iterable[FileFacts], policy: CompactionPolicy) -> int:
    """Files of a tier differ in rows by less than the number that is merged at once."""
    rows, tier = sum(file.live_rows for file in files), 0
    while rows >= policy.min_input_files:
        rows, tier = rows // policy.min_input_files, tier + 1
    return tier


def _group(files: Sequence[FileFacts], policy: CompactionPolicy, *, is_sorted: bool) -> RewriteGroup:
    """The group, of files in their order."""
    ordered = sorted(files, key=lambda file: (file.order, file.file_id))
    outputs = outputs_of(_bytes(files), policy.target_file_size) if is_sorted else 1
    return RewriteGroup(tuple(file.file_id for file in ordered), sum(file.size for file in files), outputs)
