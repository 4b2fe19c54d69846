# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by build.sh for `./build.sh test` and `lint`, whose functions and variables it uses.
#
# run_tests [--except 'a|b'] [t/...]    installs what these tests need, builds it, and runs them

test_folders=(t/unit t/tools t/rehearse "${nginx_tests[@]}")

# tests_in EXCEPT [FOLDER…]: prints the tests of these folders (default: all but lint's) except those named
# (a|b). The longest are first, so that no processor is idle at the end.
tests_in() {
    local except=$1
    shift
    [ $# -gt 0 ] || set -- "${test_folders[@]}"
    printf '%s\n' t/source/lint.t t/tools/module.t t/unit/unit.t t/operators/monitoring.t \
        t/redis/{lease_time,fleet_versions}.t t/topologies/{block,sentinel}.t \
        t/redis/{cache_edge,failures,cache,late_replies}.t t/*/*.t |
        awk '!seen[$0]++' | grep -E "^($(IFS='|' && echo "${*%/}"))/" | grep -vE "/($except)\.t$"
}

# What these tests need besides the module: `unit`, `rehearse`, `print_script`.
programs_for() {
    [[ ! "$*" =~ t/unit ]] || echo unit
    [[ ! "$*" =~ t/(rehearse|tools|node/grammar|node/rehearsal) ]] || echo rehearse
    [[ ! "$*" =~ t/(source/lint|tools/bench_peers) ]] || echo print_script
}

run_tests() {
    local tests=() folders=() except='' packages programs program name
    cd "$top" || exit
    [ $# -gt 0 ] || say "Building and running all tests: $(time_of 2 8)"
    if [ "${1:-}" = --except ]; then
        except=$2
        shift 2
    fi
    for name; do
        [ -e "$name" ] || fail "there is no test $name"
        if [ -d "$name" ]; then folders+=("$name"); else tests+=("$name"); fi
    done
    if [ $# -eq 0 ] || [ ${#folders[@]} -gt 0 ]; then
        mapfile -t -O ${#tests[@]} tests < <(tests_in "$except" "${folders[@]}")
    fi
    [ ${#tests[@]} -gt 0 ] || fail "there is no test in $*"
    mapfile -t programs < <(programs_for "${tests[@]}")
    mapfile -t packages < <(needs_of "${tests[@]}")
    [[ "${programs[*]}" != *rehearse* ]] || packages+=("${rehearse_packages[@]}")
    need_to_build "${test_packages[@]}" "${packages[@]}"
    steps=$((2 + ${#programs[@]}))
    build_module
    for program in "${programs[@]}"; do
        case $program in
        unit) build_unit_tests "" ;;
        rehearse) build_rehearse ;;
        *)
            say_step "Building $program"
            build_programs "$build/unit" "$program"
            ;;
        esac
    done
    say_step "Running ${#tests[@]} files of tests, some at a time"
    export BUILD_DIR=$build
    # shellcheck disable=SC2086  # options of prove
    exec perl -It/lib "$(command -v prove)" -PRatelimit::Progress ${PROVE_OPTIONS:-} \
        -j$((jobs * 6)) "${tests[@]}"  # tests mostly wait
}
