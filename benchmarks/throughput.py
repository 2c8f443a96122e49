"""How fast experiments go, beside the floor: two forked workers doing the job one after the other, no harness at all.

    python -m benchmarks.throughput [--ttl MS] [--variant NAME ...] [--fresh] [--in-flight N ...] [--json FILE]

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
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.cpu import cpu_ms
from harness import sweep
from harness.engine import Config, Engine
from harness.output import Output
from harness.settings import variant
from harness.spec import DOUBLE_CHARGE, NO_CHARGE
from harness.subject import Job

FLOOR_PAIRS = 60
RANDOM_SEARCHES = 1000


async def floor(engine: Engine, name: str) -> dict[str, float]:
    """Pairs of workers doing the job one after the other, straight at the servers: nothing of the harness."""
    stack, crew = engine.stack, engine.crews[name]
    began_s, began_cpu = time.monotonic(), _cpu(engine)
    for number in range(FLOOR_PAIRS):
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
        "cpu_ms": (_cpu(engine) - began_cpu) / FLOOR_PAIRS,
        "per_s": FLOOR_PAIRS / (time.monotonic() - began_s),
    }


def _cpu(engine: Engine) -> float:
    return cpu_ms(os.getpid())


async def run_sweep(engine: Engine, names: Sequence[str], in_flight: int | None) -> dict[str, Any]:
    """All boundaries and faults of some variants; learning them beforehand is not counted."""
    for name in names:
        await engine.ready(name)
        await engine.rehearse(name)
    specs = [
        replace(spec, scenario=f"bench-{in_flight}")
        for name in names
        for spec in sweep.specs(engine.profiles[name], engine.config.ttl_ms, 1, 0, {})
    ]
    if in_flight is not None:
        engine.gate.pin(in_flight)
    began_s, began_cpu = time.monotonic(), _cpu(engine)
    engine.submit(specs)
    outcomes = [await engine.outcome(spec.id) for spec in specs]
    wall_s, used_ms = time.monotonic() - began_s, _cpu(engine) - began_cpu
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
        report["floor"] = await floor(engine, names[0])
        report["sweeps"] = {}
        for count in options.in_flight or [None]:
            report["sweeps"][count or "adaptive"] = await run_sweep(engine, names, count)
        return report
    finally:
        await engine.stop()


def tell(report: dict[str, Any]) -> None:
    floor_ms = report["floor"]["cpu_ms"]
    print(f"{report['cpus']} CPUs, lease {report['ttl_ms']} ms, {', '.join(report['variants'])}")
    print(f"floor: {floor_ms:.1f} ms CPU for two workers, {report['floor']['per_s']:.1f} pairs a second one by one")
    for count, measured in report["sweeps"].items():
        print(
            f"{count} in flight: {measured['experiments']} experiments ({measured['attempts']} attempts) in "
            f"{measured['wall_s']:.1f} s, {measured['per_s']:.1f} a second, {measured['cpu_ms']:.1f} ms CPU each, "
            f"{measured['cpu_ms'] / floor_ms:.2f} times the floor"
        )
        found = searches(measured)
        if found:
            print(
                f"  first hole after {found['sweep_first']} experiments of the sweep, {found['random_first']:.1f} "
                f"drawn at random; all after {found['sweep_all']}, {found['random_all']:.0f} at random"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ttl", type=int, default=1000, help="lease in milliseconds")
    parser.add_argument("--variant", action="append", default=None, help="variants to sweep (default: naive-ttl)")
    parser.add_argument("--in-flight", type=int, nargs="*", help="fixed numbers of experiments in flight")
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
