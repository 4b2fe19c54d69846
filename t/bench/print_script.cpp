// Prints a script as the module puts it together. Usage: print_script algorithm... | refund
#include "check/script_text.h"

#include <cstdio>
#include <string_view>
#include <vector>

int main(int argc, char** argv)
{
    if (argc == 2 && std::string_view(argv[1]) == "refund") {
        const auto text = ratelimit::refund_script();
        std::fwrite(text.data(), 1, text.size(), stdout);
        return 0;
    }
    std::vector<ratelimit::Algorithm> algorithms;
    for (int i = 1; i < argc; ++i) {
        const auto algorithm = ratelimit::algorithm_named(argv[i]);
        if (!algorithm) {
            std::fprintf(stderr, "print_script: no algorithm %s\n", argv[i]);
            return 1;
        }
        algorithms.push_back(*algorithm);
    }
    const auto text = algorithms.size() == 1 ? ratelimit::single_script(algorithms.front())
                                             : ratelimit::several_script(algorithms);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
}
