# Shared by the scripts in this folder: source it, do not run it.
# shellcheck shell=bash disable=SC2034  # what is set here is used by those that source it

CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/lockproof-ci"
# The Debian release that images are made of and, where the machine's own release has only Compose v1, that Compose
# comes from. Pinned, so that a newer machine does not change what is under test.
SUITE=trixie

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
  printf '\n%s: FAILED: %s\n\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# apt_install PACKAGE...: as root, without questions, waiting for another apt that runs at the same time.
apt_install() {
  [ "$(id -u)" -eq 0 ] || die "installing $* needs root (or install it beforehand)"
  apt_update_once
  install_now "$@" || {
    retry 3 apt-get -qq update # the mirror may have replaced what the lists still name
    install_now "$@"
  } || die "apt-get could not install: $*"
}

install_now() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "$@" >/dev/null
}

# apt_update_once: package lists that are less than a day old are good enough.
apt_update_once() {
  [ -z "${apt_updated:-}" ] || return 0
  if [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*InRelease' -mmin -1440 -print -quit 2>/dev/null)" ]; then
    retry 3 apt-get -qq update || die "apt-get update failed"
  fi
  apt_updated=1
}

# retry TIMES COMMAND...
retry() {
  local left=$1
  shift
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 2
  done
}

# debian_sources SUITE: one-line apt sources of another Debian release, from the mirrors this machine uses already.
# Other vendors' sources are left out: they need not have that release.
debian_sources() {
  local suite=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -r "$keyring" ] || apt_install debian-archive-keyring
  apt_update_once
  # shellcheck disable=SC2016  # apt's own variables
  apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(CODENAME)' 'Created-By: Packages' | sort -u |
    while IFS='|' read -r origin uri codename; do
      [ "$origin" = Debian ] || continue
      printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite${codename#"${codename%%-*}"}"
    done
}
