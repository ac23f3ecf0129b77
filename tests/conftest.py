"""What all tests share: a random test may be slow, for the machine may be busy with others beside it.

Each test is bounded by pytest's timeout alone.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
