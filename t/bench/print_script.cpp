// Prints a script as the module assembles it. Usage: print_script algorithm[+block]... | refund |
// acquire. The last is that of requests at one time (concurrency=).
#include "check/script_text.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

/// The script of these algorithms. Empty: one of them is unknown.
static std::string sequence_of(int argc, char** argv)
{
    std::vector<ratelimit::SequenceLimit> limits;
    for (int i = 1; i < argc; ++i) {
        std::string_view name = argv[i];
        constexpr std::string_view mark = "+block";
        const bool blocks = name.ends_with(mark);
        if (blocks) {
            name.remove_suffix(mark.size());
        }
        const auto algorithm = ratelimit::algorithm_named(name);
        if (!algorithm) {
            std::fprintf(stderr, "print_script: no algorithm %s\n", argv[i]);
            return {};
        }
        limits.push_back({ *algorithm, false, blocks });
    }
    return ratelimit::sequence_script(limits);
}

int main(int argc, char** argv)
{
    const std::string_view first = argc > 1 ? argv[1] : "";
    std::string text;
    if (first == "refund") {
        text = ratelimit::refund_script();
    } else if (first == "acquire") {
        text = ratelimit::statement_script();
    } else {
        text = sequence_of(argc, argv);
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    return text.empty() ? 1 : 0;
}
