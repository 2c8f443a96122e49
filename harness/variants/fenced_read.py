"""fenced-read: as watchdog-fencing, but whether the invoice is paid is asked of the processor, with the token.

Guarantees: the question itself raises the processor's mark, so that after it no charge with an older token can commit,
and the answer comes from the only record that cannot lag behind the money. It rests on the counter: a token that comes
again after Redis lost its data is accepted again.
"""

from __future__ import annotations

from harness.subject import Job
from harness.variants.watchdog_fencing import bill


def run(job: Job) -> None:
    """Charges the invoice under a lock that is renewed; the processor, asked with the token, knows what is paid."""
    bill(job, ask_processor=True)
