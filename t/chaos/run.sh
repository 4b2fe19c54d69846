# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh chaos`, whose functions and variables it uses: builds the module and runs run.pl.
# A table of earlier runs (--sum) needs neither.
# Usage: ./build.sh chaos [minutes] [option...]      see run.pl

case " $* " in
*' --sum '*) ;;
*)
    need "${build_packages[@]}" redis-server redis-sentinel redis-tools perl openssl procps
    build_module
    ;;
esac
BUILD_DIR=$build exec perl "$top/t/chaos/run.pl" "$@"
