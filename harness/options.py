"""Every --harness- option and its ini twin."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Option:
    """One option: --harness-NAME, its ini twin harness_NAME, its default and what it is for."""

    name: str
    default: Any
    help: str
    kind: type = str
    many: bool = False
    switch: bool = False
    choices: tuple[str, ...] | None = None
    metavar: str | None = None

    @property
    def flag(self) -> str:
        return f"--harness-{self.name}"

    @property
    def key(self) -> str:
        return f"harness_{self.name.replace('-', '_')}"

    def given(self, config: pytest.Config) -> Any:
        """What was asked for, by the flag, the environment or the ini; else the default.

        Raises pytest.UsageError for a flag that is given nothing: a variable that is not set would else run the
        built-in variants in place of the lock it should name, green.
        """
        given = config.getoption(self.key)
        if given == "" or (isinstance(given, list) and "" in given):
            raise pytest.UsageError(
                f"{self.flag} is empty: is the variable set that it is taken from? Leave it out else"
            )
        if given not in (None, []):
            return given
        if self.name in FROM_ENVIRONMENT and (env := os.environ.get(self.key.upper())):
            return env
        ini = config.getini(self.key)
        return self.default if ini in (None, "", []) else ini


OPTIONS = (
    Option("stack", "local", "where the servers come from", choices=("local", "compose")),
    Option("redis-url", None, "your own Redis under test, instead of the local stack's", metavar="URL"),
    Option(
        "redis-flush", False, "let the databases used of your own Redis be emptied, whatever they hold", switch=True
    ),
    Option("redis-nodes", 1, "Redis servers that your own lock asks for, in REDIS_URLS", kind=int, metavar="N"),
    Option("postgres-url", None, "your own PostgreSQL under test, instead of the local stack's", metavar="URL"),
    Option(
        "toxiproxy",
        None,
        "the local stack's Toxiproxy server (default: TOXIPROXY_SERVER, toxiproxy-server on PATH, else the stand-in)",
        metavar="PROGRAM|stand-in",
    ),
    Option("variant", (), "try this built-in variant only (repeatable)", many=True, metavar="NAME"),
    Option("subject", None, "your own lock: a Python callable that gets the Job", metavar="MODULE:CALLABLE"),
    Option("worker", None, "your own lock: a command that does the job of its environment", metavar="COMMAND"),
    Option(
        "setup", None, "run before each experiment (migrations, the invoice row)", metavar="COMMAND|MODULE:CALLABLE"
    ),
    Option("ttl", 1000, "the lease to ask for, in milliseconds", kind=int, metavar="MS"),
    Option("delay", 2.5, "how long a slow charge takes, as a multiple of the lease", kind=float, metavar="LEASES"),
    Option(
        "runs",
        1,
        "repeat every experiment, with seeded jitter; not the control beside one's own lock",
        kind=int,
        metavar="N",
    ),
    Option("seed", 0, "seed of the jitter", kind=int, metavar="N"),
    Option("replay", None, "run one experiment again, alone, and print its timeline", metavar="TOKEN"),
    Option("report", "reports", "directory for results.json and index.html", metavar="DIR"),
    Option("doctor", False, "run one baseline and print what was learned of the subject", switch=True),
    Option("all-rows", False, "print sweep tables whole, not only rows with a failure", switch=True),
)


HOLES = "harness_holes"
FROM_ENVIRONMENT = ("stack", "redis-url", "redis-nodes", "postgres-url")
"""Options that HARNESS_STACK and the like set too, between the flag and the ini: a URL may hold a password."""
NEVER_FROM_ENVIRONMENT = ("subject", "worker", "variant", "setup")
"""Whose variable would be passed over in silence, and another lock be tried than the one that it names."""
_PREFIX = "harness_"


def refuse_unread(config: pytest.Config) -> None:
    """What was meant for the harness and would reach nobody: a mistyped ini key, a variable that is empty or not read.

    Another lock would be tried than the one it names, or a Redis of the harness's own in place of the user's, green.
    pytest only warns of an ini key that it does not know. Raises pytest.UsageError.
    """
    known = [option.key for option in OPTIONS] + [HOLES]
    for key in sorted(key for key in config._inicfg if key.replace("-", "_").startswith(_PREFIX)):
        try:
            config.getini(key)
        except ValueError:
            like = difflib.get_close_matches(key, known, 1, 0)
            raise pytest.UsageError(
                f"{key} in {config.inipath or 'the ini'}: the harness has no such option; is {like[0]} meant?"
            ) from None
    read = ", ".join(option.key.upper() for option in OPTIONS if option.name in FROM_ENVIRONMENT)
    for option in OPTIONS:
        if option.name in FROM_ENVIRONMENT and os.environ.get(option.key.upper()) == "":
            raise pytest.UsageError(
                f"{option.key.upper()} is set and empty: is the secret set that it is taken from? Unset it else"
            )
        if option.name in NEVER_FROM_ENVIRONMENT and option.key.upper() in os.environ:
            raise pytest.UsageError(
                f"{option.key.upper()} is set, and nothing reads it: give {option.flag}, or {option.key} in the ini. "
                f"From the environment come only {read}"
            )


def add_options(parser: pytest.Parser) -> None:
    """Registers the flags, in one group, and their ini twins."""
    group = parser.getgroup("harness", "lockproof: fault injection for distributed locks around money")
    for option in OPTIONS:
        shown = f"{option.help} (default: {option.default})" if option.default not in (None, (), False) else option.help
        if option.switch:
            group.addoption(option.flag, action="store_true", default=None, dest=option.key, help=option.help)
            parser.addini(option.key, shown, type="bool", default=False)
        elif option.many:
            group.addoption(option.flag, action="append", dest=option.key, metavar=option.metavar, help=option.help)
            parser.addini(option.key, shown, type="args", default=[])
        else:
            group.addoption(
                option.flag, dest=option.key, metavar=option.metavar, choices=option.choices, default=None, help=shown
            )
            parser.addini(option.key, shown, default=None)
    parser.addini(HOLES, "known holes of your own subject: FAULT@PLACE = reason", type="linelist", default=[])
