"""Makes a checkout work without an installed entry point; in CI, where nothing is missing, a skip is a failure."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

pytest_plugins = ["harness.plugin"]

_SKIPS_FAIL = bool(os.environ.get("LOCKPROOF_SKIPS_FAIL"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """An experiment that does not concern a subject is skipped as "not applicable"; any other skip shows nothing."""
    report = yield
    if _SKIPS_FAIL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith("not applicable: "):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be skipped: {reason}"
    return report
