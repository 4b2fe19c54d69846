#!/usr/bin/env bash
# Tests packaging/docker/nginx.Dockerfile without a Docker engine and without a registry: builds it with buildah on a
# stand-in for the official image, Debian 12 with its nginx and the source of that (which with the official image comes
# from GitHub), and limits with the configuration of compose.yaml. Needs root, buildah, debootstrap, free ports 8080 and
# 8081, and two minutes.
# Usage: t/packaging/nginx_image.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/image_lib.sh"

image=nginx-ratelimit
stand_in=docker.io/library/nginx:bookworm

install_nginx() {
    inside "$work/base" sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends nginx nginx-dev &&
        rm /etc/nginx/sites-enabled/default'
}

# Mounted by compose.yaml; there nginx has an address of its own, and Redis a name.
configuration() {
    sed -e "s/redis:6379/127.0.0.1:$port/" -e 's/listen 80;/listen 127.0.0.1:8080;/' \
        -e 's/listen 8081;/listen 127.0.0.1:8081;/' "$top/packaging/docker/limits.conf"
}

run() {
    build_ah run --isolation chroot --volume "$work/limits.conf:/etc/nginx/conf.d/default.conf:ro" "$container" -- "$@"
}

answers() {
    for _ in {1..12}; do
        curl -s -o /dev/null -w '%{http_code} %header{x-ratelimit-limit}\n' http://127.0.0.1:8080/
    done | tee "$work/answers"
    [ "$(uniq -c "$work/answers" | xargs)" = '10 200 10 2 429 10' ]
}

counted() { redis-cli -p "$port" --scan | grep '^rl:per_client:'; }
dashboard() { curl -s http://127.0.0.1:8081/ | grep -o '<title>.*</title>'; }

system bookworm "$work/base"
check 'apt installs nginx' install_nginx
make_base "$stand_in"
sources "$work/context"
check 'the Dockerfile builds an image' build_ah bud -q --isolation chroot --pull-never --format docker \
    -f "$work/context/packaging/docker/nginx.Dockerfile" --build-arg NGINX=bookworm -t "$image" "$work/context"
container=$(build_ah from --pull-never "$image")
root=$(build_ah mount "$container")
start_redis
configuration >"$work/limits.conf"
check 'nginx -t passes with the configuration of compose.yaml' run nginx -t
run nginx -g 'daemon off;' >"$work/out.log" 2>"$work/err.log" &
wait_for 'nginx listens' curl -s http://127.0.0.1:8081/
check 'ten requests a minute pass, the others are 429' answers
check 'they are counted in Redis' counted
check 'the dashboard is on another port' dashboard
echo "$checks passed, 0 failed"
