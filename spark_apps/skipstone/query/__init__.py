"""Reading tables through their lookup indexes: what notebook users and runs call.

Must not know how an index is built or stored: that is the room ``indexes``.
"""

from __future__ import annotations

from skipstone.query.changing.reading import changes
from skipstone.query.planner import ReadOptions, ReadPlan, plan_read
from skipstone.query.reading import explain, read

__all__ = ["ReadOptions", "ReadPlan", "changes", "explain", "plan_read", "read"]
