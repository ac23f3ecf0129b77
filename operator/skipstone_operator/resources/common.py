"""Parts that several kinds share: references, conditions, runs, metadata.

Imported by every kind of this room and by reconcilers. Must not hold behavior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

from skipstone_core.contract.branches import MissingBranch
from skipstone_core.contract.requests import RunKind

from skipstone_operator.resources.rules.markers import Doc, Rule, name_text, time_text

#: Longest name of any resource of ours; longer ones are refused at apply.
MAX_RESOURCE_NAME = 63

DNS_SUBDOMAIN = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def object_name(text: str, field_name: str) -> Doc:
    """The name of a Kubernetes object."""
    wrong = f"{field_name} must be a Kubernetes name: lower-case letters, digits, '-' and '.', such as 'orders-2026'"
    return Doc(text, min_length=1, max_length=253, pattern=DNS_SUBDOMAIN, help=wrong)


#: What an object has for a status until the operator has seen it: a tool that compares generations waits for it.
UNSEEN_STATUS = {"observedGeneration": -1}
OBSERVED_GENERATION = Doc("The metadata.generation that this status describes; -1 before the first pass.", minimum=-1)


class ReclaimPolicy(StrEnum):
    """What happens to the data when the resource is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class RunResult(StrEnum):
    """How an ended run is judged."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    LOST = "Lost"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """The branch of a table that a job writes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda branch: branch.name != "main",
            rule="self.name != 'main'",
            message="branch names another branch than main, which jobs write without it: remove branch",
            field_path=".name",
        ),
    )

    name: Annotated[str, name_text("Name of the branch.")]
    if_missing: Annotated[
        MissingBranch,
        Doc(
            "Refuse fails the job if the table does not have the branch. Create lets the commit of the job create it, "
            "at the head of main."
        ),
    ] = MissingBranch.REFUSE


BRANCH = Doc(
    "The branch of the table that is written, in place of main: readers of main see the rows once the branch is "
    "published. Never changes."
)


@dataclass(frozen=True, kw_only=True)
class LocalRef:
    """A resource of the same namespace by name."""

    name: Annotated[
        str,
        object_name("Name of the resource, in the same namespace.", "name"),
    ]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One observation, as metav1.Condition."""

    type: Annotated[str, name_text("What is observed, such as Ready or Complete.", max_length=63)]
    status: Annotated[ConditionStatus, Doc("Whether it holds: True, False or Unknown.")]
    reason: Annotated[str, name_text("The reason, one CamelCase word of the reasons reference.", max_length=128)]
    message: Annotated[str, Doc("One sentence for people.", max_length=4096)] = ""
    last_transition_time: Annotated[str, time_text("When the status last flipped.")]
    observed_generation: Annotated[int, Doc("The metadata.generation that was judged.", minimum=0)] = 0


@dataclass(frozen=True, kw_only=True)
class CurrentRun:
    """The run that is intended or running; written before its pod exists."""

    id: Annotated[str, name_text("Name of the run; its pod is <id>-driver.", max_length=63)]
    kind: Annotated[RunKind, Doc("What the run does.")]
    attempt: Annotated[int, Doc("Number of the attempt, from 1.", minimum=1)] = 1
    inputs_hash: Annotated[str, Doc("Hash over the inputs of the run.", max_length=64)] = ""
    txn: Annotated[str, Doc("Transaction id that the commit will carry; empty without commit.", max_length=128)] = ""
    generation: Annotated[int, Doc("The metadata.generation that the run serves.", minimum=0)] = 0
    start_time: Annotated[str, time_text("When the run was intended.")]
    launch_time: Annotated[str | None, time_text("When the pod was created.")] = None
    running_time: Annotated[str | None, time_text("When the driver container started.")] = None
    progress: Annotated[str, Doc("Progress that the driver reports.", max_length=1024)] = ""
    stop_reason: Annotated[
        str, Doc("Why the driver is being stopped; empty while it may continue.", max_length=128)
    ] = ""
    stop_message: Annotated[str, Doc("The sentence that goes with it.", max_length=4096)] = ""


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """The run that ended last."""

    id: Annotated[str, name_text("Name of the run.", max_length=63)]
    kind: Annotated[RunKind, Doc("What the run did.")]
    attempt: Annotated[int, Doc("Number of the attempt, from 1.", minimum=1)] = 1
    result: Annotated[RunResult, Doc("How it ended.")]
    reason: Annotated[str, Doc("Why, in one word of the reasons reference.", max_length=128)] = ""
    message: Annotated[str, Doc("The driver's message, shortened.", max_length=4096)] = ""
    inputs_hash: Annotated[str, Doc("Hash over the inputs of the run.", max_length=64)] = ""
    generation: Annotated[int, Doc("The metadata.generation that the run served.", minimum=0)] = 0
    snapshot_id: Annotated[str, Doc("Snapshot that it committed; 0 when nothing changed.", max_length=32)] = ""
    start_time: Annotated[str | None, time_text("When the run was intended.")] = None
    completion_time: Annotated[str | None, time_text("When its end was seen.")] = None
    counts: Annotated[
        Mapping[str, int],
        Doc("Numbers that the driver reported, by name.", max_properties=32, item=Doc("One number.")),
    ] = field(default_factory=dict)
    stages_ms: Annotated[
        Mapping[str, int],
        Doc("Milliseconds spent, by stage of the run.", max_properties=32, item=Doc("Milliseconds.")),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ConfirmState:
    """Confirm runs that look whether an attempt of unknown outcome committed."""

    attempts: Annotated[int, Doc("Confirm runs started so far.", minimum=0)] = 0
    reason: Annotated[str, Doc("The reason of Failed should the commit prove absent.", max_length=128)] = ""
    message: Annotated[str, Doc("The message of Failed should the commit prove absent.", max_length=4096)] = ""
    since: Annotated[str | None, time_text("When the first confirm run was requested.")] = None
    next_time: Annotated[str | None, time_text("The earliest time of the next confirm run.")] = None


@dataclass(frozen=True, kw_only=True)
class SeenMetadata:
    """Which metadata of an Iceberg table the numbers in a status come from: older metadata never replaces newer."""

    uuid: Annotated[str, Doc("UUID of the Iceberg table; empty when the run did not report it.", max_length=64)] = ""
    version: Annotated[int, Doc("Number in the name of the metadata file; 0 when it has none.", minimum=0)] = 0
    updated_ms: Annotated[int, Doc("The last-updated-ms of the metadata.", minimum=0)] = 0
    time: Annotated[str | None, time_text("When the run that read it ended.")] = None


@dataclass(frozen=True, kw_only=True)
class OwnerReference:
    """An owner as Kubernetes writes it."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The part of ObjectMeta that we read."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
