"""A stand-in for the Toxiproxy server, for machines that have none.

It speaks the HTTP interface of Toxiproxy 2.12.0 and treats bytes as that server does, so that a client cannot tell
which one it drives: `python -m fakes.toxiproxy -host 127.0.0.1 -port 8474`. tests/toxiproxy_conformance/ runs one suite
against both; where the two differ the stand-in is wrong, but for these, on purpose:

- Attributes that crash the real server (negative rates, slicers that never finish, jitter above 2**62) are tamed.
- An address it cannot listen on ends the program with status 1; the real server logs the error and stays, deaf.
- There are no metrics (the flags for them are unknown) and almost no log.
- Every answer says "Server: lockproof-toxiproxy-stand-in".

api.py is the HTTP interface, collection.py and proxy.py what it acts on, link.py one direction of one connection,
stub.py a toxic's place in it, and toxics/ has one toxic a file, as in Toxiproxy's own toxics/.
"""

VERSION = "2.12.0"
"""The version of Toxiproxy whose behaviour is copied, and that GET /version gives."""
