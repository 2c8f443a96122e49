"""What is wrong with a subject is said before any fault is tried, in a sentence with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.conftest import Loop
from harness.crew import SubjectError, crews_for
from harness.engine import Config, Engine
from harness.launcher import Keeper
from harness.stack.local import LocalStack
from harness.subject import Subject

TTL_MS = 500
STALLED = "the machine stood still"
MOST_TRIES = 5

SOURCE = '''
import os, socket, sys, threading, time
from harness.subject import Processor
from harness.variants import naive_ttl

def sound(job):
    naive_ttl.bill(job, lease_ms=job.lock_ttl_ms, idempotency_key=job.invoice)

def scripted(job):
    """Releases as redis-py's own Lock does: EVALSHA, and SCRIPT LOAD where the server does not know it."""
    store = naive_ttl.connect(job)
    release = store.register_script("if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end")
    while not store.set("lock:" + job.customer, job.worker, nx=True, px=job.lock_ttl_ms):
        time.sleep(job.lock_ttl_ms / 12000)
    if not store.get("paid:" + job.invoice):
        store.set("paid:" + job.invoice, Processor(job).charge(idempotency_key=job.invoice)["id"])
    release(["lock:" + job.customer], [job.worker])

def hangs(job):
    time.sleep(600)

def prepared(job):
    """Charges what somebody has put there before it was delivered."""
    if naive_ttl.connect(job).get("row:" + job.invoice):
        sound(job)

def prepare(job):
    naive_ttl.connect(job).set("row:" + job.invoice, "there")

def silent(job):
    """Does its job at an address of its own."""
    naive_ttl.connect(job).get("x")

def broken(job):
    print("about to look up the customer")
    raise LookupError("no such customer: " + job.customer)

def stubborn(job):
    naive_ttl.bill(job, lease_ms=30_000, idempotency_key=job.invoice)

def slightly_longer(job):
    naive_ttl.bill(job, lease_ms=int(1.05 * job.lock_ttl_ms), idempotency_key=job.invoice)

def without_redis(job):
    processor = Processor(job)
    if not processor.charges():
        processor.charge(idempotency_key=job.invoice)

def greedy(job):
    """Charges whatever comes."""
    Processor(job).charge()

async def asynchronous(job):
    sound(job)

