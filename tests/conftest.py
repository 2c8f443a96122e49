"""What all tests of the harness share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast a busy machine draws examples is no property of what is tested.
settings.register_profile("lockproof", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("lockproof")

TESTS = Path(__file__).parent
COMPOSED = "composed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist a file is one group (--dist loadgroup): what its fixtures start is started once.

    The composed stack is all of a session's, and first: it takes long, and most of that is waiting for containers.
    """
    for item in items:
        group = COMPOSED if _composed(item) else str(item.path.relative_to(TESTS.parent))
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: not _composed(item))


def _composed(item: pytest.Item) -> bool:
    return item.path.is_relative_to(TESTS / COMPOSED)
