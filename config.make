# Adds to nginx's generated Makefile: the C++ standard, for the module's objects only, and the rules that
# generate headers from lua/ and src/http/dashboard.

ratelimit_scripts="$NGX_OBJS/ratelimit/lua_scripts.h"
ratelimit_page="$NGX_OBJS/ratelimit/dashboard_page.h"
mkdir -p $NGX_OBJS/ratelimit

for ratelimit_src in `find $ngx_addon_dir/src -path '*/src/rehearse' -prune -o -name '*.cpp' -print | sort`; do
    ratelimit_obj=$NGX_OBJS/addon/$(basename $(dirname $ratelimit_src))/$(basename $ratelimit_src .cpp).o
    cat << END                                                >> $NGX_MAKEFILE

$ratelimit_obj: CFLAGS += -std=c++20 -O2 -fvisibility=hidden -Wno-missing-field-initializers
$ratelimit_obj: $ratelimit_scripts $ratelimit_page
END
done

cat << END                                                    >> $NGX_MAKEFILE

$ratelimit_scripts: `echo $ngx_addon_dir/lua/*`
	sh $ngx_addon_dir/lua/embed.sh $ngx_addon_dir/lua/*.lua > \$@.new && mv \$@.new \$@

$ratelimit_page: `echo $ngx_addon_dir/src/http/dashboard/*`
	sh $ngx_addon_dir/src/http/dashboard/embed.sh > \$@.new && mv \$@.new \$@
END
