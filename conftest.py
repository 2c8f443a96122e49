"""Makes a checkout work without an installed entry point, and refuses another project's packages of the same names."""

from __future__ import annotations

pytest_plugins = ["harness.plugin"]
