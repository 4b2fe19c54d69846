# Adds to nginx's generated Makefile: the C++ standard, for the module's objects only, what else these depend on, and
# the rules that generate headers from lua/ and src/http/dashboard.

ratelimit_scripts="$NGX_OBJS/ratelimit/lua_scripts.h"
ratelimit_page="$NGX_OBJS/ratelimit/dashboard_page.h"
# Scripts round each product, so no product is fused with a sum. Debug information of variables (-g) would take half of
# the time to compile again; -g1 has functions and lines.
ratelimit_flags='-std=c++20 -O2 -g1 -ffp-contract=off -fvisibility=hidden -fno-plt -Wno-missing-field-initializers'

for ratelimit_name in $ratelimit_sources; do
    ratelimit_obj=$NGX_OBJS/addon/ratelimit/$ratelimit_name.o
    ratelimit_parts=`sed "s,^#include \"\(.*\)\",$ngx_addon_dir/src/\1," $NGX_OBJS/ratelimit/$ratelimit_name.cpp | tr '\n' ' '`
    # The others would only make the link slower.
    case $ratelimit_name in
        redis | request) ratelimit_more=$ratelimit_lto ;;
        *) ratelimit_more= ;;
    esac
    cat << END                                                >> $NGX_MAKEFILE

$ratelimit_obj: private CFLAGS += $ratelimit_flags $ratelimit_more
$ratelimit_obj: $ratelimit_parts $ratelimit_scripts $ratelimit_page
END
done

cat << END                                                    >> $NGX_MAKEFILE

$ratelimit_scripts: `echo $ngx_addon_dir/lua/*`
	sh $ngx_addon_dir/lua/embed.sh $ngx_addon_dir/lua/*.lua > \$@.new && mv \$@.new \$@

$ratelimit_page: `echo $ngx_addon_dir/src/http/dashboard/*`
	sh $ngx_addon_dir/src/http/dashboard/embed.sh > \$@.new && mv \$@.new \$@
END
