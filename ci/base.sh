#!/usr/bin/env bash
# What README's commands need on a machine that has nothing yet: Python with venv, make, git. Does nothing where all of
# it is there.
set -euo pipefail
# shellcheck source=ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

needed=()
command -v make >/dev/null || needed+=(make)
command -v git >/dev/null || needed+=(git) # results.json names the commit
python3 -c 'import ensurepip, venv' 2>/dev/null || needed+=(python3 python3-venv)
if [ ${#needed[@]} -gt 0 ]; then
  say "installing ${needed[*]}"
  apt_install "${needed[@]}"
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed: $(python3 --version)"
