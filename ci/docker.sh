#!/usr/bin/env bash
# Docker Engine and Compose v2 from Debian's packages, with a running dockerd at the end of it.
#
#   ci/docker.sh        install what is missing, start dockerd where none runs, check that both work
#   ci/docker.sh stop   stop the dockerd that this script started (and no other), its containers with it
#
# Does nothing, in well under a second, where all of it is there already. Fails, saying so, where no engine can be
# started: the composed stack is then not tested, and a run that leaves that out must not be green.
set -euo pipefail
# shellcheck source=ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

RUN="${LOCKPROOF_DOCKER_RUN:-/run/lockproof-ci}"
PIDFILE="$RUN/dockerd.pid"
LOG="$RUN/dockerd.log"
PLUGINS=/usr/local/lib/docker/cli-plugins

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# is PROGRAM PID: whether that process is a living PROGRAM (a zombie has no exe).
is() { [ "$(basename "$(readlink "/proc/$2/exe" 2>/dev/null)")" = "$1" ]; }

install_engine() {
  if ! command -v dockerd >/dev/null; then
    say "installing Docker Engine"
    apt_install docker.io ca-certificates
  fi
  command -v docker >/dev/null || apt_install docker-cli # a package of its own from Debian 13 on
}

start_engine() {
  [ "$(id -u)" -eq 0 ] || die "no Docker Engine answers, and starting dockerd needs root"
  mkdir -p "$RUN"
  # A pid file outlives a kill -9. dockerd takes the number for a running one where a zombie or another program has it
  # now, and then waits in vain for that containerd, so what is stale goes. It ends what containers are left itself.
  local pid file
  for file in "$PIDFILE" /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
    [ -f "$file" ] || continue
    is "$([[ $file == *containerd* ]] && echo containerd || echo dockerd)" "$(cat "$file")" || rm -f "$file"
  done
  # The containers talk to each other and are reached from the host's loopback through
  # docker-proxy: nothing has to be routed, filtered or translated, they cannot reach out, and the host's firewall and
  # sysctls stay as they were. It is also four times as fast where a range of ports is published.
  setsid dockerd --iptables=false --ip-forward=false --pidfile "$PIDFILE" >"$LOG" 2>&1 </dev/null &
  pid=$!
  say "starting dockerd (pid $pid, log $LOG)"
  local deadline=$((SECONDS + 60))
  until engine_answers; do
    if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      tail -n 40 "$LOG" >&2
      die "no Docker Engine could be started here (the end of $LOG is above)"
    fi
    sleep 0.1
  done
  disown "$pid"
}

stop_engine() {
  local pid
  pid=$(cat "$PIDFILE" 2>/dev/null) || { say "no dockerd of this script's is running"; return 0; }
  is dockerd "$pid" || { rm -f "$PIDFILE"; return 0; }
  kill "$pid" # SIGTERM: it stops its containers and its containerd before it ends
  local deadline=$((SECONDS + 30))
  while is dockerd "$pid"; do
    [ "$SECONDS" -lt "$deadline" ] || die "dockerd ($pid) did not stop within 30 s"
    sleep 0.1
  done
  say "stopped dockerd ($pid)"
}

# Compose v2 is a single file, a plugin of the docker command. Debian 12 packages only v1, so there the plugin is taken
# out of Debian 13's package: downloaded with apt, its signature checked, nothing else of that release installed.
install_compose() {
  apt_update_once
  if [[ "$(apt-cache policy docker-compose | sed -n 's/^ *Candidate: //p')" =~ ^[2-9]\. ]]; then
    apt_install docker-compose
    return
  fi
  say "installing Compose v2 from Debian $SUITE"
  local work
  work=$(mktemp -d)
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/deb"
  debian_sources "$SUITE" >"$work/sources.list"
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
  retry 3 "${apt[@]}" update || die "could not read the package lists of Debian $SUITE"
  (cd "$work/deb" && retry 3 "${apt[@]}" download docker-compose) || die "could not download docker-compose"
  dpkg-deb --extract "$work"/deb/docker-compose_*.deb "$work/root"
  install -D -m 0755 "$work/root/usr/libexec/docker/cli-plugins/docker-compose" "$PLUGINS/docker-compose"
  rm -rf "$work"
}

if [ "${1:-}" = stop ]; then
  stop_engine
  exit 0
fi
engine_answers || {
  install_engine
  engine_answers || start_engine
}
[[ "$(docker compose version --short 2>/dev/null)" =~ ^v?[2-9] ]] || install_compose
[[ "$(docker compose version --short 2>/dev/null)" =~ ^v?[2-9] ]] || die "docker compose does not work"
say "engine $(docker version --format '{{.Server.Version}}'), compose $(docker compose version --short)"
