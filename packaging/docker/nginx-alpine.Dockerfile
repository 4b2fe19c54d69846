# Untried: the official image of nginx on Alpine with the rate limit module. From the top of the sources:
#
#   docker build -f packaging/docker/nginx-alpine.Dockerfile --build-arg NGINX=1.31.4-alpine -t nginx-ratelimit:alpine .

ARG NGINX=mainline-alpine
FROM nginx:${NGINX} AS build
RUN apk add --no-cache bash g++ make git openssl openssl-dev pcre2-dev zlib-dev nlohmann-json curl
COPY . /src
RUN bash /src/build.sh module --like /usr/sbin/nginx \
    && cp /src/build/module/*/ngx_http_ratelimit_module.so /

FROM nginx:${NGINX}
COPY --from=build /ngx_http_ratelimit_module.so /usr/lib/nginx/modules/
COPY --from=build /src/packaging/NOTICES /usr/share/doc/ngx_http_ratelimit_module/
RUN sed -i '1i load_module /usr/lib/nginx/modules/ngx_http_ratelimit_module.so;' /etc/nginx/nginx.conf \
    && nginx -t
