"""A Delta table as the source of a job: which version, and which of its partitions. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from skipstone_core.contract.requests import ConsumePolicy

from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, Rule
from skipstone_operator.resources.sourcing.paths import PATH_RULES

_VERSION = "^(0|[1-9][0-9]{0,17})$"
_VERSION_HELP = "must be the number of a version in quotes, such as '12'"

NEWEST_VERSION = Rule(
    holds=lambda source: source.delta is None or source.delta.version is None or source.consume is ConsumePolicy.ALL,
    rule="!has(self.delta) || !has(self.delta.version) || !has(self.consume) || self.consume == 'All'",
    message="source.consume New reads up to the newest version: remove source.delta.version, or set consume to All",
    field_path=".consume",
)
SETTLED = Rule(
    holds=lambda source: source.delta is None or source.settle_seconds == 0,
    rule="!has(self.delta) || !has(self.settleSeconds) || self.settleSeconds == 0",
    message="source.settleSeconds is for files only: remove it beside source.delta, whose log names whole files",
    field_path=".settleSeconds",
)
PLAIN_DELTA = Rule(
    holds=lambda source: source.delta is None or (source.change_format is None and source.replay_from is None),
    rule="!has(self.delta) || (!has(self.changeFormat) && !has(self.replayFrom))",
    message="source.changeFormat and source.replayFrom are for files of changes only: remove them beside source.delta",
    field_path=".delta",
)


@dataclass(frozen=True, kw_only=True)
class DeltaFolder:
    """A Delta table whose rows are read."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda delta: all(rule.holds is None or rule.holds((delta.path,)) for rule in PATH_RULES),
            rule="!self.path.startsWith('/') && !self.path.contains('://') && !self.path.contains('\\\\') && "
            "!self.path.matches('(^|/)[.][.](/|$)') && !self.path.matches('^([.]/)*[.]skipstone(/|$)')",
            message="source.delta.path must be a folder below the root of the Warehouse or of source.location, "
            "relative to it: write 'lake/events', without a leading '/', a scheme, a backslash or '..'",
            field_path=".path",
        ),
    )

    path: Annotated[
        str,
        Doc(
            "Folder of the table, which holds _delta_log, relative to the root of the Warehouse or of source.location.",
            min_length=1,
            max_length=limits.MAX_PATH,
        ),
    ]
    version: Annotated[
        str | None,
        Doc(
            "Version whose rows are read; when absent, the newest. All attempts of a job read the same version.",
            max_length=18,
            pattern=_VERSION,
            help=f"source.delta.version {_VERSION_HELP}",
        ),
    ] = None
    starting_version: Annotated[
        str | None,
        Doc(
            "Only rows that this version and later ones appended are read, and the job fails if one of them changed or "
            "removed rows. With consume: New, the first job with this value begins there.",
            max_length=18,
            pattern=_VERSION,
            help=f"source.delta.startingVersion {_VERSION_HELP}",
        ),
    ] = None
    where: Annotated[
        str | None,
        Doc(
            "Predicate over the partition columns, such as day >= date '2026-01-01': only partitions on which it is "
            "true are read.",
            min_length=1,
            max_length=limits.MAX_PREDICATE,
        ),
    ] = None
