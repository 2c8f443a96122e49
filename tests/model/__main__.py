"""`python -m tests.model`: the derived tables as text, the reasons, and the cells that hang on an assumption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .assumptions import ALTERNATIVES, DEFAULT, Assumptions
from .programs import RETRIERS, VARIANTS
from .queue import DOUBLE_CHARGE, EXACTLY_ONE, NO_CHARGE
from .reasons import NOT_APPLICABLE_REASONS, REASONS, SWEEP_REASONS
from .tables import (
    AT_CHARGE,
    EVERY,
    FAULT_PLACES,
    LOSSES,
    LOST_REPLIES,
    NOT_APPLICABLE,
    Cell,
    cells,
    derive,
    derive_retry,
    lost_acquire,
    outcome_of,
    recovery_leases,
    sweep,
    sweep_cells,
)

SHORT = {EXACTLY_ONE: "one", DOUBLE_CHARGE: "DOUBLE", NO_CHARGE: "NONE", NOT_APPLICABLE: "-"}


def hand_picked() -> Iterator[str]:
    """The tables (a) and (b): faults down, variants across; then a sentence for each hole."""
    yield f"{'':44}" + " ".join(f"{variant[:9]:9}" for variant in VARIANTS)
    for fault, places in FAULT_PLACES.items():
        for place in places:
            row = " ".join(f"{SHORT[derive(variant, fault, place)]:9}" for variant in VARIANTS)
            yield f"{fault + '@' + place:44}{row}"
    yield ""
    yield from _by_reason(REASONS)
    yield "\nNot applicable"
    yield from _by_reason(NOT_APPLICABLE_REASONS)


def others() -> Iterator[str]:
    """The customer's next invoice, the retrying workers, the lost SET NX, and how long a crash locks the customer."""
    for loss in LOSSES:
        for place in AT_CHARGE:
            for variant in ("fencing", "watchdog-fencing", "fenced-read"):
                found = outcome_of(variant, f"counter-{loss}", place)
                tokens = ", ".join(f"{who} with {token}" for _, who, token in found.charges)
                yield (
                    f"counter-{loss}@{place} {variant}: A's invoice {found.verdict} ({tokens}); "
                    f"the next: {found.next_first} after one delivery, {found.next_last} in {found.next_deliveries}"
                )
    for subject in RETRIERS:
        yield f"{subject}: " + ", ".join(f"{how} {derive_retry(subject, how)}" for how in LOST_REPLIES)
    lost = lost_acquire()
    at, who, _ = lost.charges[0]
    yield f"lost reply to SET NX, redis-py's default retries: {lost.verdict}, by {who}, {at:.2f} leases after delivery"
    for variant in VARIANTS:
        yield f"crash@charge-request {variant}: the lock is granted again after {recovery_leases(variant):.2f} leases"


def every_boundary() -> Iterator[str]:
    """The table (c): for each variant the boundaries with a failure, faults across."""
    for variant in VARIANTS:
        found = sweep(variant)
        failures = sum(verdict != EXACTLY_ONE for verdict in found.values())
        yield f"{variant}: failed at {failures} of {len(found)} fault points    {' '.join(EVERY)}"
        for step, side in dict.fromkeys((step, side) for step, side, _ in found):
            verdicts = [found[step, side, fault] for fault in EVERY]
            mark = "*" if any(verdict != EXACTLY_ONE for verdict in verdicts) else " "
            yield f"  {mark} {step + '.' + side:36}" + " ".join(f"{SHORT[verdict]:7}" for verdict in verdicts)
    yield ""
    yield from _by_reason(SWEEP_REASONS)


def sensitivity() -> Iterator[str]:
    """For each other reading of the texts, the cells that would change."""
    before = _all_cells(DEFAULT)
    for reading, assume in ALTERNATIVES.items():
        yield f"If {reading}:"
        after = _all_cells(assume)
        changed = [cell for cell in before | after if before.get(cell) != after.get(cell)]
        for variant, fault, place in changed:
            was, would_be = before.get((variant, fault, place)), after.get((variant, fault, place))
            yield f"    {variant}:{fault}@{place}  {was} -> {would_be}"
        if not changed:
            yield "    nothing"


def _all_cells(assume: Assumptions) -> dict[Cell, str]:
    found = {cell: derive(*cell, assume) for cell in cells()}
    for variant in VARIANTS:
        found.update(sweep_cells(variant, assume))
    return found


def _by_reason(reasons: Mapping[Cell, str]) -> Iterator[str]:
    for sentence in dict.fromkeys(reasons.values()):
        yield f"  {sentence}"
        told = [cell for cell, why in reasons.items() if why == sentence]
        for variant in dict.fromkeys(variant for variant, _, _ in told):
            where = " ".join(f"{fault}@{place}" for who, fault, place in told if who == variant)
            yield f"      {variant}: {where}"


if __name__ == "__main__":
    for title, lines in (
        ("(a), (b) hand-picked faults and places", hand_picked()),
        ("(b) what else issue by issue is shown", others()),
        ("(c) every boundary", every_boundary()),
        ("What hangs on an assumption", sensitivity()),
    ):
        print(f"\n== {title}\n")
        print("\n".join(lines))
