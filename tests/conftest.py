"""What all tests of the harness share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast a busy machine draws examples is no property of what is tested.
settings.register_profile("lockproof", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("lockproof")

TESTS = Path(__file__).parent
LONGEST_FIRST = ("test_banks.py", "leftovers", "composed", "core", "faults", "sabotage", "wheel", "report", "external")
"""Begun first when the tests are spread over several processes, so that none of them is waited for at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist a file is one group (--dist loadgroup): what its fixtures start is started once."""
    for item in items:
        part = _part(item)
        # the composed stack belongs to a session
        item.add_marker(
            pytest.mark.xdist_group(part if part == "composed" else str(item.path.relative_to(TESTS.parent)))
        )
    items.sort(
        key=lambda item: LONGEST_FIRST.index(part) if (part := _part(item)) in LONGEST_FIRST else len(LONGEST_FIRST)
    )


def _part(item: pytest.Item) -> str:
    """The directory of tests/, or the file in it, that a test is in."""
    return item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
