"""make soak: every sound subject through all of scenarios/, again and again, and every broken one through its own.

    python tests/soak.py [--runs 50] [--busy 4] [--at-once 1] [--only NAME ...] [--report DIR]

Sound: all of scenarios/, the sweep included, --runs times with seeded jitter, beside --busy loops that each keep a CPU
busy. A double charge or a lost one is a false alarm; so is what stays inconclusive. Broken: the scenario that must
catch it, --runs times; counted is how often it did. --at-once: so many subjects side by side, each a load for the
others. Takes hours. Status 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.beside_load import busy  # noqa: E402 (a script: its packages are found from the root)
from tests.broken.expected import BANK as BROKEN  # noqa: E402
from tests.broken.expected import BASELINE, SWEEP, Broken  # noqa: E402
from tests.broken.running import Run, run_scenarios  # noqa: E402
from tests.sound.expected import BANK as SOUND  # noqa: E402
from tests.sound.expected import Sound  # noqa: E402

TIMEOUT_S = 6 * 3600.0


def sound_row(entry: Sound, runs: int, report: Path) -> tuple[str, bool]:
    """One sound subject through everything; the row of the table, and whether it came out clean."""
    began = time.monotonic()
    done = run_scenarios((*entry.subject_args, "--harness-runs", str(runs)), report, timeout_s=TIMEOUT_S)
    verdicts = Counter(e["verdict"] for e in done.of_own_subject())
    again = sum(len(e["attempts"]) - 1 for e in done.of_own_subject())
    clean = done.status == 0 and set(verdicts) <= {"exactly-one", "not-applicable"} and verdicts["exactly-one"] > 0
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(verdicts.items())) or done.tail(3)
    return f"sound   {entry.name:26} {told}; {again} run again; {time.monotonic() - began:.0f} s", clean


def broken_row(entry: Broken, runs: int, report: Path) -> tuple[str, bool]:
    """One broken subject through its scenario; the row of the table, and whether it was caught every time."""
    began = time.monotonic()
    many = () if entry.scenario in (SWEEP, BASELINE) else ("--harness-runs", str(runs))
    done = run_scenarios((*entry.arguments, *many), report, timeout_s=TIMEOUT_S)
    verdicts = _caught(done, entry)
    caught, of = verdicts[entry.verdict], sum(verdicts.values())
    told = f"{entry.verdict} in {caught} of {of} at {entry.caught_by[1]}@{entry.place}"
    if caught < of or not of:
        told += f"; else {json.dumps(verdicts)}"
    return f"broken  {entry.name:26} {told}; {time.monotonic() - began:.0f} s", bool(of) and caught == of


def _caught(done: Run, entry: Broken) -> Counter[str]:
    own = done.of_own_subject()
    if entry.scenario == BASELINE:
        return Counter([entry.verdict if any(e["verdict"] == entry.verdict for e in own) else "not caught"])
    return Counter(e["verdict"] for e in done.experiments(*entry.caught_by) if e in own)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="how often each experiment is made (default: 50)")
    parser.add_argument("--busy", type=int, default=4, help="loops that keep a CPU busy meanwhile (default: 4)")
    parser.add_argument("--at-once", type=int, default=1, help="subjects tried side by side (default: 1)")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these subjects only")
    parser.add_argument("--report", default="reports/soak", metavar="DIR", help="where each run's results go")
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - {entry.name for entry in (*SOUND, *BROKEN)}:
        parser.error(f"--only {' '.join(sorted(unknown))}: no such subject in tests/sound or tests/broken")
    entries = [entry for entry in (*SOUND, *BROKEN) if not options.only or entry.name in options.only]

    def tried(entry: Sound | Broken) -> bool:
        report = Path(options.report, entry.name).resolve()
        row = sound_row if isinstance(entry, Sound) else broken_row
        told, well = row(entry, options.runs, report)  # type: ignore[arg-type]
        print(f"{'ok   ' if well else 'WRONG'} {told}", flush=True)
        return well

    with busy(options.busy), ThreadPoolExecutor(options.at_once) as side_by_side:
        clean = all(list(side_by_side.map(tried, entries)))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
