// Which keys of zones are addresses.

#include "limit/address_form.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

TEST(AddressForm, is_that_of_one_variable_with_the_address)
{
    EXPECT_EQ(address_form("$binary_remote_addr", 64), AddressForm{});
    EXPECT_EQ(address_form("${binary_remote_addr}", 64), AddressForm{});
    EXPECT_EQ(address_form("$remote_addr", 64), AddressForm{ .is_text = true });
    EXPECT_EQ(
        address_form("$ratelimit_client", 56),
        (AddressForm{ .unmaps = true, .ipv4_bits = 32, .ipv6_bits = 56 }));
    EXPECT_EQ(
        address_form("$ratelimit_net_24_48", 64),
        (AddressForm{ .unmaps = true, .ipv4_bits = 24, .ipv6_bits = 48 }));
}

TEST(AddressForm, is_empty_for_every_other_key)
{
    for (const auto* key :
         { "", "$", "remote_addr", "$arg_k", "$remote_addr$uri", "x$remote_addr", "$remote_addrs",
           "${remote_addr", "$ratelimit_net_", "$ratelimit_net_24", "$ratelimit_net_33_48",
           "$ratelimit_net_24_129", "$ratelimit_net_0_48", "$ratelimit_net_24_48_1",
           "$ratelimit_net_x_48" }) {
        EXPECT_FALSE(address_form(key, 64)) << key;
    }
}

}  // namespace
}  // namespace ratelimit
