# What the built module exports and how it is linked: nginx loads modules with RTLD_GLOBAL into one process, other
# modules and other versions of this one beside it.

use Ratelimit::Test;

my $module = Ratelimit::Nginx::module();
my @exports = map { (split)[-1] } split /\n/, qx(nm -D --defined-only --extern-only '$module');
is "@{[ sort @exports ]}", 'ngx_module_names ngx_module_order ngx_modules',
    'the module exports what nginx looks up, so that another module or version shares nothing with it';

like qx(readelf -d '$module'), qr/\bNODELETE\b/, 'it stays mapped, because OpenSSL keeps addresses of its functions';

finish();
