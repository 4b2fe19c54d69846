// Prints a script as the module assembles it. Usage: print_script [KIND] [ALGORITHM[+block]...].
// Without a kind it is the sequence of these limits. The kinds several and peek take a set of
// algorithms; charge takes one; refund, statement and block take none.
#include "check/script_text.h"

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using ratelimit::Algorithm;
using Limits = std::vector<ratelimit::SequenceLimit>;

std::vector<Algorithm> algorithms_of(const Limits& limits)
{
    std::vector<Algorithm> algorithms;
    for (const ratelimit::SequenceLimit& limit : limits) {
        algorithms.push_back(limit.algorithm);
    }
    return algorithms;
}

/// False: there is no such algorithm.
bool add_limit(std::string_view name, Limits& limits)
{
    constexpr std::string_view mark = "+block";
    const bool blocks = name.ends_with(mark);
    if (blocks) {
        name.remove_suffix(mark.size());
    }
    const auto algorithm = name == "concurrency" ? std::optional{ Algorithm::concurrency }
                                                 : ratelimit::algorithm_named(name);
    if (algorithm) {
        limits.push_back({ *algorithm, false, blocks });
    }
    return algorithm.has_value();
}

/// Empty: the limits do not fit the kind.
std::string script_of(std::string_view kind, const Limits& limits)
{
    const std::vector<Algorithm> algorithms = algorithms_of(limits);
    if (algorithms.empty()) {
        return kind == "refund"   ? ratelimit::refund_script()
            : kind == "statement" ? ratelimit::single_script(ratelimit::Algorithm::concurrency)
            : kind == "block"     ? ratelimit::block_script()
                                  : "";
    }
    if (kind == "several") {
        return ratelimit::several_script(algorithms);
    }
    if (kind == "peek") {
        return ratelimit::peek_script(algorithms);
    }
    if (algorithms.size() == 1 && kind == "charge") {
        return ratelimit::charge_script(algorithms.front());
    }
    return kind.empty() ? ratelimit::sequence_script(limits) : "";
}

}  // namespace

int main(int argc, char** argv)
{
    std::string_view kind;
    Limits limits;
    for (int i = 1; i < argc; ++i) {
        if (!add_limit(argv[i], limits)) {
            if (i > 1) {
                std::fprintf(stderr, "print_script: no algorithm %s\n", argv[i]);
                return 1;
            }
            kind = argv[i];
        }
    }
    const std::string text = script_of(kind, limits);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return text.empty() ? 1 : 0;
}
