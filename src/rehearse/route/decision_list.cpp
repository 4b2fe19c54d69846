#include "rehearse/route/decision_list.h"

#include "rehearse/count/key_hash.h"
#include "rehearse/log/log_time.h"

namespace ratelimit::rehearse {

std::string csv_field(const std::string& text)
{
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
        return text;
    }
    std::string out = "\"";
    for (const char letter : text) {
        out += letter;
        if (letter == '"') {
            out += letter;
        }
    }
    return out + '"';
}

DecisionList::DecisionList(const std::string& path, Variables& variables)
    : path_(path),
      file_(std::fopen(path.c_str(), "we")),
      address_(variables.logged("remote_addr")),
      request_(variables.first_logged({ "request", "request_uri" }))
{
    if (file_ == nullptr || std::fputs("time,address,request,decision\n", file_.get()) < 0) {
        fail_by_errno("cannot write " + path_);
    }
}

void DecisionList::add(Values& values, Reached reached, bool passes)
{
    constexpr std::int64_t second = 1'000'000;  // us
    const std::int64_t time = values.record().time;
    std::string line = utc_text(time / second);
    char fraction[16];
    std::snprintf(fraction, sizeof(fraction), ".%03dZ,", static_cast<int>(time % second / 1000));
    line.pop_back();  // the Z
    line += fraction;
    for (const Variable* one : { address_, request_ }) {
        line += csv_field(printable(value_of(one, values))) + ",";
    }
    line += reached != Reached::limits ? place_name(reached)
        : passes                       ? std::string_view("passed")
                                       : std::string_view("refused");
    line += '\n';
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size()) {
        fail_by_errno("cannot write " + path_);
    }
}

void DecisionList::close()
{
    if (std::fclose(file_.release()) != 0) {
        fail_by_errno("cannot write " + path_);
    }
}

}  // namespace ratelimit::rehearse
