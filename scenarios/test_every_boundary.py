"""Every message of worker A, every fault: nothing random, nothing missed within "one fault"."""

from __future__ import annotations

from harness import Sweep, sweeps

HOLES: dict[str, dict[tuple[str, str], str]] = {}


@sweeps(HOLES)
def test_every_boundary_with_every_fault_is_as_declared(sweep: Sweep) -> None:
    complaints = sweep.complaints()
    assert not complaints, f"{sweep.subject}: {sweep.sentence()}\n\n" + "\n\n".join(complaints)
