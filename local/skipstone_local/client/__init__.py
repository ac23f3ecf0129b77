"""Objects of any kind at an API server: which kinds there are, reading, applying, deleting, watching.

Called by ``commands`` and ``lake``. Must not print, and must not know who serves.
"""
