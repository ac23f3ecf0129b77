"""Reconcilers: read the world again, decide the one next write, write it.

The loop calls ``reconcile`` with a key; each kind has a module with its pure ``decide``.
"""

from __future__ import annotations

from skipstone_operator.reconcilers.entry import reconcile

__all__ = ["reconcile"]
