"""harness, scenarios and fakes are three packages with common names: they must come from one place, this one.

A clone beside an installed wheel, or another project with a package called scenarios, would otherwise run half of one
and half of the other.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

NAMES = ("harness", "scenarios", "fakes")
HOME = Path(__file__).resolve().parents[1]
"""The directory that holds all three."""


def stranger(name: str, directory: Path | None) -> str | None:
    """Why the package of this name is not ours; None when it is. directory: where it is, None for nowhere."""
    if directory is None:
        return f"there is no package {name} beside {HOME / 'harness'}: install lockproof again, whole"
    if directory.resolve() != HOME / name:
        return (
            f"the package {name} is that of {directory}, but lockproof runs from {HOME / 'harness'}: two copies, or "
            f"another project's package of the same name. Run the clone's own (pip install -e . there), or give "
            "--pyargs scenarios from a directory that has none of these names"
        )
    return None


def refuse_named(config: pytest.Config) -> None:
    """Refuses `--pyargs scenarios` where Python would find another's. Raises pytest.UsageError."""
    if not config.getoption("pyargs", False):
        return
    for name in {arg.partition("::")[0].partition(".")[0] for arg in config.args} & set(NAMES):
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        _refuse(stranger(name, Path(places[0]) if places else None))


def refuse_imported() -> None:
    """Refuses to run experiments of packages that are not siblings of this one. Raises pytest.UsageError."""
    for name in NAMES:
        module = sys.modules.get(name)
        if module is not None and module.__file__ is not None:
            _refuse(stranger(name, Path(module.__file__).parent))


def _refuse(why: str | None) -> None:
    if why is not None:
        raise pytest.UsageError(why)