number = 3
'''
UNSAFE = {
    "starts_thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    "opens_socket": "import socket\nkept = socket.socket()\n",
    "reads_contract": "import os\nurl = os.environ.get('REDIS_URL')\n",
    "looks_for_contract": "import os\nready = 'CUSTOMER_ID' in os.environ\n",
    "harmless": "import os\nhome = os.environ.get('HOME')\n",
}
SAYS = {
    "starts_thread": "importing it starts threads",
    "opens_socket": "importing it opens sockets",
    "reads_contract": "importing it reads REDIS_URL",
    "looks_for_contract": "importing it reads CUSTOMER_ID",
}
CALLABLES = (
    "sound",
    "scripted",
    "hangs",
    "silent",
    "broken",
    "stubborn",
    "slightly_longer",
    "without_redis",
    "greedy",
    "asynchronous",
)
SUBJECTS = [
    *(Subject(name.replace("_", "-"), "callable", f"subjects:{name}") for name in CALLABLES),
    *(Subject(name.replace("_", "-"), "callable", f"{name}:charge") for name in UNSAFE),
    Subject("failing-command", "command", ("sh", "-c", "echo reading the config; echo no config >&2; exit 3")),
    Subject("nothing-done", "command", ("true",)),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("subjects")
    (place / "subjects.py").write_text(SOURCE)
    for name, source in UNSAFE.items():
        (place / f"{name}.py").write_text(f"{source}\nfrom subjects import sound as charge\n")
    return place


@pytest.fixture(scope="module")
def engine(loop: Loop, place: Path) -> Iterator[Engine]:
    """An engine on which every baseline has begun."""
    made = Engine(Config(SUBJECTS, ttl_ms=TTL_MS, cwd=str(place)))

    async def no_postgres(_: LocalStack) -> None:
        pass

    async def begin() -> None:
        for subject in SUBJECTS:
            made.attempts.spawn(_ready(made, subject.name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStack, "_start_postgres", no_postgres)
        loop(made.start())
    loop(begin())
    yield made
    loop(made.stop())


async def _ready(engine: Engine, name: str) -> None:
    await engine.ready(name)


def complaint(loop: Loop, engine: Engine, name: str) -> str | None:
    """What the baseline has to say; asked again where the machine stood still meanwhile."""
    for _ in range(MOST_TRIES):
        told = loop(engine.ready(name))
        if told is None or STALLED not in told:
            return told
        loop(_forget(engine, name))
    pytest.skip(f"the machine had no time for this in {MOST_TRIES} tries")


async def _forget(engine: Engine, name: str) -> None:
    """Makes the engine run a baseline again."""
    del engine.learning._ready[name], engine.entries[engine.learning.spec(name).id]


@pytest.mark.parametrize("name", ["sound", "scripted", "slightly-longer", "without-redis", "asynchronous"])
def test_a_subject_that_does_its_job_is_fit_to_be_tried(name: str, loop: Loop, engine: Engine) -> None:
    assert complaint(loop, engine, name) is None


def test_a_subject_that_uses_no_redis_has_no_lock_and_no_link_to_it(loop: Loop, engine: Engine) -> None:
    assert complaint(loop, engine, "without-redis") is None
    profile = engine.profiles["without-redis"]
    assert profile.lock is None
    assert profile.links == {"processor"}


def test_the_lock_is_learned_with_its_lease_and_its_points(loop: Loop, engine: Engine) -> None:
    assert complaint(loop, engine, "sound") is None
    profile = engine.profiles["sound"]
    assert profile.lock == "lock:{customer}"
    assert profile.lease_ms == pytest.approx(TTL_MS, abs=0.1 * TTL_MS)
    assert profile.points["charge"] == "processor.post-v1-charges.1"
    assert profile.points["paid-read"] == "redis.get.1"


def test_messages_are_learned_from_a_server_that_knows_the_subjects_scripts(loop: Loop, engine: Engine) -> None:
    """The first time A's script is unknown and A asks twice; no later worker does, so nothing can strike there."""
    assert complaint(loop, engine, "scripted") is None
    profile = engine.profiles["scripted"]
    assert profile.points["release"] == next(b for b in profile.boundaries if "eval-" in b).removesuffix(".request")
    assert profile.points["release"].endswith(".1")
    assert not any("script-load" in boundary for boundary in profile.boundaries)


def test_a_worker_that_hangs_is_told_once(loop: Loop, engine: Engine) -> None:
    told = complaint(loop, engine, "hangs")
    assert told is not None
    assert "A did not end within 30 leases, with nothing wrong" in told
    assert len(engine.entries[engine.learning.spec("hangs").id].attempts) == 1


@pytest.mark.parametrize("name", ["silent", "nothing-done"])
def test_a_worker_that_never_asks_to_charge_is_told_exactly_that(name: str, loop: Loop, engine: Engine) -> None:
    told = complaint(loop, engine, name)
    assert told is not None
    assert "the baseline saw no request to charge: A never sent POST /v1/charges to PROCESSOR_URL" in told


def test_the_last_words_of_a_callable_that_fails_are_told(loop: Loop, engine: Engine) -> None:
    told = complaint(loop, engine, "broken")
    assert told is not None
    assert "check that the worker did its job at all.\nA ended with status 1: LookupError: no such customer: " in told
    assert "about to look up the customer" in told
    assert "A's last output:\n" in told


def test_the_last_words_of_a_command_that_fails_are_told_with_its_status(loop: Loop, engine: Engine) -> None:
    told = complaint(loop, engine, "failing-command")
    assert told is not None
    assert ".\nA ended with status 3: no config" in told
    assert "A's last output:\n  reading the config\n  no config" in told


def test_a_lease_longer_than_asked_for_is_told_with_the_remedy(loop: Loop, engine: Engine) -> None:
    told = complaint(loop, engine, "stubborn")
    assert told is not None
    assert f"asked for {TTL_MS}: honour LOCK_TTL_MS or pass --harness-ttl" in told
    assert "took a lease of 30000 ms" in told or "took a lease of 29" in told


def test_a_subject_that_charges_twice_without_any_fault_is_told_so(loop: Loop, engine: Engine) -> None:
    told = complaint(loop, engine, "greedy")
    assert told is not None
    assert "without any fault the verdict is double-charge" in told


@pytest.mark.parametrize("name", SAYS)
def test_what_a_fork_would_get_wrong_is_run_in_a_fresh_interpreter_and_the_run_says_so(
    name: str, loop: Loop, engine: Engine
) -> None:
    subject = name.replace("_", "-")
    note = engine.crews[subject].note
    assert note == f"{subject}: a fresh interpreter for each worker, because {SAYS[name]}"
    assert complaint(loop, engine, subject) is None, "and it is tried all the same"


def test_a_harmless_import_is_forked(loop: Loop, engine: Engine) -> None:
    assert engine.crews["harmless"].note is None
    assert engine.crews["sound"].note is None
    assert complaint(loop, engine, "harmless") is None


def test_where_a_subject_is_defined_is_known(engine: Engine, place: Path) -> None:
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text.startswith("def sound"))
    assert engine.crews["sound"].source == f"{place}/subjects.py:{line}"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("subjects:number", "is a int, not a callable"),
        ("subjects:missing", "subjects.py) has no missing"),
        ("subjects.inner:run", "ModuleNotFoundError"),
        ("raises:run", "ValueError: at import"),
        ("leaves:run", "SystemExit"),
        ("garbled:run", "SyntaxError"),
    ],
)
def test_a_subject_that_cannot_be_imported_or_called_is_an_error_that_tells_why(
    target: str, words: str, loop: Loop, place: Path
) -> None:
    (place / "raises.py").write_text("raise ValueError('at import')")
    (place / "leaves.py").write_text("import sys; sys.exit('no display')")
    (place / "garbled.py").write_text("def run(:")

    async def make() -> None:
        keeper = await Keeper.launch()
        try:
            await crews_for([Subject("wrong", "callable", target)], keeper, str(place))
        finally:
            keeper.shut_down()

    with pytest.raises(SubjectError, match="cannot be used") as raised:
        loop(make())
    assert words in str(raised.value)
    assert target in str(raised.value)


def test_the_setup_runs_before_each_rehearsal_too(loop: Loop, place: Path) -> None:
    """Else a subject that needs its invoice's row does something else, and is swept at messages that it never sends."""

    subject, setup = (Subject(name, "callable", f"subjects:{name}") for name in ("prepared", "prepare"))
    made = Engine(Config([subject], ttl_ms=TTL_MS, cwd=str(place), setup=setup))
    loop(made.start())
    try:
        assert complaint(loop, made, "prepared") is None
        loop(made.rehearse("prepared"))
        assert "processor.post-v1-charges.1.request" in made.profiles["prepared"].boundaries
        assert made.profiles["prepared"].unstable == ()
    finally:
        loop(made.stop())
