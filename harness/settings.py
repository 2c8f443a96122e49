"""What a run is asked to do: the options (options.py), checked before any server starts."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.options import HOLES, OPTIONS, Option, refuse_unread
from harness.spec import BadToken, Token
from harness.stack.addresses import STAND_IN, BadAddress, ServerUrl, postgres_url, redis_url, without_secrets
from harness.subject import Subject
from harness.variants import LEASE_FACTORS, SCENARIO_ONLY, VARIANTS

CONTROL = "naive-ttl"
LEAST_TTL_MS = 200
"""Below this the machine's own timing (some 10 ms of scheduling on a busy machine) is no small part of a lease."""
MOST_TTL_MS = 120_000
MOST_RUNS = 10_000
MOST_NODES = 9
"""Each node is a server of the experiment's own but for the first, and hundreds of experiments run side by side."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one run, checked. subjects are those under test, the control first where it runs beside."""

    subjects: tuple[Subject, ...]
    own: Subject | None
    ttl_ms: int
    delay_leases: float
    runs: int
    seed: int
    stack: str
    setup: Subject | None
    report: Path
    cwd: str
    redis: ServerUrl | None = None
    """Somebody's own Redis, in the place of the local stack's."""
    redis_flush: bool = False
    postgres: ServerUrl | None = None
    toxiproxy: str | None = None
    """The local stack's Toxiproxy server: a program, or the stand-in; None: whichever there is."""
    replay: Token | None = None
    narrowed: bool = False
    """Only some of the built-in variants were asked for."""
    doctor: bool = False
    all_rows: bool = False
    holes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Holes of the user's own subject, from the ini: (fault, place) -> reason."""
    flags: str = ""
    """The flags that a replay of this run needs, as typed."""

    def is_own(self, subject: str) -> bool:
        """Whether a subject is the user's, not a built-in variant."""
        return self.own is not None and subject == self.own.name

    def runs_of(self, subject: str) -> int:
        """How often each experiment of a subject is made: once where it is the control beside the user's own lock.

        A variant that was asked for by name is no mere control.
        """
        return self.runs if self.own is None or self.is_own(subject) or self.narrowed else 1


def _number(option: Option, value: Any, least: float, most: float, why: str) -> Any:
    try:
        number = option.kind(value)
    except ValueError:
        raise pytest.UsageError(f"{option.flag} {value}: not a number") from None
    if not least <= number <= most:
        raise pytest.UsageError(f"{option.flag} {value}: must be from {least:g} to {most:g} ({why})")
    return number


def read(config: pytest.Config) -> Settings:
    """The settings of this run. Raises pytest.UsageError that names the option and the remedy."""
    values = {option.name: option.given(config) for option in OPTIONS}
    by_name = {option.name: option for option in OPTIONS}
    if values["stack"] not in ("local", "compose"):
        raise pytest.UsageError(f"--harness-stack {values['stack']}: one of local, compose")
    ttl_ms = _number(
        by_name["ttl"], values["ttl"], LEAST_TTL_MS, MOST_TTL_MS, "a shorter lease drowns in this machine's timing"
    )
    delay = _number(by_name["delay"], values["delay"], 1.3, 8, "a charge that is faster than the lease shows nothing")
    runs = _number(by_name["runs"], values["runs"], 1, MOST_RUNS, "each run repeats every experiment")
    seed = _number(by_name["seed"], values["seed"], 0, 2**63 - 1, "it seeds a generator")
    nodes = _number(by_name["redis-nodes"], values["redis-nodes"], 1, MOST_NODES, "each is a server of its own")
    cwd = str(config.invocation_params.dir)
    redis, postgres = _own_servers(values)
    own = _own_subject(values["subject"], values["worker"], cwd)
    if own is not None:
        own = replace(own, redis_nodes=nodes)
    elif nodes > 1:
        raise pytest.UsageError(
            f"--harness-redis-nodes {nodes}: the built-in variants have one Redis. It is about your own lock: give "
            "--harness-subject or --harness-worker"
        )
    return Settings(
        subjects=_subjects(values["variant"], own),
        own=own,
        ttl_ms=ttl_ms,
        delay_leases=delay,
        runs=runs,
        seed=seed,
        stack=values["stack"],
        setup=_setup(values["setup"], cwd),
        report=Path(cwd, values["report"]),
        cwd=cwd,
        redis=redis,
        redis_flush=bool(values["redis-flush"]),
        postgres=postgres,
        toxiproxy=_toxiproxy(values),
        replay=_token(values["replay"]),
        narrowed=bool(values["variant"]),
        doctor=bool(values["doctor"]),
        all_rows=bool(values["all-rows"]),
        holes=_holes(config.getini(HOLES), own),
        flags=_flags(values, by_name),
    )


