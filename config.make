# Adds to nginx's generated Makefile: the C++ standard, for the module's objects only, the rules that
# generate headers from lua/ and src/http/dashboard, and a precompiled header.

ratelimit_scripts="$NGX_OBJS/ratelimit/lua_scripts.h"
ratelimit_page="$NGX_OBJS/ratelimit/dashboard_page.h"
ratelimit_flags='-std=c++20 -O2 -fvisibility=hidden -Wno-missing-field-initializers'
ratelimit_deps="$ratelimit_scripts $ratelimit_page"
mkdir -p $NGX_OBJS/ratelimit

# gcc compiles once what most sources include: that halves the time and more. nginx lets each object depend on all
# headers anyway. gcc ignores a precompiled header that does not fit, and reads $ratelimit_common itself. Other
# compilers have none, so that they find an #include that is missing.
ratelimit_use=
if test "$NGX_CC_NAME" = gcc; then
    ratelimit_common="$NGX_OBJS/ratelimit/common.h"
    ratelimit_use="-include $ratelimit_common -fpch-preprocess"
    ratelimit_deps="$ratelimit_deps $ratelimit_common.gch"
    for ratelimit_header in algorithm array charconv chrono functional map memory optional set span string \
        string_view unordered_map utility vector conf/conf.h http/request_state.h redis/client.h
    do
        echo "#include <$ratelimit_header>"
    done > $ratelimit_common
    cat << END                                                >> $NGX_MAKEFILE

$ratelimit_common.gch: \$(ADDON_DEPS) $ratelimit_common
	\$(CC) -x c++-header -c -fPIC \$(CFLAGS) $ratelimit_flags \$(ALL_INCS) -o \$@ $ratelimit_common
END
fi

for ratelimit_src in `find $ngx_addon_dir/src -path '*/src/rehearse' -prune -o -name '*.cpp' -print | sort`; do
    ratelimit_obj=$NGX_OBJS/addon/$(basename $(dirname $ratelimit_src))/$(basename $ratelimit_src .cpp).o
    cat << END                                                >> $NGX_MAKEFILE

$ratelimit_obj: private CFLAGS += $ratelimit_flags $ratelimit_use
$ratelimit_obj: $ratelimit_deps
END
done

cat << END                                                    >> $NGX_MAKEFILE

$ratelimit_scripts: `echo $ngx_addon_dir/lua/*`
	sh $ngx_addon_dir/lua/embed.sh $ngx_addon_dir/lua/*.lua > \$@.new && mv \$@.new \$@

$ratelimit_page: `echo $ngx_addon_dir/src/http/dashboard/*`
	sh $ngx_addon_dir/src/http/dashboard/embed.sh > \$@.new && mv \$@.new \$@
END
