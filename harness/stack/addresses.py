"""Addresses of one's own servers: --harness-redis-url, --harness-postgres-url."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from harness.stack import Address

STAND_IN = "stand-in"
"""--harness-toxiproxy: fakes/toxiproxy, whatever else there is."""
_TAP = "the tap on the worker's link has to read what it sends"


class BadAddress(ValueError):
    """A URL that cannot be used; says why and what to do."""


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A URL's parts. database is the part of the path, None where there is none."""

    host: str
    port: int
    user: str | None
    password: str | None
    database: str | None

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def shown(self) -> str:
        """Where it is, without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def credentials(self) -> str:
        """user:password@ as a URL has them; empty where there are none."""
        if self.user is None and self.password is None:
            return ""
        password = "" if self.password is None else f":{quote(self.password, safe='')}"
        return f"{quote(self.user or '', safe='')}{password}@"


def redis_url(text: str) -> ServerUrl:
    """redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]. Raises BadAddress."""
    url = _split(text, {"redis": 6379}, {"rediss": f"TLS is not supported, because {_TAP}", "unix": "give HOST:PORT"})
    if parse_qsl(url.query):
        raise BadAddress(f"{without_secrets(text)}: options behind ? are not supported")
    found = _parts(text, url, 6379)
    if found.database is not None and not found.database.isdecimal():
        raise BadAddress(f"{without_secrets(text)}: the database is a number, like /3")
    return found


def postgres_url(text: str) -> ServerUrl:
    """postgresql://USER[:PASSWORD]@HOST[:PORT][/DATABASE], without TLS. Raises BadAddress."""
    url = _split(text, {"postgresql": 5432, "postgres": 5432}, {})
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name != "sslmode":
            raise BadAddress(f"{without_secrets(text)}: of the options behind ? only sslmode is supported, not {name}")
        if value not in ("disable", "allow", "prefer"):
            raise BadAddress(f"{without_secrets(text)}: TLS (sslmode={value}) is not supported, because {_TAP}")
    found = _parts(text, url, 5432)
    if not found.user:
        raise BadAddress(f"{without_secrets(text)}: no user; give postgresql://USER:PASSWORD@HOST/")
    return found


def _split(text: str, known: dict[str, int], refused: dict[str, str]) -> SplitResult:
    try:
        url = urlsplit(text)
        _ = url.port  # raises ValueError where it is no number
    except ValueError as error:
        raise BadAddress(f"not a URL: {error}") from None
    if url.scheme in refused:
        raise BadAddress(f"{without_secrets(text)}: {refused[url.scheme]}")
    if url.scheme not in known or not url.hostname:
        raise BadAddress(f"{without_secrets(text)}: give {next(iter(known))}://HOST:PORT")
    return url


def _parts(text: str, url: SplitResult, port: int) -> ServerUrl:
    database = unquote(url.path.strip("/")) or None
    user = None if url.username is None else unquote(url.username)
    password = None if url.password is None else unquote(url.password)
    if url.hostname is None:
        raise BadAddress(f"{without_secrets(text)}: no host")
    return ServerUrl(url.hostname, url.port or port, user or None, password, database)


def without_secrets(text: str) -> str:
    """A URL as it may be shown: its password is replaced by asterisks."""
    head, at, tail = text.rpartition("@")
    scheme, slashes, login = head.partition("://")
    user, colon, _ = login.partition(":")
    return f"{scheme}{slashes}{user}{colon}{'***' if colon else ''}{at}{tail}"