def refuse_bad_company(config: pytest.Config, items: Sequence[pytest.Item] = ()) -> None:
    """What no experiment can be run with: another system, reruns of failed tests, options that reach nobody.

    Raises pytest.UsageError.

    Asked only where there are experiments: other tests of an environment that has lockproof are nobody's business.
    """
    if sys.platform != "linux":
        raise pytest.UsageError(
            f"lockproof runs on Linux only, this is {sys.platform}: the witness of every fault is the Linux kernel "
            "(/proc, TCP_INFO). Run it in a Linux container or virtual machine"
        )
    refuse_unread(config)
    if config.pluginmanager.hasplugin("rerunfailures"):
        asked = {f"--{name}": config.getoption(name.replace("-", "_"), None) for name in ("reruns", "force-reruns")}
        asked |= {"reruns in the ini": config.getini("reruns")}
        asked |= {"@pytest.mark.flaky": any(item.get_closest_marker("flaky") is not None for item in items)}
        for name, value in asked.items():
            if str(value or 0) != "0":
                raise pytest.UsageError(
                    f"{name} (pytest-rerunfailures) would hide a double charge that shows only sometimes: remove it. "
                    "Inconclusive experiments are run again by the harness itself"
                )


def _own_servers(values: Mapping[str, Any]) -> tuple[ServerUrl | None, ServerUrl | None]:
    given = [name for name in ("redis-url", "postgres-url") if values[name]]
    if given and values["stack"] == "compose":
        raise pytest.UsageError(
            f"--harness-{given[0]} goes with the local stack: Toxiproxy in its container cannot reach it. On the "
            "composed stack give an image of yours instead (REDIS_IMAGE, POSTGRES_IMAGE)"
        )
    if values["redis-flush"] and not values["redis-url"]:
        raise pytest.UsageError("--harness-redis-flush is about your own Redis: give --harness-redis-url")
    try:
        redis = redis_url(values["redis-url"]) if values["redis-url"] else None
        postgres = postgres_url(values["postgres-url"]) if values["postgres-url"] else None
    except BadAddress as error:
        raise pytest.UsageError(f"one of {', '.join(f'--harness-{name}' for name in given)}: {error}") from None
    return redis, postgres


def _toxiproxy(values: Mapping[str, Any]) -> str | None:
    asked: str | None = values["toxiproxy"]
    if asked and values["stack"] == "compose":
        raise pytest.UsageError(
            f"--harness-toxiproxy {asked} goes with the local stack. On the composed stack give an image "
            "(TOXIPROXY_IMAGE)"
        )
    if asked and asked != STAND_IN and shutil.which(asked) is None:
        raise pytest.UsageError(f"--harness-toxiproxy {asked}: no such program; or give {STAND_IN}")
    return asked


