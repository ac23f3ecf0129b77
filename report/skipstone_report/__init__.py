"""One self-contained HTML page about the Skipstone resources of a namespace or a cluster.

Start at ``page.render_report``: JSON objects as the API server gives them and a time in, HTML out. Pure but for
``__main__``. Nothing in an object is trusted: what is missing or of a wrong type is shown as not known.
"""

from skipstone_report.page import render_report
from skipstone_report.reading import find_objects

__all__ = ["find_objects", "render_report"]
