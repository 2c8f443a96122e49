"""URLs of one's own servers: what is understood, what is refused, and that no password is shown."""

from __future__ import annotations

import pytest

from harness.stack.addresses import BadAddress, ServerUrl, postgres_url, redis_url, without_secrets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://db.example", ServerUrl("db.example", 6379, None, None, None)),
        ("redis://localhost:7000/3", ServerUrl("localhost", 7000, None, None, "3")),
        ("redis://:pw@h/", ServerUrl("h", 6379, None, "pw", None)),
        ("redis://job:p%40ss%2Fw@h:1/0", ServerUrl("h", 1, "job", "p@ss/w", "0")),
        ("redis://[::1]:6380", ServerUrl("::1", 6380, None, None, None)),
    ],
)
def test_a_redis_url_is_taken_apart(text: str, expected: ServerUrl) -> None:
    assert redis_url(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://ci@h", ServerUrl("h", 5432, "ci", None, None)),
        ("postgres://ci:p%3Aw@h:6000/jobs?sslmode=disable", ServerUrl("h", 6000, "ci", "p:w", "jobs")),
    ],
)
def test_a_postgres_url_is_taken_apart(text: str, expected: ServerUrl) -> None:
    assert postgres_url(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rediss://h", "TLS is not supported"),
        ("unix:///tmp/redis.sock", "give HOST:PORT"),
        ("http://h", "give redis://HOST:PORT"),
        ("redis://", "give redis://HOST:PORT"),
        ("redis://h:seven", "not a URL"),
        ("redis://h/jobs", "the database is a number"),
        ("redis://h?db=3", "options behind"),
    ],
)
def test_a_redis_url_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(BadAddress, match=why):
        redis_url(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("postgresql://h", "no user"),
        ("postgresql://ci@h?sslmode=require", "TLS"),
        ("postgresql://ci@h?options=-c", "only sslmode"),
        ("mysql://ci@h", "give postgresql://HOST:PORT"),
    ],
)
def test_a_postgres_url_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(BadAddress, match=why):
        postgres_url(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://job:hunter2@h:1/0", "redis://job:***@h:1/0"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("redis://:hunter@2@h", "redis://:***@h"),
        ("redis://h:6379/1", "redis://h:6379/1"),
        ("postgresql://ci@h/", "postgresql://ci@h/"),
    ],
)
def test_a_password_is_never_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    with pytest.raises(BadAddress) as caught:
        redis_url(text.replace("redis:", "rediss:").replace("postgresql:", "rediss:"))
    assert "hunter" not in str(caught.value)


def test_credentials_are_as_a_url_has_them() -> None:
    assert redis_url("redis://job:p%40ss%2Fw@h").credentials == "job:p%40ss%2Fw@"
    assert redis_url("redis://:pw@h").credentials == ":pw@"
    assert redis_url("redis://h").credentials == ""
