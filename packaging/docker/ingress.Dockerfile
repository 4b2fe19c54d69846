# Untried: F5's NGINX Ingress Controller with the rate limit module. From the top of the sources:
#
#   docker build -f packaging/docker/ingress.Dockerfile --build-arg NIC=5.2.1 -t nginx-ingress-ratelimit:5.2.1 .
#
# NIC is a tag of nginx/nginx-ingress that is based on Debian. The module is loaded by the ConfigMap's main-snippets: see
# doc/kubernetes.md.

ARG NIC=latest
FROM nginx/nginx-ingress:${NIC} AS build
USER root
COPY . /src
RUN /src/build.sh module --like /usr/sbin/nginx \
    && cp /src/build/module/*/ngx_http_ratelimit_module.so /

FROM nginx/nginx-ingress:${NIC}
COPY --from=build /ngx_http_ratelimit_module.so /usr/lib/nginx/modules/
COPY --from=build /src/packaging/NOTICES /usr/share/doc/ngx_http_ratelimit_module/
