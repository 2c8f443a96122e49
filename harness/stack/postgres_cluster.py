"""The data directory of a new PostgreSQL server: made once per version, then unpacked from a cache.

initdb takes one to two seconds of a processor, unpacking what it made a tenth of one. The cache is a single file, so
that it is whole or not there: written aside and renamed, and checked against its own checksum when it is read (only
we can write there, so that is against accidents).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
import time
import zlib
from pathlib import Path

from harness.stack.accounts import Account
from harness.stack.postgres_install import UNUSED_S, Installation

FORMAT = 1
"""To be raised whenever a cluster is made differently."""

OWNER = "lockproof"
"""The role that owns every database, and as which workers and harness connect; no superuser, so that a server that
asks for no password hands nobody the account it runs as (COPY ... TO PROGRAM)."""

SUPERUSER = "postgres"

HBA = f"""\
host all {OWNER} 127.0.0.1/32 trust
host all {SUPERUSER} 127.0.0.1/32 scram-sha-256
"""

_HEADER = struct.Struct("!Q")


def initdb_argv(installation: Installation, data: Path, password_file: Path) -> list[str]:
    """The command that makes a cluster: no locale to depend on, small WAL segments, nothing synced to disk."""
    return [
        str(installation.bin / "initdb"),
        *("--pgdata", str(data)),
        *("--username", SUPERUSER),
        *("--pwfile", str(password_file)),
        *("--auth", "scram-sha-256"),
        *("--encoding", "UTF8"),
        *("--locale", "C"),
        *("--wal-segsize", "1"),
        "--no-sync",
        "--no-instructions",
    ]


def owner_statements(major: int) -> list[str]:
    """What the superuser does before it is locked out: the owner may make databases from template1, and watch."""
    may = [f"GRANT ALL ON SCHEMA public TO {OWNER}"] if major < 15 else []
    return [
        f"CREATE ROLE {OWNER} LOGIN CREATEDB IN ROLE pg_monitor",
        f"ALTER DATABASE template1 OWNER TO {OWNER}",
        *may,
    ]


def cache_name(installation: Installation, schema: str) -> str:
    """The cache's file name: another version, another build or another schema is another cluster."""
    what = "\0".join((str(FORMAT), installation.banner, str(installation.bin), HBA, schema, *owner_statements(15)))
    digest = hashlib.blake2b(what.encode(), digest_size=8).hexdigest()
    return f"cluster-{installation.version}-{digest}"


def pack(data: Path, file: Path) -> None:
    """Writes the data directory of a server that was shut down into file, which appears whole or not at all."""
    directories, files, content = [], [], bytearray()
    for path in sorted(data.rglob("*")):
        name = path.relative_to(data).as_posix()
        if path.is_dir():
            directories.append(name)
        else:
            written = path.read_bytes()
            files.append((name, len(written)))
            content += written
    index = json.dumps({"directories": directories, "files": files}).encode()
    body = _HEADER.pack(len(index)) + index + content
    handle, name = tempfile.mkstemp(prefix=".writing-", dir=file.parent)
    with os.fdopen(handle, "wb") as out:
        out.write(_HEADER.pack(zlib.crc32(body)))
        out.write(body)
    Path(name).replace(file)
    for old in file.parent.glob("cluster-*"):
        if old != file and time.time() - old.stat().st_mtime > UNUSED_S:
            old.unlink(missing_ok=True)


def unpack(file: Path, data: Path, account: Account | None) -> bool:
    """Makes data, a new directory, from file. False, and the file removed, when there is none or it is damaged."""
    try:
        packed = memoryview(file.read_bytes())
    except FileNotFoundError:
        return False
    body = packed[_HEADER.size :]
    if len(body) < _HEADER.size or _HEADER.unpack_from(packed)[0] != zlib.crc32(body):
        file.unlink(missing_ok=True)
        return False
    os.utime(file)  # in use: the next pack() leaves it alone
    position = _HEADER.size + _HEADER.unpack_from(body)[0]
    index = json.loads(bytes(body[_HEADER.size : position]))
    uid, gid = account or (-1, -1)
    data.mkdir(mode=0o700)
    for name in index["directories"]:
        (data / name).mkdir(mode=0o700)
        os.chown(data / name, uid, gid)
    for name, size in index["files"]:
        # Not Path.write_bytes(): a thousand files, and this is most of what starting a server costs.
        handle = os.open(f"{data}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(handle, body[position : position + size])
        os.fchown(handle, uid, gid)
        os.close(handle)
        position += size
    os.chown(data, uid, gid)  # last: root writes nothing where the account could have put a link in its way
    return True
