"""The prune funnel of a merge: its stages, why one is left out, and what is said of it.

Used by the contract between the planes, by the rules of merges and by the data plane's stages. Must not know how a
stage finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from skipstone_core.coded import CodedSentence

#: Source rows with a null in a key match nothing: always dropped, at no cost.
NULL_KEYS = "NullKeys"
#: Not a stage that prunes: files with rows that whenNotMatchedBySource may take join the candidates here.
NOT_MATCHED_BY_SOURCE = "NotMatchedBySource"
#: The merge itself: files in which a row has a source key.
EXACT_JOIN = "ExactJoin"


class PruneStage(StrEnum):
    """Stages that can be switched off, in the order in which they run."""

    PARTITIONS = "Partitions"
    TARGET_WHERE = "TargetWhere"
    KEY_RANGES = "KeyRanges"
    BLOOM = "Bloom"
    KEY_INDEX = "KeyIndex"


class LeftOut(CodedSentence):
    """Why a stage did not run."""

    SWITCHED_OFF = "SwitchedOff", "The job switches this stage off."
    NOTHING_LEFT = "NothingLeft", "No candidate file was left to judge."
    NOT_PARTITIONED_BY_KEY = "NotPartitionedByKey", "No candidate file is partitioned by a key column."
    EVERY_PARTITION = "EveryPartition", "The source has so many keys that every bucket holds one."
    NO_TARGET_WHERE = "NoTargetWhere", "The job has no targetWhere."
    BOUNDS_UNKNOWN = "BoundsUnknown", "The candidate files have no bounds that can judge it."
    NO_FILTERS = "NoFilters", "The candidate files have no bloom filters of a key column."
    LEFT_TO_INDEX = "LeftToIndex", "An index on all key columns covers the candidate files and is used instead."
    NO_INDEX = "NoIndex", "The table has no usable index whose first column is a key column."
    NOT_COVERED = "NotCovered", "The index covers none of the candidate files."
    NO_GAIN = "NoGain", "The stage would cost about as much as reading the keys of the candidate files."
    UNREADABLE = "Unreadable", "The index cannot be read; the files that it covers stay candidates."


@dataclass(frozen=True, kw_only=True)
class FunnelStage:
    """How many files one stage was given and how many it let through.

    ``untouched``: files let through in which no row has a source key, known at the end. ``left_out``: why it did not
    run. ``message``: the same as a sentence without a full stop, or what a stage that ran says of how it did.
    ``ms``: milliseconds.
    """

    name: str
    files_in: int
    files_out: int
    untouched: int = 0
    left_out: LeftOut | None = None
    message: str = ""
    ms: int = 0

    @property
    def false_positive_rate(self) -> str:
        """The part of the files let through that no source key touched, such as ``62.5 %``; 0 of 0 is none."""
        return f"{100 * self.untouched / max(1, self.files_out):.1f} %"


def judge_stages(stages: Sequence[FunnelStage], touched: int) -> tuple[FunnelStage, ...]:
    """All stages with what they let through in vain, now that ``touched`` files are known."""
    return tuple(replace(stage, untouched=stage.files_out - touched) for stage in stages)


def funnel_summary(stages: Iterable[FunnelStage]) -> str:
    """The funnel in one short line, as in the snapshot summary: ``total 400 > KeyRanges 12 > ExactJoin 4``."""
    stages = tuple(stages)
    if not stages:
        return ""
    ran = (f"{stage.name} {stage.files_out}" for stage in stages if stage.left_out is None)
    return " > ".join((f"total {stages[0].files_in}", *ran))


def false_positive_summary(stages: Iterable[FunnelStage]) -> str:
    """The false-positive rates of the stages that ran in one line: ``KeyRanges 66.7 %, KeyIndex 0.0 %``."""
    judged = (stage for stage in stages if stage.left_out is None and stage.name not in (NULL_KEYS, EXACT_JOIN))
    return ", ".join(f"{stage.name} {stage.false_positive_rate}" for stage in judged)


def left_out_summary(stages: Iterable[FunnelStage]) -> str:
    """The stages that did not run in one line: ``Partitions NotPartitionedByKey, KeyIndex NoIndex``."""
    return ", ".join(f"{stage.name} {stage.left_out}" for stage in stages if stage.left_out is not None)
