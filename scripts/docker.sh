#!/usr/bin/env bash
# Provides what tests of containers need: a Docker engine, started if none answers, and
# Docker Compose, built once from its Go module. Images are made by the tests.
#
# Usage: scripts/docker.sh start   start an engine if none answers, and print its process id if it was started
#        scripts/docker.sh stop    end the engine that start has started
#        scripts/docker.sh compose build bin/tools/docker-compose
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly SOCKET=/var/run/docker.sock PID=bin/dockerd.pid LOG=bin/dockerd.log
readonly COMPOSE=bin/tools/docker-compose
export PATH=$PATH:/usr/sbin:/sbin

answers() { curl -s --max-time 2 --unix-socket "$SOCKET" http://engine/_ping 2>/dev/null | grep -q OK; }

start() {
	if answers; then
		return
	fi
	if ! command -v dockerd >/dev/null; then
		echo "docker: dockerd is not installed (Debian: docker.io)" >&2
		exit 1
	fi
	mkdir -p bin
	# It outlives this script, and ends with stop.
	setsid scripts/as-root.sh dockerd >"$LOG" 2>&1 </dev/null &
	echo $! >"$PID"
	for _ in $(seq 150); do
		if answers; then
			echo "docker: started an engine, process $(cat "$PID")"
			return
		fi
		sleep 0.2
	done
	echo "docker: the engine did not start:" >&2
	tail -n 20 "$LOG" >&2
	exit 1
}

stop() {
	[[ -s $PID ]] || return 0
	kill "$(cat "$PID")" 2>/dev/null || true
	for _ in $(seq 100); do
		kill -0 "$(cat "$PID")" 2>/dev/null || break
		sleep 0.1
	done
	rm -f "$PID"
}

compose() {
	if [[ -x $COMPOSE && ! scripts/compose/go.mod -nt $COMPOSE ]]; then
		return
	fi
	echo "docker: building Docker Compose, once"
	mkdir -p bin/tools
	(cd scripts/compose && GOFLAGS=-mod=mod go build -ldflags '-s -w' -o ../../bin/tools/docker-compose \
		github.com/docker/compose/v5/cmd)
	touch "$COMPOSE"
}

case "${1-}" in
start | stop | compose) "$1" ;;
*)
	echo "usage: $0 start|stop|compose" >&2
	exit 2
	;;
esac
