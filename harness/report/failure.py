"""What a failing test prints."""

from __future__ import annotations

from harness.report.results import Experiment
from harness.report.story import told
from harness.report.timeline import text as timeline
from harness.report.words import one_line, visible

LAST_LINES = 8
LINE_LIMIT = 300


def failure_text(experiment: Experiment) -> str:
    """The timeline, the last words of workers that failed, the sentence in money terms, the command that replays it."""
    parts = [timeline(experiment), *_logs(experiment)]
    ends = told(experiment)
    if experiment["expected"] != experiment["verdict"] and experiment["hole"] is not None:
        ends += f"\nDeclared as a hole ({one_line(experiment['hole'], 400)}), which did not show."
    tries = experiment["attempts"]
    if len(tries) > 1:
        ends += f"\nTried {len(tries)} times: " + "; ".join(
            f"{attempt['verdict']}{': ' + one_line(attempt['reason'], 200) if attempt['reason'] else ''}"
            for attempt in tries
        )
    return "\n\n".join([*parts, visible(ends, 4000), f"Replay: {one_line(experiment['replay'], 1000)}"])


def _logs(experiment: Experiment) -> list[str]:
    """The last lines of each worker that ended with a status of its own other than 0 and 75."""
    words = []
    for worker in experiment["workers"]:
        lines = [visible(line, LINE_LIMIT) for line in worker["log"].splitlines() if line.strip()]
        if worker["exit"] not in (0, 75, None) and lines:
            shown = "\n".join(f"    {line}" for line in lines[-LAST_LINES:])
            words.append(f"{worker['name']} ended with status {worker['exit']}; its last words:\n{shown}")
    return words
