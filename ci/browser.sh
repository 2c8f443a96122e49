#!/usr/bin/env bash
# What the report's browser tests need: Chromium and Node from the machine's packages, and the two npm packages that
# tests/report/browser pins (playwright-core drives the browser, axe-core checks accessibility).
#
#   ci/browser.sh    install what is missing
#
# Does nothing, in well under a second, where all of it is there. Fails, saying so, where a browser cannot be had: the
# page is then not tested, and a run that leaves that out must not be green.
set -euo pipefail
# shellcheck source=ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TESTS="$(cd "$(dirname "${BASH_SOURCE[0]}")/../tests/report/browser" && pwd)"

has_browser() {
  [ -n "${CHROMIUM:-}" ] || command -v chromium || command -v chromium-browser ||
    command -v google-chrome || command -v google-chrome-stable
} >/dev/null

if ! has_browser; then
  say "installing Chromium"
  apt_install chromium fonts-dejavu-core
fi
if ! command -v npm >/dev/null; then
  say "installing Node and npm"
  apt_install nodejs npm
fi
# npm ci removes and installs anew: only where the lock file changed since.
if ! cmp -s "$TESTS/package-lock.json" "$TESTS/node_modules/.lockproof-installed"; then
  say "installing playwright-core and axe-core"
  (cd "$TESTS" && retry 3 npm ci --no-audit --no-fund --ignore-scripts >/dev/null) || die "npm ci failed in $TESTS"
  cp "$TESTS/package-lock.json" "$TESTS/node_modules/.lockproof-installed"
fi
has_browser || die "no Chromium on PATH (or name one in CHROMIUM)"
