"""What all tests of the harness share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast a busy machine draws examples is no property of what is tested.
settings.register_profile("lockproof", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("lockproof")
