"""A real browser for the page's tests, where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BROWSER_TESTS = Path(__file__).parent / "browser"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """The browser to drive: CHROMIUM in the environment, or the first that is on PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)


@pytest.fixture(scope="session")
def look() -> Callable[[Path, int], dict[str, Any]]:
    """Opens a page in a headless browser and returns what check.mjs saw of it; skips where something is missing."""
    browser, node = chromium(), shutil.which("node")
    if node is None:
        pytest.skip("node is not installed (ci/browser.sh installs what the browser tests need)")
    if browser is None:
        pytest.skip("no Chromium is installed (ci/browser.sh installs what the browser tests need)")
    if not (BROWSER_TESTS / "node_modules" / "playwright-core").is_dir():
        pytest.skip("playwright-core is not installed in tests/report/browser (ci/browser.sh or: npm ci)")

    def opened(page: Path, cells: int) -> dict[str, Any]:
        command = [node, str(BROWSER_TESTS / "check.mjs"), browser, str(page), str(cells)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    return opened
