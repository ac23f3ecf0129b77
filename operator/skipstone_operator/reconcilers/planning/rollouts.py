"""How far the replicas of a Deployment are, as its controller tells it.

Called by ``judging``. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from skipstone_operator.worlds.subjects import Raw

#: The reason of a Deployment's condition Progressing when its replicas did not get ready in time.
DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """How far the replicas of a Deployment are. ``trouble``: why replicas do not get ready; empty when all is well."""

    wanted: int
    ready: int
    complete: bool
    failed: bool
    trouble: str = ""


def read_rollout(raw: Raw) -> Rollout:
    """The rollout of a Deployment as its controller tells it."""
    status: Raw = raw.get("status") or {}
    wanted = int(raw["spec"].get("replicas", 1))
    is_current = int(status.get("observedGeneration") or 0) >= int(raw["metadata"].get("generation") or 0)
    counts = {name: int(status.get(name) or 0) for name in ("replicas", "updatedReplicas", "readyReplicas")}
    conditions = {str(each.get("type")): each for each in status.get("conditions") or ()}
    progress, failure = conditions.get("Progressing", {}), conditions.get("ReplicaFailure", {})
    is_late = is_current and progress.get("reason") == DEADLINE_EXCEEDED
    # Pods that cannot be created say more than that time ran out.
    messages = [str(each.get("message", "")) for each in (failure, progress if is_late else {}) if each]
    return Rollout(
        wanted=wanted,
        ready=counts["readyReplicas"],
        complete=is_current and set(counts.values()) == {wanted},
        failed=is_late,
        trouble=next(filter(None, messages), ""),
    )
