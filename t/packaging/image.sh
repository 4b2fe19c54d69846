#!/usr/bin/env bash
# Tests the Dockerfile without a Docker engine: builds it with buildah on a base that is made like
# debian:trixie-slim, and runs the image with a Redis on loopback. Needs root, buildah, debootstrap, free ports
# 8080 and 8081, and three minutes.
# Usage: t/packaging/image.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/image_lib.sh"

image=nginx-ratelimit
url=http://127.0.0.1:8080
watch=http://127.0.0.1:8081
run_pid=
mount=

make_image() {
    sources "$work/context"
    check 'the Dockerfile builds an image' build_ah bud -q --isolation chroot --pull-never \
        --format docker -t "$image" "$work/context"
    for name in "$image" docker.io/library/debian:trixie-slim; do
        echo "# $name, $(build_ah images --format '{{.Size}}' "$name")"
    done
}

# Values of the image's configuration: one word, or the words of a list, one per line.
inspect() { build_ah inspect --type image --format "$1" "$image"; }
word_of() { inspect "{{.Docker.Config.$1}}"; }
list_of() { inspect "{{range .Docker.Config.$1}}{{println .}}{{end}}"; }

run_plainly() {
    build_ah run --isolation chroot --env "REDIS_ADDR=$redis" ${mount:+--volume "$mount"} "$container" -- "$@"
}

# Runs a command in the container, as its user. In buildah, standard output and error belong to root, so the
# command gets pipes to them that its user may open, as with an engine. They may end before they have passed on
# the last lines.
run() {
    # shellcheck disable=SC2016
    run_plainly bash -c 'exec "$@" > >(exec cat) 2> >(exec cat >&2)' run "$@"
}

# Starts the image's program as an engine would; its output goes to out.log and err.log.
start() {
    local command
    mapfile -t command < <(list_of Entrypoint && list_of Cmd)
    run "${command[@]}" >"$work/out.log" 2>"$work/err.log" &
    run_pid=$!
    wait_for 'nginx listens' curl -s "$url/health"
}

stop() {
    local status=0
    kill -s "$1" "$(cat "$root/run/nginx.pid")"
    wait "$run_pid" || status=$?
    return $status
}

answers() {
    for _ in {1..12}; do
        curl -s -o /dev/null -D - "$url/"
    done | tr -d '\r' >"$work/answers"
    cat "$work/answers"
    sed -n 's/^HTTP[^ ]* \([0-9]*\).*/\1/p' "$work/answers" >"$work/statuses"
    [ "$(uniq -c "$work/statuses" | xargs)" = '10 200 2 429' ] &&
        grep -qx 'X-RateLimit-Limit: 10' "$work/answers" &&
        grep -qx 'X-RateLimit-Remaining: 0' "$work/answers" &&
        grep -q '^RateLimit-Policy: "per_client";q=10;w=60' "$work/answers" &&
        grep -q '^Retry-After: [0-9]' "$work/answers"
}

none_is_root() {
    local pid
    for pid in $(cat "$root/run/nginx.pid") $(pgrep -P "$(cat "$root/run/nginx.pid")"); do
        ps -o user=,args= -p "$pid"
        [ "$(stat -c %u "/proc/$pid")" = 33 ] || return 1
    done
}

healthy() {
    local test
    mapfile -t test < <(list_of Healthcheck.Test)
    [ "${test[0]}" = CMD ] && run "${test[@]:1}"
}

says() { grep -q "$2" "$work/$1.log"; }

# Mounts a typical configuration for Debian's nginx over the demonstration.
mount_configuration() {
    cat >"$work/nginx.conf" <<END
user www-data;
pid /run/nginx.pid;
include /etc/nginx/modules-enabled/*.conf;
events {}
http {
    access_log /var/log/nginx/access.log;
    ratelimit_zone all zone=all rate=1r/d;
    server {
        listen 127.0.0.1:8080;
        location / { ratelimit zone=all; root /usr/share/nginx/html; }
        location = /health { return 200; }
    }
}
END
    mount=$work/nginx.conf:/etc/nginx/nginx.conf:ro
}

# The page is served, and the metrics have the ten requests that passed.
dashboard() {
    curl -s "$watch/" | grep -o '<title>.*</title>' &&
        curl -s "$watch/metrics" | grep '^ratelimit_requests_total{.*result="passed",source="redis"} 10$'
}

own_limit() {
    [ "$(for _ in 1 2; do curl -s -o /dev/null -w '%{http_code} ' "$url/"; done)" = '200 429 ' ]
}

refuses() {
    redis=$1
    ! run_plainly entrypoint.sh true >"$work/refusal" 2>&1 || return 1
    cat "$work/refusal"
    grep -x "entrypoint.sh: REDIS_ADDR is \"$1\", expected host:port or unix:/path" "$work/refusal"
}

system trixie "$work/base"
make_base docker.io/library/debian:trixie-slim
make_image
! curl -s -o /dev/null "$url" || fail "port 8080 is free"
container=$(build_ah from --pull-never "$image")
root=$(build_ah mount "$container")
start_redis
redis=127.0.0.1:$port

start
wait_for 'the module is connected' says err 'is up'
check 'ten requests a minute pass, the others are 429, with headers' answers
check 'the dashboard and the metrics are on another port' dashboard
check 'they are counted in Redis' sh -c "redis-cli -p $port --scan | grep '^rl:per_client:'"
check 'neither master nor workers are root' none_is_root
check 'nginx -t passes' run nginx -t
check 'the image has ratelimit-rehearse' run ratelimit-rehearse --help
check 'the health check passes' healthy
check 'requests are logged to standard output' says out '^127.0.0.1 "GET / HTTP/1.1" 429 REJECTED'
check 'refusals to standard error' says err '\[error\].* limiting requests, by zone "per_client"'
[ "$(word_of StopSignal)" = SIGQUIT ] || fail 'engines stop it with SIGQUIT'
check 'SIGQUIT stops it' stop QUIT
check 'nothing above [error] is logged' sh -c "! grep -E '\[(alert|emerg|crit)\]' '$work/err.log'"
! healthy >/dev/null 2>&1 || fail 'the health check fails when nginx is stopped'

redis-cli -p "$port" shutdown nosave >/dev/null 2>&1 || true
start
check 'without Redis the node limits from its own memory' answers
check 'and logs that Redis is away' says err 'redis "main" at .* is away'
check 'SIGTERM stops it' stop TERM

mount_configuration
start
check 'a configuration that is mounted over the demonstration is used' own_limit
check 'it logs to standard output' says out '"GET / HTTP/1.1" 429'
check 'and stops' stop TERM
check 'a bad address is refused in one line' refuses 'a;b'
echo "$checks passed, 0 failed"
