"""The reason for each hole by cell: what paper.py says, spelled out.

REASONS and SWEEP_REASONS map (variant, fault, place) to a sentence; a place of the sweep is link.role.n.side.
NOT_APPLICABLE_REASONS says why a fault is none of a design's business. EXPECTED and EXPECTED_SWEEP are the verdicts
of every cell that is not exactly-one.
"""

from __future__ import annotations

from collections.abc import Iterator

from .paper import NOT_CONCERNED, ROWS, Row
from .tables import EVERY, NOT_APPLICABLE, POINTS, Cell


def boundary(variant: str, place: str) -> str:
    """A named place (charge-request, renew.2-reply) as a boundary of the sweep: link.role.n.side."""
    step, _, side = place.rpartition("-")
    role, _, n = step.partition(".")
    if role == "charge" or (role == "paid-read" and variant == "fenced-read"):
        link = "processor"
    elif variant.startswith("pg-") or (variant == "reserve-confirm" and role in ("paid-read", "reserve", "record")):
        link = "postgres"
    else:
        link = "redis"
    return f"{link}.{role}.{n or 1}.{side}"


def _hand_picked(rows: tuple[Row, ...]) -> Iterator[tuple[Cell, Row]]:
    for row in rows:
        for cell in row.cells():
            _, fault, place = cell
            if fault not in EVERY or (fault in ("freeze", "crash") and place in POINTS):
                yield cell, row


def _swept(rows: tuple[Row, ...]) -> Iterator[tuple[Cell, Row]]:
    for row in rows:
        for variant, fault, place in row.cells():
            if fault in EVERY:
                yield (variant, fault, boundary(variant, place)), row


REASONS = {cell: row.why for cell, row in _hand_picked(ROWS)}
SWEEP_REASONS = {cell: row.why for cell, row in _swept(ROWS)}
NOT_APPLICABLE_REASONS = {cell: row.why for cell, row in _hand_picked(NOT_CONCERNED)}

EXPECTED = {cell: row.verdict for cell, row in _hand_picked(ROWS)}
EXPECTED.update(dict.fromkeys(NOT_APPLICABLE_REASONS, NOT_APPLICABLE))
EXPECTED_SWEEP = {cell: row.verdict for cell, row in _swept(ROWS)}
