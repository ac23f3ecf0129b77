"""What callers may do: everything, whoever has the token."""

from __future__ import annotations

from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.store import JsonObject

USER: JsonObject = {"username": "local", "groups": ["system:masters", "system:authenticated"]}
EVERYTHING: JsonObject = {
    "incomplete": False,
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
}
ANSWERS: dict[str, JsonObject] = {
    "SelfSubjectAccessReview": {"allowed": True, "reason": "whoever has the token may do everything"},
    "SelfSubjectRulesReview": EVERYTHING,
    "SelfSubjectReview": {"userInfo": USER},
}


def answer_review(kind: ServedKind, asked: JsonObject) -> JsonObject:
    """The review with its answer; nothing is stored."""
    metadata = {"creationTimestamp": None}
    return {
        "metadata": metadata, **asked, "apiVersion": kind.api_version, "kind": kind.name, "status": ANSWERS[kind.name],
    }  # fmt: skip
