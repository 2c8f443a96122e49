"""How a subject's workers are started: forked from a zygote, by a fresh interpreter, or as the command says."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from harness.launcher import Keeper, Spawner
from harness.output import Output
from harness.processes import Process, python_env
from harness.subject import Job, Subject
from harness.variants import NEED_POSTGRES

_OPTIONAL = ("DATABASE_URL", "REDIS_URLS")
"""Of the contract, what a job may not have: then the caller's own must not be taken for it."""


class SubjectError(Exception):
    """The subject cannot be run at all: it does not import, is not callable, or its program is not there."""


class Crew(Protocol):
    """Starts workers of one subject."""

    subject: Subject
    source: str | None
    note: str | None
    """What the run has to say about how workers are started; None for the usual way."""

    async def start(self, job: Job, output: Output) -> Process:
        """Starts one worker. Raises OSError when it cannot be started."""
        ...


class ForkedCrew:
    """Workers forked from a warm process that has imported the subject."""

    def __init__(self, subject: Subject, zygote: Spawner, cwd: str, source: str | None) -> None:
        assert isinstance(subject.target, str)
        self.subject = subject
        self.source = source
        self.note: str | None = None
        self._target = subject.target
        self._zygote = zygote
        self._cwd = cwd

    async def start(self, job: Job, output: Output) -> Process:
        message = {"subject": self._target, "env": job.to_env(), "cwd": self._cwd}
        return await self._zygote.start(message, [output.write_fd])


class ProgramCrew:
    """Workers that are programs: a user's command, or a fresh Python interpreter for a callable."""

    def __init__(
        self, subject: Subject, keeper: Keeper, argv: Sequence[str], cwd: str, source: str | None, note: str | None
    ) -> None:
        self.subject = subject
        self.source = source
        self.note = note
        self._keeper = keeper
        self._argv = list(argv)
        self._cwd = cwd
        self._env = dict(os.environ) if subject.kind == "command" else python_env()

    async def start(self, job: Job, output: Output) -> Process:
        env = {key: value for key, value in self._env.items() if key not in _OPTIONAL} | job.to_env()
        return await self._keeper.spawn(self._argv, env=env, cwd=self._cwd, fds={"output": output.write_fd})


async def crews_for(subjects: Sequence[Subject], keeper: Keeper, cwd: str) -> dict[str, Crew]:
    """A crew for each subject, by name. Variants share two zygotes, each callable has one of its own.

    Raises SubjectError.
    """
    crews: dict[str, Crew] = {}
    variants = [subject for subject in subjects if subject.kind == "variant"]
    # psycopg's libraries make every fork, and every end of what was forked, half as dear again: two families
    families = [[s for s in variants if (s.name in NEED_POSTGRES) is needs] for needs in (False, True)]
    groups = [family for family in families if family] + [[s] for s in subjects if s.kind == "callable"]
    launched = [keeper.zygote([str(subject.target) for subject in group], cwd=cwd) for group in groups]
    for group, (zygote, report) in zip(groups, await asyncio.gather(*launched), strict=True):
        targets = [str(subject.target) for subject in group]
        if not report["ready"]:
            raise SubjectError(f"{', '.join(targets)} cannot be used:\n{report['error']}")
        for subject, target in zip(group, targets, strict=True):
            source = report["sources"].get(target)
            if report["fork_unsafe"] is None:
                crews[subject.name] = ForkedCrew(subject, zygote, cwd, source)
                continue
            note = f"{subject.name}: a fresh interpreter for each worker, because {report['fork_unsafe']}"
            argv = [sys.executable, "-P", "-m", "harness.zygote", "--once", target]
            crews[subject.name] = ProgramCrew(subject, keeper, argv, cwd, source, note)
    for subject in subjects:
        if subject.kind == "command":
            argv = list(subject.target)
            crews[subject.name] = ProgramCrew(subject, keeper, argv, cwd, _program_source(argv, cwd), None)
    return crews


def _program_source(argv: Sequence[str], cwd: str) -> str | None:
    """The file of a command that is the user's own: its last word that is a file in the working directory."""
    for word in reversed(argv):
        path = os.path.join(cwd, word)  # noqa: PTH118
        if os.path.isfile(path):  # noqa: PTH113
            return f"{path}:1"
    return None
