"""Redis loses the fencing counter with the lock, for a customer who has had eight clean invoices: it stands at 8.

A draws 9. The verdict is on A's invoice and on the customer's next one, delivered when all is over and nothing is wrong
any more: as any queue does it, again only while its worker fails. One that was refused has not failed.
"""

from __future__ import annotations

from harness import Result, experiments
from harness.scenario import Hole
from harness.spec import NO_CHARGE

REQUEST, REPLY = PLACES = ("charge-request", "charge-reply")

_FENCED = ("fencing", "watchdog-fencing")

_REFUSED = Hole(
    "the counter begins at 1 again and the processor has seen 9: B's charge is refused, which is luck, and so is the "
    "customer's next invoice, and every one after it until the counter has caught up",
    NO_CHARGE,
)
_SAME_TOKEN = "the counter is back at 8, so B draws 9 as A did: it is as new as A's, and both charges are accepted"
_SAME_TOKEN_READ = (
    "the counter is back at 8, so B draws 9 as A did: its read finds no charge yet and does not make A's 9 stale, so "
    "both charges are accepted"
)

BEGINS_AGAIN = {(subject, place): _REFUSED for subject in (*_FENCED, "fenced-read") for place in PLACES}
"""All is lost: the counter begins at 1 again."""

SET_BACK = {
    **{(subject, place): _SAME_TOKEN for subject in _FENCED for place in PLACES},
    ("fenced-read", REQUEST): _SAME_TOKEN_READ,
}
"""What came before A is kept: the counter is back at 8.

fenced-read rests on the counter, too. The read with a token makes older ones stale, and a token that comes again is not
older. At the reply it asks a processor that has A's charge on record, and the next invoice's token is 10 or more."""


@experiments("counter-restart", places=PLACES, holes=BEGINS_AGAIN, scenario="fencing-counter")
def test_a_counter_lost_in_a_restart_charges_this_and_the_next_invoice_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("counter-flush", places=PLACES, holes=BEGINS_AGAIN, scenario="fencing-counter")
def test_a_counter_that_is_flushed_charges_this_and_the_next_invoice_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("counter-eviction", places=PLACES, holes=BEGINS_AGAIN, scenario="fencing-counter")
def test_a_counter_that_is_evicted_charges_this_and_the_next_invoice_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("counter-aof-cut", places=PLACES, holes=SET_BACK, scenario="fencing-counter")
def test_a_counter_set_back_by_a_power_loss_charges_this_and_the_next_invoice_once(experiment: Result) -> None:
    experiment.charged_exactly_once()


@experiments("counter-failover", places=PLACES, holes=SET_BACK, scenario="fencing-counter")
def test_a_counter_set_back_by_a_failover_charges_this_and_the_next_invoice_once(experiment: Result) -> None:
    experiment.charged_exactly_once()
