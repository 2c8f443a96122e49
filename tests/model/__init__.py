"""A small pure model of lease, fence and ledger: the second opinion on every verdict the harness measures.

It is a deterministic simulation in plain Python: no process, no socket, no clock but its own, and nothing imported from
harness/. Time is counted in leases (1 is LOCK_TTL_MS). tables.py derives the verdicts and names the reason for each
hole, sweep.py does the same at every boundary, judge.py states on its own what a finished history is worth.
"""
