"""The experiments as the page carries them: compressed, in pieces that are opened when somebody looks.

Everything is JSON, deflated and in base64, so that nothing a worker printed is ever markup. What does not fit into the
budget goes without its events, never without its verdict: failures first, then declared holes, then the rest.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.drawing import drawing
from harness.report.facts import Facts, facts
from harness.report.results import Experiment
from harness.report.story import paragraph, told
from harness.report.tables import status
from harness.report.timeline import text
from harness.report.words import visible

FULL_IN_A_PIECE = 16
SLIM_IN_A_PIECE = 250
TEXT_LIMIT = 4_000
LOG_LIMIT = 20_000
"""Characters of one string, and of one worker's log, that the page shows; results.json has the rest."""

_PRIORITY = {"bad": 0, "closed": 0, "open": 1, "known": 2, "one": 3, "na": 4}


@dataclass(frozen=True, slots=True)
class Payload:
    """pieces: base64 of raw deflate of a JSON list of records. where: by experiment, its (piece, position) in it."""

    pieces: list[str]
    where: list[tuple[int, int]]
    without_events: int


def payload(experiments: Sequence[Experiment], budget: int) -> Payload:
    """Packs all experiments into about budget bytes of base64, full records first by importance."""
    order = sorted(range(len(experiments)), key=lambda i: (_PRIORITY[status(experiments[i]).key], i))
    pieces: list[str] = []
    where: list[tuple[int, int]] = [(0, 0)] * len(experiments)
    spent, next_ = 0, 0
    reserve = _slim_cost(experiments, order)
    while next_ < len(order):
        chosen = order[next_ : next_ + FULL_IN_A_PIECE]
        piece = _pack([record(experiments[i]) for i in chosen])
        reserve_after = reserve * (len(order) - next_ - len(chosen)) / max(len(order), 1)
        if spent + len(piece) + reserve_after > budget:
            break
        for position, index in enumerate(chosen):
            where[index] = (len(pieces), position)
        pieces.append(piece)
        spent += len(piece)
        next_ += len(chosen)
    without = len(order) - next_
    for start in range(next_, len(order), SLIM_IN_A_PIECE):
        chosen = order[start : start + SLIM_IN_A_PIECE]
        for position, index in enumerate(chosen):
            where[index] = (len(pieces), position)
        pieces.append(_pack([slim(experiments[i]) for i in chosen]))
    return Payload(pieces, where, without)


def slim(experiment: Experiment, read: Facts | None = None) -> dict[str, Any]:
    """What the page must always be able to say of an experiment. read: the facts of its events, if they are known."""
    found = status(experiment)
    keys = ("id", "scenario", "subject", "fault", "place", "verdict", "expected", "hole", "reason", "charges", "landed")
    more = ("contended", "run", "ttl_ms", "recovery_s", "wall_s", "replay", "source", "jitter")
    kept = {key: experiment[key] for key in (*keys, *more) if key in experiment}  # type: ignore[literal-required]
    words = {
        "status": found.key,
        "words": "exactly one charge" if found.key == "one" else found.words,
        "sentence": told(experiment, read),
    }
    cleaned: dict[str, Any] = _clean(kept | words)
    return cleaned


def record(experiment: Experiment) -> dict[str, Any]:
    """Everything: the story, the shapes of the drawing, the text timeline, the raw events, logs and attempts."""
    read = facts(experiment["events"])
    attempts = [{"verdict": a["verdict"], "reason": a["reason"]} for a in experiment["attempts"]]
    more: dict[str, Any] = {
        "paragraph": paragraph(experiment, read),
        "draw": drawing(experiment, read),
        "text": text(experiment, read),
        "attempts": _clean(attempts),
        "workers": [{**_clean({**w, "log": ""}), "log": visible(w["log"], LOG_LIMIT)} for w in experiment["workers"]],
        "events": _clean(experiment["events"]),
    }
    return slim(experiment, read) | more


def _clean(value: Any) -> Any:
    """Every string made visible and of bounded length, keys too."""
    if isinstance(value, str):
        return visible(value, TEXT_LIMIT)
    if isinstance(value, dict):
        return {visible(key, 200): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def _slim_cost(experiments: Sequence[Experiment], order: Sequence[int]) -> float:
    """What all of them would take without events: estimated from as many as make one piece, with room to spare."""
    sample = order[:: max(1, len(order) // SLIM_IN_A_PIECE)]
    if not sample:
        return 0.0
    return 1.3 * len(_pack([slim(experiments[i]) for i in sample])) * len(order) / len(sample)


def _pack(records: list[dict[str, Any]]) -> str:
    raw = json.dumps(records, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(raw) + deflate.flush()).decode("ascii")
