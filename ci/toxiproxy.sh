#!/usr/bin/env bash
# usage: ci/toxiproxy.sh DIR
#
# Installs the real Toxiproxy server and its command line at the pinned version into DIR, unless they are there, and
# prints where they are, ready for `eval`:
#   TOXIPROXY_SERVER=DIR/toxiproxy-server
#   TOXIPROXY_CLI=DIR/toxiproxy-cli
# Builds them with Go, which it installs from the machine's packages where there is none (a Go of 1.21 or newer fetches
# by itself the newer one that the module asks for). tests/toxiproxy_conformance/ finds both by these variables.
set -euo pipefail
# shellcheck source=ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

VERSION=2.12.0
MODULE=github.com/Shopify/toxiproxy/v2

[ $# -eq 1 ] || {
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
mkdir -p "$1"
dir=$(cd "$1" && pwd)

# install_as NAME COMMAND: a program that says another version, or none, is replaced; a failed build leaves nothing behind.
install_as() {
  case $("$dir/$1" --version 2>/dev/null || true) in
    *" version $VERSION") return ;;
  esac
  command -v go >/dev/null || {
    say "installing Go"
    apt_install golang-go ca-certificates
  }
  [[ "$(go env GOVERSION)" =~ ^go1\.(2[1-9]|[3-9][0-9]) ]] ||
    die "Toxiproxy needs Go 1.21 or newer to build; this is $(go version), see https://go.dev/doc/install"
  local build
  build=$(mktemp -d "$dir/.build.XXXXXX")
  # As the project's own releases do it (.goreleaser.yml); without, the program calls itself version "git".
  GOBIN=$build CGO_ENABLED=0 go install -ldflags "-s -w -X $MODULE.Version=$VERSION" "$MODULE/cmd/$2@v$VERSION" >&2 || {
    rm -rf "$build"
    exit 1
  }
  mv "$build/$2" "$dir/$1"
  rmdir "$build"
}

install_as toxiproxy-server server
install_as toxiproxy-cli cli
printf 'TOXIPROXY_SERVER=%q\nTOXIPROXY_CLI=%q\n' "$dir/toxiproxy-server" "$dir/toxiproxy-cli"
