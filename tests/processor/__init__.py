"""The fake payment processor, tested from outside: a real process, real sockets, a ledger on disk.

One process serves all tests; each has a customer of its own. Tests that end the process start their own.
"""