def _own_subject(callable_: str | None, command: str | None, cwd: str) -> Subject | None:
    if callable_ and command:
        raise pytest.UsageError("--harness-subject and --harness-worker: give one, a run tries one lock")
    if callable_:
        module, _, name = callable_.partition(":")
        if not re.fullmatch(r"[\w.]+:[\w.]+", callable_):
            raise pytest.UsageError(f"--harness-subject {callable_}: give MODULE:CALLABLE, like myapp.billing:charge")
        if module.endswith(".py"):
            raise pytest.UsageError(
                f"--harness-subject {callable_}: that is a file. Give the module, {module.removesuffix('.py')}:{name}"
            )
        sys.path.insert(0, cwd)
        try:
            found = importlib.util.find_spec(module.partition(".")[0])
        finally:
            sys.path.remove(cwd)
        if found is None:
            raise pytest.UsageError(
                f"--harness-subject {callable_}: no module {module.partition('.')[0]} in {cwd} or on sys.path. "
                "Start pytest where it can be imported, or install it"
            )
        return Subject(_slug(f"{module}-{name}"), "callable", callable_)
    if command:
        words = _words("--harness-worker", command)
        if not words:
            raise pytest.UsageError("--harness-worker: the command is empty")
        program = words[0] if os.sep not in words[0] else str(Path(cwd, words[0]))
        if shutil.which(program) is None:
            raise pytest.UsageError(f"--harness-worker {command}: no program {words[0]} on PATH or in {cwd}")
        return Subject(_slug("-".join(Path(word).name for word in words)), "command", tuple(words))
    return None


def _subjects(names: Any, own: Subject | None) -> tuple[Subject, ...]:
    for name in names:
        if name not in VARIANTS:
            raise pytest.UsageError(f"--harness-variant {name}: unknown; there are {', '.join(VARIANTS)}")
    if own is not None:
        chosen = dict.fromkeys([CONTROL, *names])
        return (*(variant(name) for name in chosen), own)
    return tuple(variant(name) for name in (names or VARIANTS))


def variant(name: str) -> Subject:
    """A built-in subject by its name."""
    module = VARIANTS.get(name) or SCENARIO_ONLY[name]
    return Subject(name, "variant", f"{module}:run", LEASE_FACTORS.get(name, 1.0))


def _words(flag: str, command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise pytest.UsageError(f"{flag} {command}: not a command of a shell's words ({error})") from None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "subject"


SETUP = "--harness-setup"
"""The setup's name among the subjects: none of them can be called so."""


def _setup(value: str | None, cwd: str) -> Subject | None:
    if value is None:
        return None
    if re.fullmatch(r"[\w.]+:[\w.]+", value):
        return Subject(SETUP, "callable", value)
    words = _words(SETUP, value)
    if not words or (shutil.which(words[0]) is None and not Path(cwd, words[0]).exists()):
        raise pytest.UsageError(f"{SETUP} {value}: no such program, and not MODULE:CALLABLE")
    return Subject(SETUP, "command", tuple(words))


def _token(value: str | None) -> Token | None:
    if value is None:
        return None
    try:
        return Token.parse(value)
    except BadToken as error:
        raise pytest.UsageError(f"--harness-replay: {error}") from None


def _holes(lines: list[str], own: Subject | None) -> dict[tuple[str, str], str]:
    holes = {}
    for line in lines:
        match = re.fullmatch(r"([a-z0-9-]+)@([a-z0-9.-]+)\s*=\s*(\S.*)", line.strip())
        if match is None:
            raise pytest.UsageError(f"harness_holes: {line!r} is not FAULT@PLACE = reason")
        holes[match[1], match[2]] = match[3]
    if holes and own is None:
        raise pytest.UsageError(
            "harness_holes are holes of your own subject: give --harness-subject or --harness-worker"
        )
    return holes


def _flags(values: Mapping[str, Any], by_name: Mapping[str, Option]) -> str:
    words = []
    for name in (
        "subject",
        "worker",
        "setup",
        "ttl",
        "delay",
        "stack",
        "redis-url",
        "redis-nodes",
        "postgres-url",
        "toxiproxy",
    ):
        if values[name] != by_name[name].default and values[name] is not None:
            words += [by_name[name].flag, shlex.quote(_shown(name, str(values[name])))]
    if values["redis-flush"]:
        words.append(by_name["redis-flush"].flag)
    return " ".join(words)


def _shown(name: str, value: str) -> str:
    """An option as it may be printed: a URL without its password (HARNESS_REDIS_URL and the like are for that)."""
    return without_secrets(value) if name.endswith("-url") else value
