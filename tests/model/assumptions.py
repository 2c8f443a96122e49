"""What the texts leave open about how the variants and the harness are written, and the other readings of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the design leaves to the code; the defaults are what the model thinks it means. Times are in leases."""

    poll: float = 1 / 12
    """Pause between two attempts at the lock: 1/15 to 1/10."""
    releases_on_failure: bool = True
    """A job that fails lets its lock go (try/finally), where it still can."""
    watchdog_outlives_errors: bool = True
    """A renewal that fails with a connection error is tried again at the next third."""
    one_postgres_session: bool = False
    """pg-advisory reads and records on the connection that holds the lock."""
    charge_held: float = inf
    """How long the charge is held where a renewal is the point (infinite: until the fault is lifted)."""
    charge_outlives_worker: bool = False
    """The charge held at the tap still reaches the processor, with A killed at a renewal and its charge held."""
    partition_holds_charge: bool = False
    """The charge at which a partition strikes is held until it heals, too."""
    eviction_takes_counter: bool = True
    """Under allkeys-lru the fencing counter is evicted with the lock it was last written with."""
    lost_lock_waits_a_lease: bool = False
    """Where the lock itself was lost, B is delivered again until LOCK_TTL has passed all the same."""
    long_leases_are_cut_short: bool = False
    """A fault stands for 3 leases of LOCK_TTL, even when A's own lease is longer and would have run out later."""
    revives_connections: bool = True
    """A Redis client notices that its pooled connection was closed and opens another before it sends a command."""
    thaw_last_first: bool = False
    """On waking, what came last is handled first."""
    waits_for_intents: bool = True
    """reserve-confirm polls until somebody's intent is old enough, instead of ending with status 75."""
    voids_bind_at_commit: bool = True
    """The processor looks for the tombstone when a charge commits, not only when it arrives."""
    c_comes_after: float = 0.0
    """Leases after A was frozen, where a third worker comes: which of two that wait gets the lock hangs on it."""
    early_let_go: float | None = None
    """What a Redis fault holds is let go after so many leases, B through or not (None: when B is through)."""


DEFAULT = Assumptions()
ALTERNATIVES: Mapping[str, Assumptions] = {
    "polls 10 times a lease": replace(DEFAULT, poll=1 / 10),
    "polls 15 times a lease": replace(DEFAULT, poll=1 / 15),
    "a failed job keeps its lock": replace(DEFAULT, releases_on_failure=False),
    "the watchdog's thread dies of a connection error": replace(DEFAULT, watchdog_outlives_errors=False),
    "pg-advisory uses one session": replace(DEFAULT, one_postgres_session=True),
    "the charge is held for 1.2 leases where a renewal is the point": replace(DEFAULT, charge_held=1.2),
    "it is, and outlives the worker that is killed at a renewal": replace(
        DEFAULT, charge_held=1.2, charge_outlives_worker=True
    ),
    "a partition also holds the charge until it heals": replace(DEFAULT, partition_holds_charge=True),
    "eviction spares the fencing counter": replace(DEFAULT, eviction_takes_counter=False),
    "B is delivered again until LOCK_TTL has passed, lock lost or not": replace(DEFAULT, lost_lock_waits_a_lease=True),
    "a fault stands for 3 leases at most where the lease has not run out yet": replace(
        DEFAULT, long_leases_are_cut_short=True
    ),
    "the first command of A after a restart of Redis fails": replace(DEFAULT, revives_connections=False),
    "on waking, the last thing that came is handled first": replace(DEFAULT, thaw_last_first=True),
    "reserve-confirm ends when it meets somebody's young intent": replace(DEFAULT, waits_for_intents=False),
    "the processor looks for a void on arrival only": replace(DEFAULT, voids_bind_at_commit=False),
    "a third worker comes a tenth of a lease after A was frozen": replace(DEFAULT, c_comes_after=0.1),
    "what a Redis fault holds is let go after half a lease": replace(DEFAULT, early_let_go=0.5),
}
