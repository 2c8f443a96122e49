"""HOST:PORT to a socket address, with the rules and the errors of Go's net package (ipsock.go, port.go)."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from dataclasses import dataclass


class BadAddress(Exception):
    """The address cannot be parsed or resolved; the message is Go's."""


@dataclass(frozen=True, slots=True)
class Address:
    """A resolved TCP address. host: an IP address, empty for every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")


async def resolve(text: str) -> list[Address]:
    """The addresses that text stands for, IPv4 first; an empty text is every interface, any port. Raises BadAddress."""
    if not text:
        return [Address("", 0)]
    host, service = _split(text)
    port = _port(service)
    literal = _literal(host)
    if not host or literal:
        return [Address(literal, port)]
    if not _may_be_a_name(host):
        raise BadAddress(f"lookup {host}: no such host")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise BadAddress(f"lookup {host}: no such host") from None
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return [Address(str(each[4][0]), port) for each in found]


async def listen(text: str) -> socket.socket:
    """A listening socket, non-blocking. Raises BadAddress, with the reason in Go's words where it cannot be had."""
    try:
        address = (await resolve(text))[0]
    except BadAddress as error:
        raise BadAddress(f"listen tcp: {error}") from None
    both = address.is_wildcard and socket.has_dualstack_ipv6()
    where = Address("::" if both else "0.0.0.0", address.port) if address.is_wildcard else address
    try:
        listener = socket.create_server(
            (where.host, where.port), family=where.family, backlog=socket.SOMAXCONN, dualstack_ipv6=both
        )
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise BadAddress(f"listen tcp {address}: bind: {reason}") from None
    # Accepted sockets inherit it. asyncio sets it only on sockets that name TCP as their protocol, and these do
    # not; without it, an answer in two writes waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def listening_on(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return str(Address(host, port))


def _split(text: str) -> tuple[str, str]:
    """net.SplitHostPort."""

    def refuse(why: str) -> BadAddress:
        return BadAddress(f"address {text}: {why}")

    colon = text.rfind(":")
    if colon < 0:
        raise refuse("missing port in address")
    if text[0] == "[":
        end = text.find("]")
        if end < 0:
            raise refuse("missing ']' in address")
        if end + 1 != colon:
            raise refuse("too many colons in address" if text[end + 1 : end + 2] == ":" else "missing port in address")
        host, opening_from, closing_from = text[1:end], 1, end + 1
    else:
        host, opening_from, closing_from = text[:colon], 0, 0
        if ":" in host:
            raise refuse("too many colons in address")
    if "[" in text[opening_from:]:
        raise refuse("unexpected '[' in address")
    if "]" in text[closing_from:]:
        raise refuse("unexpected ']' in address")
    return host, text[colon + 1 :]


def _port(service: str) -> int:
    if not service:
        return 0
    if re.fullmatch(r"[+-]?[0-9]*", service):
        digits = service.lstrip("+-").lstrip("0") or "0"
        number = int(digits) if len(digits) < 6 else 1 << 30
        number = -number if service[0] == "-" else number
        if not 0 <= number <= 65535:
            raise BadAddress(f"address {service}: invalid port")
        return number
    try:
        return socket.getservbyname(service, "tcp")
    except (OSError, UnicodeError, ValueError):
        raise BadAddress(f"lookup tcp/{service}: unknown port") from None


def _literal(host: str) -> str:
    """The IP address that host is, in its usual form; empty when host is none."""
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return ""
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _may_be_a_name(host: str) -> bool:
    """Go sends no name made of digits and dots to the resolver; getaddrinfo would take 127.1 for an address."""
    return re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", host) is not None and re.fullmatch(r"[0-9.]+", host) is None
