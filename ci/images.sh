#!/usr/bin/env bash
# The images of docker-compose.yml without any registry of images, made of Debian packages, Python wheels and the Go
# module of Toxiproxy. Prints lines to evaluate, progress goes to stderr:
#
#   ci/docker.sh && eval "$(ci/images.sh)" && docker compose up --detach --wait
#
# Every image is tagged with a hash of what it is made from and kept in the engine's own store, outside the checkout:
# what is there is used as it is, what is missing is built. The Debian packages of all three servers are one base image
# (one bootstrap instead of three); what makes a server of it is a Dockerfile of a few lines in ci/images/.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=ci/lib.sh
. "$ROOT/ci/lib.sh"

PG_MAJOR=17 # of Debian $SUITE
PG_BIN="/usr/lib/postgresql/$PG_MAJOR/bin"
PYTHON_VERSION=3.13
PACKAGES="redis-server,postgresql-$PG_MAJOR,python3"
# What fakes/processor/Dockerfile installs.
read -ra PROCESSOR_NEEDS <<<"$(sed -n 's/^RUN pip install .* constraints.txt //p' "$ROOT/fakes/processor/Dockerfile")"
[ "${#PROCESSOR_NEEDS[@]}" -gt 0 ] || die "fakes/processor/Dockerfile does not say what the processor needs"
REPOSITORY=lockproof-ci

hash_of() { sha256sum | cut -c1-12; }
have() { docker image inspect "$1" >/dev/null 2>&1; }

# build IMAGE NAME CONTEXT [ARG...]: the Dockerfile of that name on the base image; no network is needed.
build() {
  local image=$1 name=$2 context=$3
  shift 3
  say "building $image"
  # The classic builder is all that an engine from Debian has without the buildx plugin.
  DOCKER_BUILDKIT=$(docker buildx version >/dev/null 2>&1 && echo 1 || echo 0) \
    docker build --quiet --network none --file "$ROOT/ci/images/$name.Dockerfile" --tag "$image" \
    --build-arg "BASE=$BASE" "$@" "$context" >/dev/null 2>"$WORK/build.log" || {
    cat "$WORK/build.log" >&2
    die "could not build $image"
  }
}

# prune NAME TAG: forget what earlier sources made; an image that a container uses stays.
prune() {
  docker image ls --format '{{.Repository}}:{{.Tag}}' "$REPOSITORY/$1" | grep -v ":$2\$" |
    xargs --no-run-if-empty docker image rm >/dev/null 2>&1 || true
}

base_image() {
  command -v mmdebstrap >/dev/null || apt_install mmdebstrap
  say "bootstrapping $BASE from Debian $SUITE"
  debian_sources "$SUITE" >"$WORK/sources.list"
  # No documentation, no translations; no LLVM, which is four tenths of the whole and only serves PostgreSQL's JIT.
  # No cluster either: the entrypoint makes one.
  local excluded=() path id
  for path in /usr/share/{doc,man,locale,i18n} "/usr/lib/*/libLLVM*" "/usr/lib/*/libz3*" \
    "/usr/lib/postgresql/*/lib/bitcode" "/usr/lib/postgresql/*/lib/llvmjit*"; do
    excluded+=(--dpkgopt="path-exclude=$path" --dpkgopt="path-exclude=$path/*")
  done
  mkdir -p "$WORK/etc/postgresql-common"
  echo "create_main_cluster = false" >"$WORK/etc/postgresql-common/createcluster.conf"
  id=$(mmdebstrap --quiet --variant=essential --include="$PACKAGES" "${excluded[@]}" \
    --essential-hook="copy-in $WORK/etc/postgresql-common /etc" \
    "$SUITE" - "$WORK/sources.list" | docker import -) || die "could not bootstrap Debian $SUITE"
  docker tag "$id" "$BASE"
}

toxiproxy_image() {
  say "building $TOXIPROXY_IMAGE"
  mkdir -p "$WORK/toxiproxy"
  cp "$TOXIPROXY/toxiproxy-server" "$WORK/toxiproxy/toxiproxy" # named as in the public image
  cp "$TOXIPROXY/toxiproxy-cli" "$WORK/toxiproxy/toxiproxy-cli"
  tar -C "$WORK/toxiproxy" --owner=0 --group=0 -c . |
    docker import --change 'ENTRYPOINT ["/toxiproxy"]' --change 'CMD ["-host=0.0.0.0"]' --change 'EXPOSE 8474' \
      - "$TOXIPROXY_IMAGE" >/dev/null || die "could not import $TOXIPROXY_IMAGE"
}

