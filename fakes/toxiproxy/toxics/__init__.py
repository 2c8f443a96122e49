"""One toxic a file; importing this package registers them all."""

from fakes.toxiproxy.toxics import (
    bandwidth,
    latency,
    limit_data,
    noop,
    reset_peer,
    slicer,
    slow_close,
    timeout,
)

__all__ = ["bandwidth", "latency", "limit_data", "noop", "reset_peer", "slicer", "slow_close", "timeout"]
