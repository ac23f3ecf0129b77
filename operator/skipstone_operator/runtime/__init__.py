"""Generic controller machinery: queue, loop, resync, lease. Knows no kind and no API client.

Wired by ``__main__``. Must not import reconcilers, worlds, manifests or resources.
"""