# The wheels, for the image's Python and not for the one that runs pip; kept between runs, since the sources change
# more often than they do.
processor_packages() {
  local python="$ROOT/.venv/bin/python" machine
  machine=$(uname -m)
  [ -x "$python" ] || python=python3
  say "fetching the wheels of the processor"
  "$python" -m pip install --quiet --no-compile --target "$WORK/packages" --constraint "$ROOT/constraints.txt" \
    --python-version "$PYTHON_VERSION" --implementation cp --only-binary :all: --platform "manylinux_2_28_$machine" \
    --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" "${PROCESSOR_NEEDS[@]}" >&2 ||
    die "could not fetch the processor's wheels"
  mkdir -p "$CACHE"
  rm -rf "$CACHE"/processor-packages-*
  mv "$WORK/packages" "$PACKAGES_DIR"
}

processor_image() {
  local context="$WORK/processor"
  [ -d "$PACKAGES_DIR" ] || processor_packages
  mkdir -p "$context/fakes"
  cp -r "$PACKAGES_DIR" "$context/packages"
  cp "$ROOT/fakes/__init__.py" "$context/fakes/"
  cp -r "$ROOT/fakes/processor" "$context/fakes/"
  find "$context" -name __pycache__ -prune -exec rm -rf {} +
  build "$PROCESSOR_IMAGE" processor "$context"
}

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
docker version >/dev/null 2>&1 || die "no Docker Engine answers: run ci/docker.sh first"

TOXIPROXY="$CACHE/toxiproxy"
"$ROOT/ci/toxiproxy.sh" "$TOXIPROXY" >/dev/null || die "could not build Toxiproxy"

# What each image is made from, and so what its tag is a hash of.
base_tag=$(declare -f base_image debian_sources | cat - <(echo "$SUITE $PACKAGES $(uname -m)") | hash_of)
BASE="$REPOSITORY/debian:$base_tag"
redis_tag=$(cat - "$ROOT/ci/images/redis.Dockerfile" <<<"$BASE" | hash_of)
postgres_tag=$(cat - "$ROOT"/ci/images/postgres* <<<"$BASE" | hash_of)
toxiproxy_tag=$(cat - "$TOXIPROXY"/toxiproxy-{server,cli} < <(declare -f toxiproxy_image) | hash_of)
packages_tag=$({
  echo "$PYTHON_VERSION ${PROCESSOR_NEEDS[*]} $(uname -m)"
  cat "$ROOT/constraints.txt"
} | hash_of)
PACKAGES_DIR="$CACHE/processor-packages-$packages_tag"
processor_tag=$({
  echo "$BASE $packages_tag"
  declare -f processor_image
  cat "$ROOT/ci/images/processor.Dockerfile"
  cd "$ROOT" && find fakes/__init__.py fakes/processor -type f -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
} | hash_of)
REDIS_IMAGE="$REPOSITORY/redis:$redis_tag"
POSTGRES_IMAGE="$REPOSITORY/postgres:$postgres_tag"
TOXIPROXY_IMAGE="$REPOSITORY/toxiproxy:$toxiproxy_tag"
PROCESSOR_IMAGE="$REPOSITORY/processor:$processor_tag"

have "$BASE" || base_image
have "$REDIS_IMAGE" || build "$REDIS_IMAGE" redis "$ROOT/ci/images"
have "$POSTGRES_IMAGE" || build "$POSTGRES_IMAGE" postgres "$ROOT/ci/images" --build-arg "PG_BIN=$PG_BIN"
have "$TOXIPROXY_IMAGE" || toxiproxy_image
have "$PROCESSOR_IMAGE" || processor_image
prune redis "$redis_tag"
prune postgres "$postgres_tag"
prune toxiproxy "$toxiproxy_tag"
prune processor "$processor_tag"
prune debian "$base_tag"

printf 'export %s\n' "REDIS_IMAGE=$REDIS_IMAGE" "POSTGRES_IMAGE=$POSTGRES_IMAGE" \
  "TOXIPROXY_IMAGE=$TOXIPROXY_IMAGE" "PROCESSOR_IMAGE=$PROCESSOR_IMAGE"
