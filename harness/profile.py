"""What the baseline has learned of a subject: its lock, its lease, its boundaries, its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POINTS = ("paid-read", "charge", "record", "release")
"""The messages that every billing job has, whatever it is written in: found in the baseline's history."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A subject as the baseline saw it.

    lock is the key, with {customer} and {invoice} in place of their values, or the advisory lock's number, or None.
    lease_ms is the lease as the server saw it, None where it does not run out. points maps paid-read, charge, record
    and release to a message (link.label.n, without side). boundaries are A's, in order, of the clean run;
    held_boundaries are those that only a run with the charge held for 1.2 leases has (renewals).
    """

    subject: str
    lock: str | None = None
    lock_kind: str | None = None
    lease_ms: float | None = None
    links: frozenset[str] = frozenset()
    points: Mapping[str, str] = field(default_factory=dict)
    boundaries: tuple[str, ...] = ()
    held_boundaries: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    renewals: int = 0
    early_release: bool = False
    """The lock is let go before the charge is answered: it is not what keeps the charge from happening twice."""
    lock_nodes: tuple[str, ...] = ()
    """The links of the Redis nodes that the lock's key was on."""
    fenced: bool = False
    """The charge carries a fencing token."""

    def lock_for(self, customer: str, invoice: str) -> str:
        """The lock's key for one customer and invoice."""
        assert self.lock is not None
        return self.lock.replace("{customer}", customer).replace("{invoice}", invoice)

    @property
    def unlocked(self) -> bool:
        """The subject holds no lock over its charge."""
        return self.lock is None or self.early_release

    @property
    def known(self) -> tuple[str, ...]:
        """Every boundary there is."""
        return self.boundaries + self.held_boundaries


def generic(key: str, customer: str, invoice: str) -> str:
    """A key with the experiment's own names taken out."""
    return key.replace(customer, "{customer}").replace(invoice, "{invoice}")
