# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh test-packages`, whose functions and variables it uses.

[ "$(id -u)" -eq 0 ] || fail 'test-packages needs root, for debootstrap and chroot'
mapfile -t packages < <(packages_for system)
need "${packages[@]}"
bash "$top/t/packaging/debian.sh"
bash "$top/t/packaging/image.sh"
bash "$top/t/packaging/nginx_image.sh"
