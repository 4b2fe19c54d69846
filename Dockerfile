# Debian 13's nginx with the rate limit module and a configuration that demonstrates it.
#
#   docker build -t nginx-ratelimit .
#   docker run -p 8080:8080 -p 127.0.0.1:8081:8081 -e REDIS_ADDR=10.0.0.5:6379 nginx-ratelimit
#
# Needs BuildKit (Docker 23 or later) or buildah. See "Docker" in doc/install.md.

FROM debian:trixie-slim AS build
ARG VERSION=
COPY . /src
RUN VERSION="$VERSION" /src/build.sh deb

FROM debian:trixie-slim
RUN --mount=type=bind,from=build,source=/src/build/deb,target=/mnt \
    apt-get -qq update \
    && apt-get -qq install -y --no-install-recommends nginx /mnt/libnginx-mod-http-ratelimit_*.deb \
    && apt-get -qq clean \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log \
    && ln -sf /dev/stdout /var/log/nginx/access.log \
    && ln -sf /dev/stderr /var/log/nginx/error.log \
    && chown www-data:www-data /run /var/lib/nginx
COPY packaging/image/nginx.conf /etc/nginx/nginx.conf
COPY packaging/image/entrypoint.sh /usr/local/bin/entrypoint.sh

ENV REDIS_ADDR=127.0.0.1:6379
# www-data, for master and workers, by its number, so that Kubernetes can verify that it is not root.
USER 33:33
EXPOSE 8080
# Graceful shutdown: nginx completes the requests in progress.
STOPSIGNAL SIGQUIT
HEALTHCHECK --interval=10s --timeout=2s --start-period=2s CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["/usr/local/bin/entrypoint.sh"]
CMD ["nginx", "-g", "daemon off;"]
