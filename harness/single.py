"""One experiment or one baseline, alone, told in full: --harness-replay and --harness-doctor."""

from __future__ import annotations

import pytest

from harness import records
from harness.crew import SubjectError
from harness.faults import FAULTS, HELD_LEASES, load_all
from harness.host import EngineHost
from harness.processes import HarnessError
from harness.scenario import Result
from harness.settings import Settings
from harness.spec import EXACTLY_ONE, Spec, Token
from harness.stack import StackError
from harness.variants import SCENARIO_ONLY, VARIANTS


def run(settings: Settings) -> pytest.ExitCode:
    """Replays, or looks at, what the settings say. Raises pytest.UsageError."""
    host = EngineHost(settings)
    try:
        if settings.replay is not None:
            return _replay(host, settings, settings.replay)
        return _doctor(host, settings)
    except (StackError, SubjectError, HarnessError) as error:
        raise pytest.UsageError(str(error)) from error
    finally:
        host.stop()


def _replay(host: EngineHost, settings: Settings, token: Token) -> pytest.ExitCode:
    load_all()
    names = [subject.name for subject in settings.subjects] + [*VARIANTS, *SCENARIO_ONLY]
    if token.subject not in names:
        raise pytest.UsageError(
            f"--harness-replay: no subject {token.subject}; there are {', '.join(dict.fromkeys(names))}"
        )
    if token.fault not in FAULTS:
        raise pytest.UsageError(f"--harness-replay: no fault {token.fault}; there are {', '.join(sorted(FAULTS))}")
    engine = host.start()
    wrong = host.call(engine.ready(token.subject))
    if wrong is not None:
        raise pytest.UsageError(f"{token.subject} is not fit to be tried: {wrong}")
    if token.place.count(".") == 3:
        host.call(engine.rehearse(token.subject))
    profile = engine.profiles[token.subject]
    if token.place.count(".") == 3 and token.place not in profile.known:
        raise pytest.UsageError(
            f"--harness-replay: {token.subject} has no boundary {token.place} (any more); "
            f"there are {', '.join(profile.known)}"
        )
    params = {"delay_leases": settings.delay_leases, "slower_night_leases": 2 * settings.delay_leases}
    seed = settings.seed if token.seed is None else token.seed
    spec = Spec(
        "replay", token.subject, token.fault, token.place, settings.ttl_ms, run=token.run, seed=seed, params=params
    )
    host.submit([spec])
    host.result(spec)
    record = records.experiment(engine.entries[spec.id], settings)
    for line in Result(record).explained().splitlines():
        print(line)
    return pytest.ExitCode.OK if record["verdict"] == EXACTLY_ONE else pytest.ExitCode.TESTS_FAILED


def _doctor(host: EngineHost, settings: Settings) -> pytest.ExitCode:
    engine = host.start()
    subjects = [settings.own] if settings.own is not None else list(settings.subjects)
    healthy = True
    for subject in subjects:
        wrong = host.call(engine.ready(subject.name))
        if "charge" in engine.profiles[subject.name].points:
            host.call(engine.rehearse(subject.name))
        profile, crew = engine.profiles[subject.name], engine.crews[subject.name]
        lease = "does not run out" if profile.lease_ms is None else f"{profile.lease_ms:.0f} ms"
        rows = {
            "subject": f"{subject.name} ({subject.kind}, {crew.source or subject.shown})",
            "workers": crew.note or ("forked from a warm process" if subject.kind != "command" else "the command"),
            "lock": profile.lock or "none that a server accounts for",
            "lease": f"asked for {settings.ttl_ms} ms, observed: {lease}" if profile.lock else "none",
            "renewals": f"{profile.renewals} while the charge took {HELD_LEASES} leases",
            "points": ", ".join(f"{point}: {message}" for point, message in profile.points.items()) or "none",
            "boundaries": ", ".join(profile.known) or "none",
            "unstable": ", ".join(profile.unstable) or "none",
            "verdict": "fit to be tried" if wrong is None else f"NOT FIT: {wrong}",
        }
        for name, value in rows.items():
            print(f"{name:11} {value}")
        print()
        healthy = healthy and wrong is None
    return pytest.ExitCode.OK if healthy else pytest.ExitCode.TESTS_FAILED
