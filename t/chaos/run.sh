# shellcheck shell=bash disable=SC2154
# Sourced by build.sh for `./build.sh chaos`, whose functions and variables it uses: builds the module and runs run.pl.
# A table of earlier runs (--sum) needs neither.
# Usage: ./build.sh chaos [minutes] [option...]      see run.pl

case " $* " in
*' --sum '*) ;;
*)
    mapfile -t packages < <(packages_for test chaos)
    need_to_build "${packages[@]}"
    build_module
    ;;
esac
BUILD_DIR=$build exec perl "$top/t/chaos/run.pl" "$@"
