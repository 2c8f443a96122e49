"""results.json: its shape, reading it with errors that say what is wrong, writing it so that it is never half there.

The keys are a contract with other programs ("Output of a run" in the design notes); unknown keys are kept as they are.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, NotRequired, TypedDict, cast

SCHEMA = 2
VERDICTS = ("exactly-one", "double-charge", "no-charge", "inconclusive", "not-applicable")


class ResultsError(ValueError):
    """A results.json that cannot be used. The message names the file, what is wrong and what to do."""


class Attempt(TypedDict):
    """One try at an experiment. Inconclusive ones are run again; every try stays."""

    verdict: str
    reason: str
    events: NotRequired[list[dict[str, Any]]]


class Worker(TypedDict):
    """A worker process as it ended. log: what it printed that was no event."""

    name: str
    exit: int | None
    log: str


class Experiment(TypedDict):
    """One run of a subject with one fault at one place. source and origin are added by merge()."""

    id: str
    scenario: str
    subject: str
    fault: str
    place: str
    verdict: str
    expected: str
    hole: str | None
    reason: str
    charges: int
    landed: bool
    contended: bool
    attempts: list[Attempt]
    run: int
    ttl_ms: int
    recovery_s: float | None
    wall_s: float
    replay: str
    workers: list[Worker]
    events: list[dict[str, Any]]
    sentence: NotRequired[str]
    jitter: NotRequired[Any]
    source: NotRequired[str]


class Margin(TypedDict):
    """How close the subject's renewals came to its lease, over all histories of the run."""

    worst_gap_ms: float
    lease_ms: float
    renewals: int


class Subject(TypedDict):
    """The code under test and what the baseline learned about its lock."""

    name: str
    kind: str
    source: str | None
    lock: str | None
    lease_ms: int | None
    boundaries: list[str]
    unstable: list[str]
    margin: NotRequired[Margin | None]


class Run(TypedDict):
    """One results.json. sources, disagreements: only after merge()."""

    schema: int
    partial: bool
    seed: int
    started: str
    wall_s: float
    ttl_ms: int
    host: dict[str, Any]
    commit: str | None
    stack: dict[str, Any]
    subjects: list[Subject]
    experiments: list[Experiment]
    faults: NotRequired[dict[str, dict[str, Any]]]
    inconclusive: NotRequired[Any]
    recovery: NotRequired[Any]
    sweep: NotRequired[dict[str, dict[str, Any]]]
    sources: NotRequired[list[dict[str, Any]]]
    disagreements: NotRequired[list[dict[str, Any]]]


_NUMBER = (int, float)
_TEXT_OR_NONE = (str, type(None))
_RUN_KEYS: Mapping[str, Any] = {
    "schema": int,
    "partial": bool,
    "seed": int,
    "started": str,
    "wall_s": _NUMBER,
    "ttl_ms": int,
    "host": dict,
    "commit": _TEXT_OR_NONE,
    "stack": dict,
    "subjects": list,
    "experiments": list,
}
_SUBJECT_KEYS: Mapping[str, Any] = {
    "name": str,
    "kind": str,
    "source": _TEXT_OR_NONE,
    "lock": _TEXT_OR_NONE,
    "lease_ms": (int, float, type(None)),
    "boundaries": list,
    "unstable": list,
}
_EXPERIMENT_KEYS: Mapping[str, Any] = {
    "id": str,
    "scenario": str,
    "subject": str,
    "fault": str,
    "place": str,
    "verdict": str,
    "expected": str,
    "hole": _TEXT_OR_NONE,
    "reason": str,
    "charges": int,
    "landed": bool,
    "contended": bool,
    "attempts": list,
    "run": int,
    "ttl_ms": int,
    "recovery_s": (int, float, type(None)),
    "wall_s": _NUMBER,
    "replay": str,
    "workers": list,
    "events": list,
}
_EVENT_KEYS: Mapping[str, Any] = {"t_ms": _NUMBER, "witness": str, "who": str, "what": str}
_WORKER_KEYS: Mapping[str, Any] = {"name": str, "exit": (int, type(None)), "log": str}
_ATTEMPT_KEYS: Mapping[str, Any] = {"verdict": str, "reason": str}


