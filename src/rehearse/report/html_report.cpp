#include "limit/rate_text.h"
#include "rehearse/conf/limit_conf.h"
#include "rehearse/count/key_hash.h"
#include "rehearse/log/log_time.h"
#include "rehearse/report/html_page.h"
#include "rehearse/report/report.h"

#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <openssl/sha.h>

namespace ratelimit::rehearse {

namespace {

using Json = nlohmann::ordered_json;

/// The source expression of a content security policy: 'sha256-...'.
std::string source_hash(std::string_view text)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash);
    unsigned char base64[4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1];
    EVP_EncodeBlock(base64, hash, SHA256_DIGEST_LENGTH);
    return "'sha256-" + std::string(reinterpret_cast<const char*>(base64)) + "'";
}

Json data_of(const RefusedKey& one)
{
    return { { "key", one.key },
             { "refused", one.refused },
             { "succeeded", one.succeeded },
             { "first", utc_text(one.first / 1'000'000) },
             { "path", printable(one.main_path()) },
             { "agent", printable(one.agent.get()) } };
}

Json data_of(const LimitReport& limit)
{
    Json points = Json::array();
    for (const CurvePoint& point : limit.curve) {
        points.push_back({ point.quota, point.refusals.requests, point.refusals.succeeded,
                           point.refusals.keys });
    }
    Json keys = Json::array();
    for (const RefusedKey& one : limit.refused_keys) {
        keys.push_back(data_of(one));
    }
    const bool concurrency = counts_at_one_time(limit.configured.algorithm);
    Rate rate = limit.configured.rate;
    rate.quota = 1;
    const std::string one = concurrency ? "1" : rate_text(rate);
    return { { "zone", limit.zone },
             { "location", limit.location },
             { "policy", limit.policy },
             { "requests", limit.result->requests },
             { "keys", limit.keys.keys },
             { "refused", limit.result->refused },
             { "keysRefused", limit.keys.keys_refused },
             { "before", concurrency ? "concurrency=" : "rate=" },
             { "after", one.substr(1) },
             { "quota", limit.configured.rate.quota },
             { "points", points },
             { "refusedKeys", keys } };
}

/// JSON in a script element: nothing in it can end the element.
std::string script_json(const Json& data)
{
    std::string out;
    for (const char letter : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
        out += letter == '<' ? std::string("\\u003c") : std::string(1, letter);
    }
    return out;
}

}  // namespace

std::string html_report(const Report& report)
{
    Json limits = Json::array();
    for (const LimitReport& limit : report.limits) {
        limits.push_back(data_of(limit));
    }
    const TotalReport& total = report.total;
    Json data = { { "lines", report.counts.lines },
                  { "skipped", report.counts.skipped },
                  { "problems", report.problems },
                  { "failures", report.failures },
                  { "requests", total.counts().requests },
                  { "refused", total.counts().refused },
                  { "limits", limits } };
    data["succeeded"] = total.has_status() ? Json(total.counts().succeeded) : Json();
    data["clients"] = total.has_clients() ? Json(total.clients.keys) : Json();
    data["clientsRefused"] = total.clients.keys_refused;
    if (report.first_time >= 0) {
        data["first"] = utc_text(report.first_time / 1'000'000);
        data["last"] = utc_text(report.last_time / 1'000'000);
    }
    return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        + source_hash(page_style) + "; script-src " + source_hash(page_script)
        + "; base-uri 'none'; form-action 'none'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n"
          "<title>Rehearsal of rate limits</title>\n<style>"
        + std::string(page_style)
        + "</style>\n</head>\n<body>\n<main></main>\n"
          "<noscript>This page needs JavaScript, which is in it.</noscript>\n"
          "<script type=\"application/json\" id=\"report\">"
        + script_json(data) + "</script>\n<script>" + std::string(page_script)
        + "</script>\n</body>\n</html>\n";
}

}  // namespace ratelimit::rehearse
