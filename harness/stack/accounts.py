"""Servers that refuse to run as root: whom they run as instead, and where that account can read and write.

PostgreSQL and PgBouncer both refuse root. A harness that runs as root starts them as an account without rights, for
which the checkout, the virtual environment and most temporary directories may well be closed.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.stack import StackError

Account = tuple[int, int]
"""(uid, gid) of the account a server is started as."""

ACCOUNTS = ("postgres", "nobody")
"""The accounts tried, in this order: the one made for it, then the one that every POSIX system has."""

RUN_PREFIX = "lockproof-"
"""How the directories that a run makes for itself are called."""

_ROOM_BYTES = 1 << 30
_SWEPT_AFTER_S = 60.0
"""Between making a directory and locking it passes an instant."""


class ServerUnavailable(StackError):
    """This server cannot be had on this machine; the message says why and what would help."""


def server_account() -> Account | None:
    """Whom to start a server as: None (as the harness itself) unless the harness is root.

    Raises ServerUnavailable where root has no account to step down to.
    """
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return entry.pw_uid, entry.pw_gid
    raise ServerUnavailable(f"running as root, and no account {' or '.join(ACCOUNTS)} to start a server as")


def can_read(path: Path, account: Account | None) -> bool:
    """Whether the account may read this file, or list and enter this directory, by its mode and its parents' modes."""
    if account is None:
        return os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))
    try:
        real = path.resolve(strict=True)
        need = stat.S_IROTH | (stat.S_IXOTH if real.is_dir() else 0)
        return _granted(real, account, need) and all(_granted(p, account, stat.S_IXOTH) for p in real.parents)
    except OSError:
        return False


def _granted(path: Path, account: Account, bits: int) -> bool:
    """Whether the mode grants these bits (given as those of others): owner, group and others exclude each other."""
    info = path.stat()
    shift = 6 if info.st_uid == account[0] else 3 if info.st_gid == account[1] else 0
    return info.st_mode & (bits << shift) == bits << shift


class Home:
    """A server's own directory: ours, so that the server's account cannot put links in our way, and searchable to it.

    It is made in the run's directory, so that whatever ends the run can remove it with that; for the account's sake
    the run's directories are opened for searching, nothing else (mode 0711). Where that is not enough, as below a
    temporary directory of pytest's, or where memory is asked for, it is made elsewhere. Such a one may outlive a
    run that was killed: it is locked (flock) for as long as this process lives, and the next run removes it.
    Raises ServerUnavailable when the account can get nowhere.
    """

    def __init__(self, run: Path, account: Account | None, name: str, *, in_memory: bool = False) -> None:
        run.mkdir(parents=True, exist_ok=True)
        prefix = f"{RUN_PREFIX}{name}-"
        for directory in (run, *run.parents) if account is not None else ():
            info = directory.stat()
            if info.st_uid == os.geteuid() and (directory == run or directory.name.startswith(RUN_PREFIX)):
                directory.chmod(stat.S_IMODE(info.st_mode) | stat.S_IXOTH)
        memory = roomy_memory() if in_memory else None
        elsewhere = [memory] if memory is not None and memory.stat().st_dev != run.stat().st_dev else []
        for place in (*elsewhere, run, *public_directories()):
            if account is None or _reaches(place, account):
                if place != run:
                    _sweep(place, prefix)
                self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
                break
        else:
            raise ServerUnavailable(f"uid {account} can enter neither {run} nor any public temporary directory")
        if account is not None:
            self.path.chmod(0o711)
        self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Removes it with all that the server wrote."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def _sweep(place: Path, prefix: str) -> None:
    """Removes what runs that were killed left there: no process holds its lock any more."""
    for left in place.glob(f"{prefix}*"):
        try:
            info = left.lstat()
            if info.st_uid != os.geteuid() or time.time() - info.st_mtime < _SWEPT_AFTER_S:
                continue
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(handle)


def roomy_memory() -> Path | None:
    """A directory in memory with room for a run's files; None on macOS, or in a container with Docker's 64 MB.

    Making a file of 24 kB takes 0.02 ms there, and was measured to take 0.7 ms on a disk with ext4.
    """
    place = Path("/dev/shm")
    try:
        room = os.statvfs(place)
    except OSError:
        return None
    return place if room.f_bavail * room.f_frsize >= _ROOM_BYTES and os.access(place, os.W_OK | os.X_OK) else None


def public_directories() -> Iterator[Path]:
    """The system's temporary directories, the configured one first."""
    seen = set()
    for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        place = Path(name)
        if place.is_dir() and place not in seen:
            seen.add(place)
            yield place


def cache_directory(account: Account | None) -> Path | None:
    """A directory that outlives the run and that nobody but this user can have written to; None if none can be trusted.

    In a public temporary directory anybody can have made a directory of this name first, so it is used only if it is
    a real directory, ours, and writable by us alone, in a parent where nobody can rename what is ours.
    """
    for place in public_directories():
        made = place / f"lockproof-cache-{os.geteuid()}"
        parent = place.stat()
        if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
            continue
        try:
            made.mkdir(mode=0o700)
            made.chmod(0o700 if account is None else 0o711)
        except FileExistsError:
            pass
        except OSError:
            continue
        info = made.lstat()
        ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
        if ours and (account is None or _reaches(made, account)):
            return made
    return None


def _reaches(directory: Path, account: Account) -> bool:
    real = directory.resolve()
    return all(_granted(p, account, stat.S_IXOTH) for p in (real, *real.parents))
