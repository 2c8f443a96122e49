"""How fast experiments go, beside the floor: two forked workers doing the job one after the other, no harness at all.

    python -m benchmarks.throughput [--ttl MS] [--variant NAME ...] [--in-flight N ...] [--json FILE]

An experiment has three workers (A, B, C), the floor two. Fresh: an interpreter of its own for each worker, as a script
written by hand would start them, in the place of a fork.

All numbers of one report come from one run on one machine, so their ratios mean something; the absolute ones do not
travel. CPU time counts every process: the harness, the servers, the zygote, the workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cpu import cpu_ms
from harness import sweep
from harness.crew import Crew, ProgramCrew
from harness.engine import Config, Engine
from harness.output import Output
from harness.settings import variant
from harness.spec import DOUBLE_CHARGE, NO_CHARGE
from harness.subject import Job

FLOOR_PAIRS = 60
FRESH_PAIRS = 20
IN_FLIGHT = (10, 50, 100, 200)
FRESH_IN_FLIGHT, FRESH_EVERY = 2, 8
"""Fresh interpreters take ten times as long: two experiments side by side, and every eighth of them."""
RANDOM_SEARCHES = 1000


def fresh(engine: Engine, name: str) -> Crew:
    """Workers of a variant that are interpreters of their own."""
    subject = engine.crews[name].subject
    argv = [sys.executable, "-P", "-m", "harness.zygote", "--once", str(subject.target)]
    return ProgramCrew(subject, engine.keeper, argv, engine.config.cwd, None, None)


async def floor(engine: Engine, crew: Crew, pairs: int) -> dict[str, float]:
    """Pairs of workers doing the job one after the other, straight at the servers: nothing of the harness."""
    stack, name = engine.stack, f"{crew.subject.name}-{type(crew).__name__}"
    began_s, began_cpu = time.monotonic(), _cpu()
    for number in range(pairs):
        for worker in ("A", "B"):
            job = Job(
                redis_url=f"redis://127.0.0.1:{stack.redis.port}/1",
                processor_url="http://{}:{}".format(*stack.processor.payment[worker]),
                database_url=None,
                customer=f"floor-{name}-{number}",
                invoice=f"floor-{name}-{number}",
                amount=1,
                currency="EUR",
                lock_ttl_ms=engine.config.ttl_ms,
                worker=worker,
            )
            output = Output(lambda _: None)
            process = await crew.start(job, output)
            output.started()
            status = await process.wait()
            log = output.close()
            if status != 0:
                raise SystemExit(f"the floor's worker ended with status {status}:\n{log}")
    return {
        "cpu_ms": (_cpu() - began_cpu) / pairs,
        "per_s": pairs / (time.monotonic() - began_s),
    }


def _cpu() -> float:
    return cpu_ms(os.getpid())


async def run_sweep(
    engine: Engine, names: Sequence[str], in_flight: int | None, name: str, every: int = 1
) -> dict[str, Any]:
    """All boundaries and faults of some variants; learning them beforehand is not counted."""
    for subject in names:
        await engine.ready(subject)
        await engine.rehearse(subject)
    specs = [
        replace(spec, scenario=f"bench-{name}")
        for subject in names
        for spec in sweep.specs(engine.profiles[subject], engine.config.ttl_ms, 1, 0, {})
    ][::every]
    if in_flight is not None:
        engine.gate.pin(in_flight)
    began_s, began_cpu = time.monotonic(), _cpu()
    engine.submit(specs)
    outcomes = [await engine.outcome(spec.id) for spec in specs]
    wall_s, used_ms = time.monotonic() - began_s, _cpu() - began_cpu
    engine.gate.pin(None)
    attempts = [len(engine.entries[spec.id].attempts) for spec in specs]
    return {
        "experiments": len(specs),
        "attempts": sum(attempts),
        "wall_s": wall_s,
        "per_s": len(specs) / wall_s,
        "cpu_ms": used_ms / sum(attempts),
        "failing": [s.id for s, o in zip(specs, outcomes, strict=True) if o.verdict.kind in (DOUBLE_CHARGE, NO_CHARGE)],
        "specs": [s.id for s in specs],
    }


def searches(measured: dict[str, Any], seed: int = 0) -> dict[str, float]:
    """Experiments until a failing point is met: the sweep in its order, and drawn at random with replacement."""
    failing, ids = set(measured["failing"]), measured["specs"]
    if not failing:
        return {}
    dice = random.Random(seed)
    drawn = []
    for _ in range(RANDOM_SEARCHES):
        count = 1
        while dice.choice(ids) not in failing:
            count += 1
        drawn.append(count)
    every = []
    for _ in range(RANDOM_SEARCHES // 10):
        missing, count = set(failing), 0
        while missing:
            count += 1
            missing.discard(dice.choice(ids))
        every.append(count)
    return {
        "sweep_first": next(i for i, name in enumerate(ids, 1) if name in failing),
        "random_first": statistics.mean(drawn),
        "sweep_all": len(ids),
        "random_all": statistics.mean(every),
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    names = options.variant
    engine = Engine(Config([variant(name) for name in names], ttl_ms=options.ttl, cwd=os.getcwd()))  # noqa: PTH109
    await engine.start()
    try:
        report: dict[str, Any] = {"cpus": os.cpu_count(), "ttl_ms": options.ttl, "variants": names}
        for name in names:
            await engine.ready(name)
        report["floor"] = await floor(engine, engine.crews[names[0]], FLOOR_PAIRS)
        report["sweeps"] = {"adaptive": await run_sweep(engine, names, None, "adaptive")}
        for count in options.in_flight:
            report["sweeps"][f"{count}"] = await run_sweep(engine, names, count, f"{count}")
        report["fresh_floor"] = await floor(engine, fresh(engine, names[0]), FRESH_PAIRS)
        for name in names:
            engine.crews[name] = fresh(engine, name)
        report["sweeps"]["fresh"] = await run_sweep(engine, names, FRESH_IN_FLIGHT, "fresh", FRESH_EVERY)
        return report
    finally:
        await engine.stop()


def tell(report: dict[str, Any]) -> None:
    floors = report["floor"], report["fresh_floor"]
    print(f"{report['cpus']} CPUs, lease {report['ttl_ms']} ms, {', '.join(report['variants'])}")
    for name, measured in zip(("forked", "fresh interpreters"), floors, strict=True):
        print(f"floor, {name}: {measured['cpu_ms']:.1f} ms CPU for two workers, {measured['per_s']:.1f} pairs a second")
    print("   in flight  experiments  attempts  a second  CPU ms each  times the floor")
    for name, measured in report["sweeps"].items():
        print(
            f"{name:>12} {measured['experiments']:>12} {measured['attempts']:>9} {measured['per_s']:>9.1f} "
            f"{measured['cpu_ms']:>12.1f} {measured['cpu_ms'] / floors[0]['cpu_ms']:>16.2f}"
        )
    found = searches(report["sweeps"]["adaptive"])
    if found:
        print(
            f"first hole after {found['sweep_first']} experiments of the sweep, {found['random_first']:.1f} drawn at "
            f"random; all of them after {found['sweep_all']}, {found['random_all']:.0f} drawn at random"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ttl", type=int, default=1000, help="lease in milliseconds")
    parser.add_argument("--variant", action="append", default=None, help="variants to sweep (default: naive-ttl)")
    parser.add_argument(
        "--in-flight", type=int, nargs="*", default=IN_FLIGHT, help="fixed numbers of experiments side by side"
    )
    parser.add_argument("--json", help="also write the report here")
    options = parser.parse_args()
    options.variant = options.variant or ["naive-ttl"]
    report = asyncio.run(measure(options))
    tell(report)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
