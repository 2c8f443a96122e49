"""python -m fakes.processor --ledger FILE --payment A=127.0.0.1:0 --payment B=127.0.0.1:0 --control 127.0.0.1:0

Prints one line of JSON when it accepts connections, and nothing else on standard output:
{"payment": {"A": "http://127.0.0.1:PORT", ...}, "control": "http://127.0.0.1:PORT", "boot": "<id of this start>"}
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from fakes.processor.control import control_application
from fakes.processor.ledger import Ledger
from fakes.processor.payments import payment_application
from fakes.processor.processor import Processor
from fakes.processor.server import Server, listen, url

Address = tuple[str, int]
LOOPBACK: Address = ("127.0.0.1", 0)


def address(value: str) -> Address:
    """HOST:PORT, the host spelt out ([::1]:0 for IPv6): nothing is ever bound to all interfaces by default."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not HOST:PORT (port 0 takes a free one)")
    return host.removeprefix("[").removesuffix("]"), int(port)


def payment_address(value: str) -> tuple[str, Address]:
    role, _, rest = value.partition("=")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", role):
        raise argparse.ArgumentTypeError(f"{value!r} is not ROLE=HOST:PORT")
    return role, address(rest)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m fakes.processor", description="The fake payment processor.")
    parser.add_argument("--ledger", type=Path, required=True, metavar="FILE", help="SQLite file; created if missing")
    parser.add_argument(
        "--payment",
        type=payment_address,
        action="append",
        required=True,
        metavar="ROLE=HOST:PORT",
        help="a payment address, and who calls there; may be given more than once",
    )
    parser.add_argument(
        "--control", type=address, default=LOOPBACK, metavar="HOST:PORT", help="default: 127.0.0.1, a free port"
    )
    options = parser.parse_args(argv)
    roles = [role for role, _ in options.payment]
    if len(set(roles)) != len(roles):
        parser.error("--payment: each role needs one address of its own")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT (0). 2: bad options; 1: the ledger or an address cannot be used."""
    options = arguments(argv)
    try:
        ledger = Ledger(options.ledger)
    except (OSError, sqlite3.Error) as error:
        return _fail(f"--ledger {options.ledger}: {error}")
    with ledger:
        try:
            payment = {role: listen(*where) for role, where in options.payment}
            control = listen(*options.control)
        except OSError as error:
            return _fail(f"an address cannot be used: {error}")
        processor = Processor(ledger)
        applications = {sock.getsockname()[1]: payment_application(processor, role) for role, sock in payment.items()}
        applications[control.getsockname()[1]] = control_application(processor, tuple(payment))
        if len(applications) != len(payment) + 1:
            return _fail("every address needs a port of its own: it tells who called")

        def ready() -> None:
            urls = {role: url(sock) for role, sock in payment.items()}
            print(json.dumps({"payment": urls, "control": url(control), "boot": processor.boot}), flush=True)

        asyncio.run(Server(applications, ready).serve(sockets=[*payment.values(), control]))
    return 0


def _fail(why: str) -> int:
    print(f"fakes.processor: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
