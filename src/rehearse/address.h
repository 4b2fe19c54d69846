#pragma once

#include <string>
#include <string_view>

namespace ratelimit::rehearse {

/// The four or sixteen bytes of an address, in network order; nothing if the text is none.
std::string binary_address(std::string_view text);

/// The same into `out`. False: the text is no address.
bool parse_address(std::string_view text, std::string& out);

/// As inet_ntop: of four or sixteen bytes; nothing for other lengths.
std::string address_text(std::string_view bytes);

/// $ratelimit_client of $remote_addr: an IPv6 address cut to its first `prefix` bits, or four bytes
/// if it is IPv4-mapped.
std::string_view client_of(std::string_view address, unsigned prefix, std::string& own);

/// Clears the bits behind the first `prefix` ones.
void cut_address(std::string& bytes, unsigned prefix);

}  // namespace ratelimit::rehearse
