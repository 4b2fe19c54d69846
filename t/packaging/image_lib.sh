# shellcheck shell=bash
# Sourced by the tests of images, after which lib.sh's functions are there, too. $root is a container's file system.
#
# build_ah WORDS...             runs buildah with a store of its own, so that the machine's images are not changed
# make_base NAME                commits the system in $work/base as the image NAME, and deletes the folder
# start_redis                   starts a Redis on $port of 127.0.0.1
# wait_for WHAT COMMAND...      waits until the command succeeds, for ten seconds
#
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

redis_pid=
root=

build_ah() { buildah --root "$work/images" --runroot "$work/run" "$@"; }

stop_all() {
    local pid
    for pid in $(cat "${root:-/none}/run/nginx.pid" 2>/dev/null) $redis_pid; do
        kill "$pid" 2>/dev/null || true
    done
    wait
    build_ah rm --all >/dev/null 2>&1 || true
    umount -R "$work"/images/overlay 2>/dev/null || true
    clean_up
}
trap stop_all EXIT

wait_for() {
    local what=$1
    shift
    for _ in {1..200}; do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.05
    done
    tail -n 20 "$work"/*.log >&2
    fail "$what"
}

make_base() {
    local container
    container=$(build_ah from scratch)
    build_ah copy -q "$container" "$work/base" / >/dev/null
    build_ah config --cmd bash "$container"
    build_ah commit -q --rm "$container" "$1" >/dev/null
    rm -rf --one-file-system "$work/base"
}

start_redis() {
    port=16379
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        port=$((port + 1))
    done
    redis-server --bind 127.0.0.1 --port "$port" --save '' --dir "$work" >"$work/redis.log" 2>&1 &
    redis_pid=$!
    wait_for 'Redis answers' redis-cli -p "$port" ping
}
