#!/bin/sh
# What nginx's configuration takes from the environment, which nginx itself does not read: Redis's
# address, and the name servers, with which a Redis that moves is followed. Then becomes nginx.
set -eu

case $REDIS_ADDR in
'' | *[!][A-Za-z0-9_.:/-]*)
    echo "entrypoint.sh: REDIS_ADDR is \"$REDIS_ADDR\", expected host:port or unix:/path" >&2
    exit 1
    ;;
esac

# IPv6 in brackets; none with a scope, which nginx does not know.
name_servers=$(sed -n -e '/%/d' -e 's/^nameserver[[:space:]]\{1,\}\([0-9.]*\)$/\1/p' \
    -e 's/^nameserver[[:space:]]\{1,\}\([0-9a-fA-F:.]*\)$/[\1]/p' /etc/resolv.conf 2>/dev/null | tr '\n' ' ')

cat >/run/ratelimit_redis.conf <<END
ratelimit_redis main {
    server $REDIS_ADDR;
}
${name_servers:+resolver $name_servers;}
END

exec "$@"
