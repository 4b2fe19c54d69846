#include "limit/rate_text.h"
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

/// What the page needs of a limit besides the JSON report.
void add_slider(const LimitReport& limit, Json& out)
{
    Json points = Json::array();
    for (const CurvePoint& point : limit.curve) {
        points.push_back({ point.quota, point.refusals.requests, point.refusals.succeeded,
                           point.refusals.keys });
    }
    const bool concurrency = counts_at_one_time(limit.configured.algorithm);
    Rate rate = limit.configured.rate;
    rate.quota = 1;
    out["policy"] = limit.policy;
    out["before"] = concurrency ? "concurrency=" : "rate=";
    out["after"] = concurrency ? "" : rate_text(rate).substr(1);
    out["quota"] = limit.configured.rate.quota;
    out["points"] = points;
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
    Json data = Json::parse(json_report(report));
    data.erase("against");  // the page shows no keys but those that are refused
    data["total"].erase("refused_clients");
    for (std::size_t i = 0; i < report.limits.size(); ++i) {
        data["limits"][i].erase("busiest");
        add_slider(report.limits[i], data["limits"][i]);
    }
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
