"""The built wheel, installed in a user's own repository, does what the clone does: pytest --pyargs scenarios.

The environment is a fresh one: the wheel is installed into it by pip, without its dependencies, which it is lent by a
.pth line that leads to this environment's packages. So what is tested is the wheel; that its dependencies can be
installed is shown by whoever set this environment up.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from core.runs import CLONE, MOST_TRIES, STALLED, Ran, environment

_PYTEST = "import sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
"""What the console script called pytest does."""

BILLING = (CLONE / "examples" / "redis_lock" / "billing.py").read_text()


@dataclass(frozen=True)
class Installed:
    """A fresh environment with the wheel, and a user's repository."""

    python: Path
    packages: Path
    repository: Path

    def pytest(self, *args: str, cwd: Path | None = None, as_module: bool = False) -> Ran:
        """pytest as the user types it: the console script, or python -m pytest, with the directory on sys.path."""
        start = ["-m", "pytest"] if as_module else [str(self.python.parent / "pytest")]
        done = subprocess.run(
            [str(self.python), *start, "-p", "no:cacheprovider", *args],
            cwd=cwd or self.repository,
            env={k: v for k, v in environment().items() if k != "PYTHONPATH"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        return Ran(args, done.returncode, done.stdout, None)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", *isolated, "--outdir", str(place), str(CLONE)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0 and "No matching distribution" in done.stdout + done.stderr:
        pytest.skip("hatchling is not installed, and no package index can be reached to get it from")
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True, timeout=120)
    python = place / "venv" / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
        timeout=120,
    )
    (python.parent / "pytest").write_text(_PYTEST)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place / "venv")}))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    repository = place / "shop"
    (repository / "myapp").mkdir(parents=True)
    (repository / "myapp" / "__init__.py").touch()
    (repository / "myapp" / "billing.py").write_text(BILLING)
    return Installed(python, packages, repository)


def test_the_wheel_has_the_three_packages_and_what_they_read_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"harness", "scenarios", "fakes"}
    for data in (
        "harness/report/templates/index.html.j2",
        "scenarios/test_slow_charge.py",
        "fakes/toxiproxy/__main__.py",
    ):
        assert data in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".png")]


def test_a_users_own_lock_is_tried_from_his_own_repository(installed: Installed) -> None:
    wanted = ("--pyargs", "scenarios", "--harness-subject", "myapp.billing:charge_invoice")
    for _ in range(MOST_TRIES):
        ran = installed.pytest(*wanted, "-k", "slow_charge and before-commit")
        if STALLED not in ran.out:
            break
    else:
        pytest.skip(f"the machine had no time for this in {MOST_TRIES} tries")
    assert ran.status == pytest.ExitCode.TESTS_FAILED, ran.out
    assert "The customer was charged twice" in ran.out
    assert "double charge (reproduced)" in ran.out, "the control ran beside it"
    assert f"{installed.repository}/reports/results.json" in ran.out
    assert str(CLONE / "harness") not in ran.out, "the wheel's packages ran, not the clone's"
    assert (installed.repository / "reports" / "index.html").is_file()


def test_another_projects_scenarios_are_refused(installed: Installed) -> None:
    other = installed.repository / "other"
    (other / "scenarios").mkdir(parents=True)
    (other / "scenarios" / "__init__.py").touch()
    ran = installed.pytest("--pyargs", "scenarios", cwd=other, as_module=True)
    assert ran.status == pytest.ExitCode.USAGE_ERROR, ran.out
    assert f"the package scenarios is that of {other}/scenarios" in ran.out
    assert f"lockproof runs from {installed.packages}/harness" in ran.out


def test_scenarios_of_a_clone_are_refused_by_an_installed_plugin(installed: Installed) -> None:
    clone = installed.repository / "clone"
    shutil.copytree(CLONE / "scenarios", clone / "scenarios", ignore=shutil.ignore_patterns("__pycache__"))
    ran = installed.pytest("scenarios/", "-k", "before-commit", cwd=clone)
    assert ran.status == pytest.ExitCode.USAGE_ERROR, ran.out
    assert f"the package scenarios is that of {clone}/scenarios" in ran.out


def test_tests_that_have_nothing_to_do_with_it_are_left_alone(installed: Installed) -> None:
    (installed.repository / "scenarios").mkdir()
    (installed.repository / "scenarios" / "__init__.py").touch()
    (installed.repository / "scenarios" / "test_own.py").write_text("def test_own():\n    pass\n")
    ran = installed.pytest("scenarios/")
    assert ran.status == pytest.ExitCode.OK, ran.out
    assert "1 passed" in ran.out
