"""Makes the pictures of docs/ again: python tests/report/screenshots.py [results.json] [-o DIR]

From reports/results.json, which `pytest scenarios/` writes; --sample takes the made-up runs of the tests instead. Needs
what ci/browser.sh installs. The experiment shown is the first double charge of naive-ttl, or else the first there is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from real_browser import BROWSER_TESTS, chromium  # noqa: E402

from harness import report  # noqa: E402

SIZE_LIMIT = 250_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="?", default="reports/results.json")
    parser.add_argument("-o", "--output", default=str(HERE.parents[1] / "docs"))
    parser.add_argument("--sample", action="store_true", help="the made-up passing run instead of results.json")
    options = parser.parse_args()
    browser = chromium()
    if browser is None:
        sys.stderr.write("no Chromium was found: run ci/browser.sh, or name one in CHROMIUM\n")
        return 2
    try:
        run = _sample() if options.sample else report.load(options.results)
    except report.ResultsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    shown = _to_show(run)
    shots = [("report-light.png", 1280, 858, "light", ""), ("report-dark.png", 1280, 858, "dark", "")]
    if shown is not None:
        shots.append(("timeline.png", 1280, 840, "light", f"#e{shown}"))
        shots.append(("timeline-phone.png", 390, 844, "dark", f"#e{shown}"))
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = report.write_html(run, Path(folder) / "index.html")
        for name, width, height, scheme, fragment in shots:
            command = ["node", str(BROWSER_TESTS / "shoot.mjs"), browser, str(page), str(output / name)]
            subprocess.run([*command, str(width), str(height), scheme, fragment], check=True, timeout=120)
            size = (output / name).stat().st_size
            sys.stdout.write(f"{output / name}: {size:,} bytes\n")
            if size > SIZE_LIMIT:
                sys.stderr.write(f"{name} is over {SIZE_LIMIT:,} bytes\n")
                return 1
    return 0


def _to_show(run: report.Run) -> int | None:
    """The experiment that tells the story best: a slow charge that the naive lock pays for."""
    doubles = [i for i, e in enumerate(run["experiments"]) if e["verdict"] == "double-charge" and e["events"]]
    best = [i for i in doubles if run["experiments"][i]["id"] == "slow-charge/naive-ttl/before-commit"]
    return next(iter(best or doubles), 0 if run["experiments"] else None)


def _sample() -> report.Run:
    import sample_runs

    return sample_runs.passing()


if __name__ == "__main__":
    sys.exit(main())
