"""One suite for two servers: the real Toxiproxy, and the stand-in that must not differ from it.

The real server is the program in TOXIPROXY_SERVER, else toxiproxy-server on PATH; toxiproxy-cli likewise by
TOXIPROXY_CLI. ci/toxiproxy.sh installs both. Where they are missing their tests are skipped, and say so.
"""
