"""Judges objects as an API server does: schemas, rules in CEL, names, sizes; nothing is stored here."""

from __future__ import annotations

from skipstone_local.admission.admission import Admission
from skipstone_local.admission.definitions import load_definitions
from skipstone_local.admission.failures import Admitted, Cause, Rejected

__all__ = ["Admission", "Admitted", "Cause", "Rejected", "load_definitions"]
