#!/bin/sh
# Installs PgBouncer from Debian or Ubuntu for the tests that need a transaction pooler; the tests start their own.
set -eu

if command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]; then
    exit 0
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo

# The package starts a service: a pooler that nobody asked for, and that would outlive the tests.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
    trap '$sudo rm -f "$policy"' EXIT
fi

$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends pgbouncer >/dev/null
/usr/sbin/pgbouncer --version