def load(path: Path | str) -> Run:
    """Reads a results.json. Raises ResultsError when it is absent, cut short, no JSON, or of another shape."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path}: is not UTF-8 text, so no results.json (byte {error.start})") from error
    return loads(text, str(path))


def loads(text: str, name: str = "results.json") -> Run:
    """The same from a string. name is what errors call it."""
    if not text.strip():
        raise ResultsError(f"{name}: is empty; a run writes it whole or not at all, so something else cut it")
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg:
            raise ResultsError(
                f"{name}: ends in the middle (line {error.lineno}): the file was cut short, copy it again"
            ) from error
        raise ResultsError(f"{name}: is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise ResultsError(f"{name}: is nested too deeply to be a results.json") from error
    except ValueError as error:
        raise ResultsError(f"{name}: {error}") from error
    validate(data, name)
    return cast(Run, data)


def validate(data: object, name: str = "results.json") -> None:
    """Raises ResultsError naming the first key that is missing or of the wrong kind."""
    if not isinstance(data, dict):
        raise ResultsError(f"{name}: holds {_kind(data)} where a run (an object) belongs")
    if "schema" not in data:
        raise ResultsError(f"{name}: has no key 'schema', so it is no results.json of this harness")
    schema = data["schema"]
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        remedy = "use the lockproof that wrote it" if newer else "run again with this lockproof"
        raise ResultsError(f"{name}: has schema {schema!r}, this version reads {SCHEMA}: {remedy}")
    _check(data, _RUN_KEYS, name)
    for number, subject in enumerate(data["subjects"]):
        _check(subject, _SUBJECT_KEYS, f"{name}: subjects[{number}]")
    for number, experiment in enumerate(data["experiments"]):
        where = f"{name}: experiments[{number}]"
        _check(experiment, _EXPERIMENT_KEYS, where)
        if experiment["verdict"] not in VERDICTS:
            known = ", ".join(VERDICTS)
            raise ResultsError(f"{where}.verdict is {experiment['verdict']!r}; the verdicts are {known}")
        for index, event in enumerate(experiment["events"]):
            _check(event, _EVENT_KEYS, f"{where}.events[{index}]")
        for index, worker in enumerate(experiment["workers"]):
            _check(worker, _WORKER_KEYS, f"{where}.workers[{index}]")
        for index, attempt in enumerate(experiment["attempts"]):
            _check(attempt, _ATTEMPT_KEYS, f"{where}.attempts[{index}]")


def dumps(run: Run) -> str:
    """The run as JSON text: ASCII, so that lone surrogates in a worker's output survive the way through UTF-8."""
    return json.dumps(run, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def write_results(run: Run, path: Path | str) -> Path:
    """Writes results.json atomically. Raises OSError (nothing is left half written) or ValueError for NaN in a run."""
    return write_atomically(Path(path), dumps(run))


def write_atomically(path: Path, text: str) -> Path:
    """Writes a file whole or not at all: beside it, synced to disk, then renamed over it.

    Raises OSError with a message that says which file and why; what was there before stays as it was.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        Path(temporary).replace(path)
        temporary = None
        _sync_directory(path.parent)
    except OSError as error:
        message = f"the report could not be written ({error.strerror or error})"
        raise OSError(error.errno, message, str(path)) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return path


def _sync_directory(directory: Path) -> None:
    """Makes the rename itself durable. Some file systems cannot sync a directory: the file is whole all the same."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _umask() -> int:
    """mkstemp makes files for the owner only; a report is to be read by others as any file of the user's."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _check(value: object, keys: Mapping[str, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise ResultsError(f"{where} is {_kind(value)} where an object belongs")
    for key, kind in keys.items():
        if key not in value:
            raise ResultsError(f"{where} has no key {key!r}")
        found = value[key]
        wrong_bool = isinstance(found, bool) and kind is not bool
        if wrong_bool or not isinstance(found, kind):
            raise ResultsError(f"{where}.{key} is {_kind(found)}: {_shown(found)}")
        if isinstance(found, float) and not math.isfinite(found):
            raise ResultsError(f"{where}.{key} is {found}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is no JSON")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true/false", type(None): "null"}
    return names.get(type(value), "a number")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
