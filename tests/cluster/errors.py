"""The one error that people see.

Raised by every module of the test cluster and printed by the command line. The message is one sentence that names
what is wrong and the way out.
"""

from __future__ import annotations


class ClusterError(Exception):
    """A missing prerequisite or a step that failed."""
