# The official image of nginx with the rate limit module; everything else is as it was. From the top of the sources:
#
#   docker build -f packaging/docker/nginx.Dockerfile --build-arg NGINX=1.31.4 -t nginx-ratelimit:1.31.4 .
#
# NGINX is a tag of the official image that is based on Debian: 1.31.4, stable, mainline. See "Images" in
# doc/install.md.

ARG NGINX=mainline
FROM nginx:${NGINX} AS build
COPY . /src
RUN /src/build.sh module --like /usr/sbin/nginx \
    && cp /src/build/module/*/ngx_http_ratelimit_module.so /

FROM nginx:${NGINX}
COPY --from=build /ngx_http_ratelimit_module.so /usr/lib/nginx/modules/
COPY --from=build /src/packaging/NOTICES /usr/share/doc/ngx_http_ratelimit_module/
RUN sed -i '1i load_module /usr/lib/nginx/modules/ngx_http_ratelimit_module.so;' /etc/nginx/nginx.conf \
    && nginx -t
