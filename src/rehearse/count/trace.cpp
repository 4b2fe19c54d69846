#include "rehearse/count/trace.h"

namespace ratelimit::rehearse {

Trace::Trace(const std::vector<LimitConf>& limits) : file_(std::tmpfile()), confs_(limits)
{
    if (file_ == nullptr) {
        fail_by_errno("cannot create a temporary file");
    }
    constexpr std::size_t buffer = std::size_t{ 1 } << 18U;
    std::setvbuf(file_.get(), nullptr, _IOFBF, buffer);
    for (const LimitConf& limit : limits) {
        while (groups_.size() <= limit.zone) {
            groups_.push_back(groups_.size());
        }
    }
}

std::size_t Trace::group_of(std::size_t zone) const noexcept
{
    while (groups_[zone] != zone) {
        zone = groups_[zone];
    }
    return zone;
}

std::uint32_t Trace::number_of(const AskedTerms& terms)
{
    const auto [place, is_new] =
        numbers_.try_emplace(terms, static_cast<std::uint32_t>(terms_.size()));
    if (is_new) {
        terms_.push_back(terms);
    }
    return place->second;
}

void Trace::add(const Request& request)
{
    const std::size_t group = group_of(confs_[request.asked.front().number].zone);
    limits_.clear();
    for (const AskedLimit& asked : request.asked) {
        groups_[group_of(confs_[asked.number].zone)] = group;
        limits_.push_back({ asked.key_id, static_cast<std::int32_t>(asked.cost),
                            static_cast<std::int32_t>(asked.charge),
                            static_cast<std::uint32_t>(asked.number), number_of(asked.terms) });
    }
    const Head head{ request.time, request.end, static_cast<std::uint32_t>(limits_.size()),
                     request.fails_closed, request.succeeded };
    if (std::fwrite(&head, sizeof(head), 1, file_.get()) != 1
        || std::fwrite(limits_.data(), sizeof(Limit), limits_.size(), file_.get())
            != limits_.size()) {
        fail_by_errno("cannot write a temporary file");
    }
}

void Trace::rewind()
{
    if (std::fflush(file_.get()) != 0) {
        fail_by_errno("cannot write a temporary file");
    }
    std::rewind(file_.get());
}

bool Trace::next(Request& out)
{
    Head head{};
    if (std::fread(&head, sizeof(head), 1, file_.get()) != 1) {
        return false;
    }
    limits_.resize(head.limits);
    if (std::fread(limits_.data(), sizeof(Limit), limits_.size(), file_.get()) != limits_.size()) {
        fail_by_errno("cannot read a temporary file");
    }
    asked_.clear();
    for (const Limit& limit : limits_) {
        AskedLimit& asked = asked_.emplace_back();
        asked.number = limit.number;
        asked.key_id = limit.key;
        asked.key = { reinterpret_cast<const char*>(&limit.key), sizeof(limit.key) };
        asked.cost = limit.cost;
        asked.charge = limit.charge;
        asked.terms = terms_[limit.terms];
    }
    out = { head.time, head.end, head.fails_closed, head.succeeded, asked_ };
    return true;
}

}  // namespace ratelimit::rehearse
