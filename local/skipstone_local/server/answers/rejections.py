"""What admission refuses, as a Status."""

from __future__ import annotations

from skipstone_local.admission import Rejected
from skipstone_local.server.answers.refusals import build_status
from skipstone_local.store import JsonObject


def rejected_status(rejected: Rejected) -> JsonObject:
    """The Status of an object that admission refuses."""
    causes = [{"reason": reason, "message": message, "field": field} for reason, message, field in rejected.causes]
    details: JsonObject = {"causes": causes} if causes else {}
    return build_status("Failure", rejected.message, reason=rejected.reason, details=details, code=rejected.status)
