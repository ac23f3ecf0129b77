"""Spark queries through lookup indexes: relations of a logical plan are replaced by scans of fewer files.

Called by notebook users through ``skipstone.sql``, ``skipstone.rewrite`` and ``skipstone.explain``. Must not decide
which files to read: that is the planner's. Whatever fails here leaves the query as it was.
"""

from __future__ import annotations
