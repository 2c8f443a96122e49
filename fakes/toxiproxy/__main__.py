"""`python -m fakes.toxiproxy`: the stand-in as a program, with the flags of toxiproxy-server."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from fakes.toxiproxy import VERSION
from fakes.toxiproxy.addresses import BadAddress, listen, listening_on
from fakes.toxiproxy.api import Api
from fakes.toxiproxy.errors import ApiError
from fakes.toxiproxy.syntax import NotJson, read_value

_IDLE_CONNECTION_S = 60
_SHUTDOWN_S = 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("toxiproxy", description=__doc__, allow_abbrev=False)
    parser.add_argument("-host", "--host", default="localhost", help="host for the API to listen on (%(default)s)")
    parser.add_argument("-port", "--port", default="8474", help="port for the API to listen on (%(default)s)")
    parser.add_argument("-config", "--config", default="", metavar="FILE", help="JSON file of proxies to begin with")
    parser.add_argument("-seed", "--seed", type=int, help="accepted and without effect, as in toxiproxy-server")
    parser.add_argument("-version", "--version", action="version", version=f"toxiproxy-server version {VERSION}")
    return parser.parse_args(argv)


def _log(level: str, message: str, **more: object) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    print(json.dumps({"level": level, **more, "time": now, "message": message}), flush=True)


async def _populate(api: Api, file: str) -> None:
    """A file that is no good is a line in the log, not the end, as in toxiproxy-server."""
    try:
        populated = await api.proxies.populate(read_value(Path(file).read_bytes()))
    except OSError as error:
        _log("error", "Error reading config file", config=file, error=str(error))
    except NotJson as error:
        _log("error", "Failed to populate proxies from file", config=file, error=str(error))
    else:
        if populated.error:
            _log("error", "Failed to populate proxies from file", config=file, error=populated.error.text)
        else:
            _log("info", "Populated proxies from file", config=file, proxies=len(populated.proxies))


async def _serve(host: str, port: str, config: str) -> None:
    """Serves until SIGINT or SIGTERM. Raises BadAddress when it cannot listen there."""
    listener = await listen(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    api = Api()
    if config:
        await _populate(api, config)
    server = uvicorn.Server(
        uvicorn.Config(
            api.app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            headers=[("Server", "lockproof-toxiproxy-stand-in")],
            timeout_keep_alive=_IDLE_CONNECTION_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
    )
    _log("info", "Starting Toxiproxy HTTP server", version=VERSION, address=listening_on(listener))
    await server.serve(sockets=[listener])


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    for ending in (signal.SIGINT, signal.SIGTERM):
        # The HTTP server ends in good order on these and then raises them again, for whoever had a handler before it.
        signal.signal(ending, lambda *_: None)
    try:
        asyncio.run(_serve(arguments.host, arguments.port, arguments.config))
    except (BadAddress, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
