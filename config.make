# Adds to nginx's generated Makefile: the C++ standard, for the module's objects only, the rules that
# generate headers from lua/ and src/http/dashboard, and a precompiled header.

ratelimit_scripts="$NGX_OBJS/ratelimit/lua_scripts.h"
ratelimit_page="$NGX_OBJS/ratelimit/dashboard_page.h"
ratelimit_flags='-std=c++20 -O2 -fvisibility=hidden -Wno-missing-field-initializers'
ratelimit_deps="$ratelimit_scripts $ratelimit_page"
mkdir -p $NGX_OBJS/ratelimit

# gcc compiles once what most sources include: that halves the time and more. nginx lets each object depend on all
# headers anyway. gcc ignores a precompiled header that does not fit, and reads the header itself. Other compilers have
# none, so that they find an #include that is missing.
#
# gcc instantiates the templates that inline functions of a precompiled header call in each object again. So there are
# two: std, with nothing of ours, for the folders whose sources seldom need more; and conf.
ratelimit_std='algorithm array charconv chrono functional map memory optional set span string string_view unordered_map
    utility vector'

# ratelimit_precompile NAME HEADER...: a rule that precompiles $NGX_OBJS/ratelimit/NAME.h, which includes these.
ratelimit_precompile() {
    ratelimit_header="$NGX_OBJS/ratelimit/$1.h"
    shift
    for ratelimit_included in $ratelimit_std $*; do
        echo "#include <$ratelimit_included>"
    done > $ratelimit_header
    cat << END                                                >> $NGX_MAKEFILE

$ratelimit_header.gch: \$(ADDON_DEPS) $ratelimit_header $ratelimit_deps
	\$(CC) -x c++-header -c -fPIC \$(CFLAGS) $ratelimit_flags \$(ALL_INCS) -o \$@ $ratelimit_header
END
}

if test "$NGX_CC_NAME" = gcc; then
    ratelimit_precompile std
    ratelimit_precompile conf conf/conf.h http/request_state.h redis/client.h
fi

for ratelimit_src in `find $ngx_addon_dir/src -path '*/src/rehearse' -prune -o -name '*.cpp' -print | sort`; do
    ratelimit_folder=$(basename $(dirname $ratelimit_src))
    ratelimit_obj=$NGX_OBJS/addon/$ratelimit_folder/$(basename $ratelimit_src .cpp).o
    case $ratelimit_folder in
    base | fleet | limit | nginx | redis | store) ratelimit_header="$NGX_OBJS/ratelimit/std.h" ;;
    *) ratelimit_header="$NGX_OBJS/ratelimit/conf.h" ;;
    esac
    ratelimit_use=
    ratelimit_needed=$ratelimit_deps
    if test "$NGX_CC_NAME" = gcc; then
        ratelimit_use="-include $ratelimit_header -fpch-preprocess"
        ratelimit_needed="$ratelimit_deps $ratelimit_header.gch"
    fi
    cat << END                                                >> $NGX_MAKEFILE

$ratelimit_obj: private CFLAGS += $ratelimit_flags $ratelimit_use
$ratelimit_obj: $ratelimit_needed
END
done

cat << END                                                    >> $NGX_MAKEFILE

$ratelimit_scripts: `echo $ngx_addon_dir/lua/*`
	sh $ngx_addon_dir/lua/embed.sh $ngx_addon_dir/lua/*.lua > \$@.new && mv \$@.new \$@

$ratelimit_page: `echo $ngx_addon_dir/src/http/dashboard/*`
	sh $ngx_addon_dir/src/http/dashboard/embed.sh > \$@.new && mv \$@.new \$@
END
