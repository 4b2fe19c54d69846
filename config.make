# What nginx's generated Makefile does not know: the C++ standard, for our objects only, and how
# the scripts of lua/ and the page of src/http/dashboard become headers.

ratelimit_scripts="$NGX_OBJS/ratelimit/lua_scripts.h"
ratelimit_page="$NGX_OBJS/ratelimit/dashboard_page.h"
mkdir -p $NGX_OBJS/ratelimit

for ratelimit_src in `find $ngx_addon_dir/src -name '*.cpp' | sort`; do
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
