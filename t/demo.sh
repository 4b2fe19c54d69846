#!/usr/bin/env bash
# Demonstrates the module: starts a private Redis and nginx on loopback, sends requests to a limited location
# until the responses turn from 200 to 429, and stops both servers when Enter is pressed or its input ends.
# Usage: t/demo.sh path/to/ngx_http_ratelimit_module.so [--once] (`./build.sh demo` calls it). With --once it
# does not wait.
set -euo pipefail

module=$1
once=${2:-}
PATH=$PATH:/usr/sbin  # Debian's nginx is there, which only root's PATH has
folder=$(mktemp -d /tmp/ratelimit-demo.XXXXXX)
nginx_pid=
redis_pid=

stop() {
    for pid in $nginx_pid $redis_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

fail() {
    echo "demo: $*" >&2
    tail -n 20 "$folder"/*.log >&2
    exit 1
}

# Prints a free TCP port of 127.0.0.1, at or above $1.
free_port() {
    local port=$1
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        port=$((port + 1))
    done
    echo "$port"
}

wait_for() {
    local what=$1
    shift
    for _ in {1..600}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    fail "$what did not start in time"
}

redis_port=$(free_port 16379)
port=$(free_port 18080)
chmod 755 "$folder"
mkdir "$folder/html"
echo 'Hello from behind the limit.' >"$folder/html/index.html"

cat >"$folder/nginx.conf" <<END
load_module $module;

error_log $folder/nginx.log notice;
pid $folder/nginx.pid;
daemon off;
worker_processes 2;
events {}

http {
    access_log off;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;

    # The counters are in this Redis, shared by all workers of all nodes that use it.
    ratelimit_redis main {
        server 127.0.0.1:$redis_port;
    }

    # Each client may send five requests in any ten seconds.
    ratelimit_zone \$ratelimit_client zone=per_client rate=5r/10s algorithm=sliding_window_log;

    server {
        listen 127.0.0.1:$port;
        location / {
            root $folder/html;
            ratelimit zone=per_client;
        }
        location /ratelimit/ {
            ratelimit_api;
        }
    }
}
END

echo "1. A private Redis on 127.0.0.1:$redis_port, and nginx with two workers on 127.0.0.1:$port."
redis-server --bind 127.0.0.1 --port "$redis_port" --save '' --dir "$folder" \
    >"$folder/redis.log" 2>&1 &
redis_pid=$!
# Both commands append to the log.
# shellcheck disable=SC2094
nginx -p "$folder/" -e "$folder/nginx.log" -c "$folder/nginx.conf" 2>>"$folder/nginx.log" &
nginx_pid=$!
wait_for nginx curl -s -o /dev/null "http://127.0.0.1:$port/ratelimit/"
wait_for 'the connection to Redis' \
    sh -c "[ \$(grep -c 'is up' $folder/nginx.log) -ge 2 ]"

echo
echo '2. The limit in nginx.conf:'
echo
sed -n -e '/# The counters/,/^    }/p' -e '/# Each client/,/ratelimit_zone/p' \
    -e '/location \//,/}/p' "$folder/nginx.conf"
echo
echo '3. Seven requests of one client:'
echo

# One curl, so that a busy machine also sends all within ten seconds. Seven connections, so that both workers decide.
answers=$(curl -s -o /dev/null -D - -H 'Connection: close' "http://127.0.0.1:$port/?[1-7]" | tr -d '\r')
awk '/^HTTP/ { printf "   %d  %s ", ++number, $2 } tolower($1) ~ /^(x-ratelimit-|retry-after)/ { printf " %s", $0 }
    /^$/ { print "" }' <<<"$answers"
statuses=$(awk '/^HTTP/ { printf " %s", $2 }' <<<"$answers")

[ "$statuses" = ' 200 200 200 200 200 429 429' ] || fail "unexpected statuses:$statuses"
metrics=$(curl -s "http://127.0.0.1:$port/ratelimit/metrics")

cat <<END

   Five passed, then 429: the count is in Redis, so it did not matter which worker handled a request.

4. The metrics for Prometheus at /ratelimit/metrics:

$(sed -n -e '/ 0$/d' -e 's/^ratelimit_requests_total/   &/p' <<<"$metrics")

5. Where to go next: README.md shows a complete configuration, doc/reference.md describes every directive.
   Your nginx loads this build with

   load_module $module;
END
[ "$once" != --once ] || exit 0

cat <<END

6. Both servers run until you press Enter here. Open the dashboard in a browser:

   http://127.0.0.1:$port/ratelimit/

   In another terminal, send requests and watch it:

   for i in \$(seq 12); do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:$port/; done
   curl -i http://127.0.0.1:$port/
   redis-cli -p $redis_port keys 'rl:*'

   Change the limit in nginx.conf and reload it, or see what happens without Redis:

   sed -i 's,5r/10s,2r/10s,' $folder/nginx.conf && kill -HUP $nginx_pid
   kill $redis_pid

END
trap 'exit 0' INT TERM
read -r -p 'Press Enter to stop. ' || true
