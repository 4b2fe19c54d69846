#!/bin/sh
# Writes the configuration that depends on the environment, which nginx cannot read itself: the address of
# Redis, and the resolver, so that nginx follows a Redis that changes its address. Then executes nginx.
set -eu

case $REDIS_ADDR in
'' | *[!][A-Za-z0-9_.:/-]*)
    echo "entrypoint.sh: REDIS_ADDR is \"$REDIS_ADDR\", expected host:port or unix:/path" >&2
    exit 1
    ;;
esac

# IPv6 addresses in brackets, without those that have a scope, which nginx does not support.
name_servers=$(sed -n -e '/%/d' -e 's/^nameserver[[:space:]]\{1,\}\([0-9.]*\)$/\1/p' \
    -e 's/^nameserver[[:space:]]\{1,\}\([0-9a-fA-F:.]*\)$/[\1]/p' /etc/resolv.conf 2>/dev/null | tr '\n' ' ')

cat >/run/ratelimit_redis.conf <<END
ratelimit_redis main {
    server $REDIS_ADDR;
}
${name_servers:+resolver $name_servers;}
END

exec "$@"
