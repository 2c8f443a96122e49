"""A real browser for the page's tests, where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER_TESTS = Path(__file__).parent / "browser"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """The browser to drive: CHROMIUM in the environment, or the first that is on PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)


def command() -> list[str]:
    """What opens a page and prints what was seen of it, without the page; skips where something is missing."""
    browser, node = chromium(), shutil.which("node")
    if node is None:
        pytest.skip("node is not installed (ci/browser.sh installs what the browser tests need)")
    if browser is None:
        pytest.skip("no Chromium is installed (ci/browser.sh installs what the browser tests need)")
    if not (BROWSER_TESTS / "node_modules" / "playwright-core").is_dir():
        pytest.skip("playwright-core is not installed in tests/report/browser (ci/browser.sh or: npm ci)")
    return [node, str(BROWSER_TESTS / "check.mjs"), browser]


def look(page: Path, cells: int) -> dict[str, Any]:
    """What check.mjs saw of a page, at most so many of its cells opened."""
    done = subprocess.run([*command(), str(page), str(cells)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
