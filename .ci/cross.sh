# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by .ci/arm64.sh and packaging/module.sh, with the functions and variables of build.sh: compiles for arm64.
#
# cross_to_arm64    unpacks the libraries from Debian's packages into build/arm64, since some replace the machine's own,
#                   builds hiredis there, and sets CC and what else the compilers read
# CC is a script: qemu runs the programs that nginx's configure compiles and starts.

mapfile -t cross_packages < <(packages_for cross)
triplet=aarch64-linux-gnu
root=$build/arm64
libraries=$root/usr/lib/$triplet

fetch_libraries() (
    . "$top/.ci/debian.sh"
    mkdir -p "$root"
    export APT_CONFIG=$root/apt.conf
    echo 'APT::Architectures { "arm64"; };' >"$APT_CONFIG"
    debian_lists "deb $(. /etc/os-release && echo "$VERSION_CODENAME")"
    for package in libevent-{2.1-7,core-2.1-7,extra-2.1-7,dev} lib{gtest,gmock}-dev libssl{3,-dev} zlib1g{,-dev} \
        libpcre2-{8-0,dev} libcrypt1 nginx; do
        apt_get download "$package:arm64" || fail "could not fetch $package for arm64"
    done
    for package in ./*.deb; do dpkg -x "$package" "$root"; done
    touch "$root/complete-nginx"
)

cross_to_arm64() {
    [ -f "$root/complete-nginx" ] || fetch_libraries
    cat >"$root/cc" <<END
#!/bin/sh
$triplet-gcc -L$libraries "\$@" || exit
for word; do
    case \$word in */autotest) ;; *) continue ;; esac
    mv "\$word" "\$word.arm64"
    printf '#!/bin/sh\nexec qemu-aarch64 -L /usr/$triplet "%s"\n' "\$word.arm64" >"\$word"
    chmod 755 "\$word"
done
END
    chmod 755 "$root/cc"
    export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
    export C_INCLUDE_PATH=$root/usr/include:$root/usr/include/$triplet
    export CPLUS_INCLUDE_PATH=$C_INCLUDE_PATH
    export CC=$root/cc CXX=$triplet-g++ AR=$triplet-ar
    export RATELIMIT_HIREDIS=$root/hiredis
    sh "$top/.ci/hiredis.sh" "$RATELIMIT_HIREDIS"
}
