#include "rehearse/values/variables.h"

#include "rehearse/values/request_line.h"

namespace ratelimit::rehearse {

const Variable* Variables::logged(std::string_view name)
{
    const auto known = logged_.find(name);
    if (known != logged_.end()) {
        return known->second;
    }
    const Variable* variable = nullptr;
    if (const auto place = format_.index_of(name)) {
        const std::size_t index = format_.want(*place);
        variable = computed([index](Values& values, std::string& own) -> std::string_view {
            const std::string_view text = values.record().value(index);
            if (text == "-" && values.escape() == Escape::standard) {
                return {};  // nginx writes a missing value so
            }
            if (values.escape() == Escape::none || text.find('\\') == std::string_view::npos) {
                return text;
            }
            unescape(text, values.escape(), own);
            return own;
        });
    }
    logged_.emplace(name, variable);
    return variable;
}

const Variable* Variables::first_logged(std::initializer_list<const char*> names)
{
    const Variable* found = nullptr;
    for (const char* name : names) {
        found = found == nullptr ? logged(name) : found;
    }
    return found;
}

const Variable* Variables::of_line(std::string_view RequestLine::*part)
{
    return derived(logged("request"), [part](std::string_view line, std::string&) {
        const auto parts = parse_request_line(line);
        return parts ? (*parts).*part : std::string_view();
    });
}

}  // namespace ratelimit::rehearse
