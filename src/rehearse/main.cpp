// ratelimit-rehearse: what the limits of an nginx.conf would have done to the requests of a log.

#include "base/version.h"
#include "limit/rate_text.h"
#include "rehearse/discover.h"
#include "rehearse/report/verdict.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

namespace ratelimit::rehearse {

namespace {

/// Exit statuses.
namespace exit_status {
constexpr int good = 0;
constexpr int bad_input = 1;  // an option, the configuration or a log
constexpr int unusable = 2;   // the result says nothing
constexpr int failed = 3;     // a condition of --fail-if holds
}  // namespace exit_status

struct Command {
    Settings settings;
    bool json = false;
    std::string timeline;  // file names
    std::string svg;
    std::string html;
    std::vector<std::string> files;  // the configuration and the logs
    bool discover = false;
    std::string share;
    std::string reorder;  // empty: the default
    std::string skipped;  // the same
    std::vector<std::string> fail_if;
};

[[noreturn]] void bad_option(const char* name, const std::string& value, const char* expected)
{
    throw InputError(std::string(name) + ": invalid \"" + value + "\", expected " + expected);
}

/// "0.1%" or "0.001": from 0 to 1.
double share_of(const char* option, const std::string& text, const char* expected)
{
    const auto share = amount_of(text);
    if (!share || share->value > 1) {
        bad_option(option, text, expected);
    }
    return share->value;
}

/// "2s", "500ms", "1m", "0": microseconds.
std::int64_t reorder_of(const std::string& text)
{
    const auto milliseconds = text.ends_with("ms")
        ? parse_number(std::string_view(text).substr(0, text.size() - 2), 0, 86'400'000)
        : std::nullopt;
    if (milliseconds) {
        return *milliseconds * 1000;
    }
    if (text == "0" || text == "0s") {
        return 0;
    }
    const auto time = parse_seconds(text);
    if (!time || *time > std::chrono::hours{ 24 }) {
        bad_option("--reorder", text, "a time of at most a day, such as 2s, 500ms or 1m");
    }
    return time->count();
}

void describe(CLI::App& app, Command& command)
{
    Settings& settings = command.settings;
    app.description(
        "Reads nginx's access logs, and prints what each limit of a configuration would "
        "have done. See man ratelimit-rehearse.");
    app.set_version_flag(
        "--version", "ratelimit-rehearse " + std::string(version), "print the version and exit");
    app.add_option(
           "files", command.files,
           "nginx.conf, or a part of it with the limits; then access logs, also with gzip; - is "
           "standard input")
        ->required();
    app.add_option(
        "--format", settings.format,
        "the log's format: combined (default), the name of a log_format in conf, or its text");
    app.add_option(
           "--log-format", settings.log_format,
           "text, or json: one object on each line; "
           "without it the first lines decide")
        ->check(CLI::IsMember({ "text", "json" }));
    app.add_option("--server", settings.server, "the server_name of all requests");
    app.add_option(
        "--reorder", command.reorder,
        "how far lines may be out of order (default: 2s, or 1m with concurrency=)");
    app.add_flag(
        "--arrival", settings.arrival,
        "requests come $request_time before they are logged; always so with concurrency=");
    app.add_option(
        "--max-skipped", command.skipped,
        "the most of the lines that may be skipped (default: 1%); if more are, the status is 2");
    app.add_flag(
        "--allow-unreached", settings.tolerance.unreached,
        "a limit that no request reached does not make the status 2");
    app.add_option("--top", settings.busiest, "how many of the busiest keys to print")
        ->check(CLI::Range(0, 100'000))
        ->capture_default_str();
    app.add_flag("--json", command.json, "print JSON");
    app.add_option(
           "--fail-if", command.fail_if,
           "end with status 3 if this holds, such as 'refused_keys > 0.1%'; several times")
        ->allow_extra_args(false);
    app.add_option(
        "--against", settings.against,
        "rehearse this configuration, too: who would be refused newly, and who no longer");
    app.add_option("--decisions", settings.decisions, "write what became of each request as CSV");
    app.add_option("--timeline", command.timeline, "write the requests of each minute as CSV");
    app.add_option("--html", command.html, "write a page on which the quotas are sliders");
    app.add_flag(
        "--discover", command.discover,
        "there is no configuration: propose limits for the busiest paths of the logs");
    app.add_option("--svg", command.svg, "write the requests of each minute as a picture");
    app.add_option(
        "--suggest", command.share,
        "find the smallest quota that would have refused at most this share of the keys (0.1%)");
}

/// A variable of a shell that is not set must not leave an option out, nor give it the next word,
/// which the parser takes behind "--option=".
void refuse_empty_values(CLI::App& app, std::span<char*> words)
{
    for (const std::string_view word : words) {
        if (word.starts_with("--") && word.find('=') == word.size() - 1) {
            throw CLI::ValidationError(
                std::string(word.substr(0, word.size() - 1)), "the value is empty");
        }
    }
    for (CLI::Option* option : app.get_options()) {
        option->check([](const std::string& value) -> std::string {
            return value.empty() ? "the value is empty" : "";
        });
    }
}

/// A line on a terminal that is written again and again.
class ProgressLine {
public:
    using Clock = std::chrono::steady_clock;

    /// Call for each record.
    void show(const LineCounts& counts, const LogStreams& streams)
    {
        constexpr std::uint64_t pause = 16'384;  // records between two looks at the clock
        if (!is_terminal_ || ++records_ % pause != 0) {
            return;
        }
        const auto now = Clock::now();
        if (now - last_ < std::chrono::milliseconds{ 250 }) {
            return;
        }
        last_ = now;
        std::uint64_t bytes = 0;
        std::uint64_t all_bytes = 0;  // 0: not known
        for (const auto& stream : streams) {
            bytes += stream->reader().bytes_read();
            all_bytes += stream->reader().size();
        }
        const double seconds = std::chrono::duration<double>(now - start_).count();
        std::fprintf(
            stderr, "\r\033[K%llu lines, %.0f lines/s",
            static_cast<unsigned long long>(counts.lines),
            static_cast<double>(counts.lines) / seconds);
        if (all_bytes > 0) {
            std::fprintf(stderr, ", %.0f %%", percent(bytes, all_bytes));
        }
        std::fflush(stderr);
        shown_ = true;
    }
    ~ProgressLine()
    {
        if (shown_) {
            std::fputs("\r\033[K", stderr);
        }
    }

private:
    bool is_terminal_ = isatty(STDERR_FILENO) == 1;
    std::uint64_t records_ = 0;
    bool shown_ = false;
    Clock::time_point start_ = Clock::now();
    Clock::time_point last_ = start_;
};

/// The first SIGINT is a wish to see what is known so far; the second one ends the program.
class Interrupt {
public:
    Interrupt()
    {
        struct sigaction action {};
        action.sa_handler = [](int) { signals = 1; };
        action.sa_flags = static_cast<int>(SA_RESETHAND);  // a read that waits returns
        sigaction(SIGINT, &action, nullptr);
    }
    ~Interrupt() { std::signal(SIGINT, SIG_DFL); }
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

    static bool came() noexcept { return signals != 0; }

private:
    static inline volatile std::sig_atomic_t signals = 0;
};

/// What `run(watch)` returns. Its progress is shown, and Ctrl-C ends it.
template <class Action>
auto watched(const Action& run)
{
    ProgressLine line;
    const Interrupt interrupt;
    return run([&line](const LineCounts& counts, const LogStreams& streams) {
        line.show(counts, streams);
        return !Interrupt::came();
    });
}

void print(const std::string& text)
{
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()
        || std::fflush(stdout) != 0) {
        throw InputError("cannot write to standard output");
    }
}

void print_warnings(const Run& run)
{
    for (const std::string& warning : run.warnings) {
        std::fprintf(stderr, "ratelimit-rehearse: %s\n", warning.c_str());
    }
}

int run_discovery(const Command& command)
{
    const bool other = !command.svg.empty() || !command.timeline.empty() || !command.html.empty()
        || !command.fail_if.empty() || !command.settings.against.empty()
        || !command.settings.decisions.empty();
    if (other) {
        throw InputError(
            "--discover has no limits for --html, --svg, --timeline, --decisions, --against and "
            "--fail-if");
    }
    const Discovery found =
        watched([&](const Watch& watch) { return discover(command.settings, watch); });
    print_warnings(*found.run);
    print(command.json ? json_report(found) : text_report(found));
    return found.run->report.problems.empty() ? exit_status::good : exit_status::unusable;
}

/// Divides the file names into the configuration and the logs.
void take_files(Command& command)
{
    auto logs = command.files;
    if (!command.discover) {
        command.settings.conf = logs.front();
        logs.erase(logs.begin());
    }
    if (logs.empty()) {
        throw InputError("a log is required: ratelimit-rehearse [options] conf log [log ...]");
    }
    command.settings.logs = std::move(logs);
}

/// Whether two names are of one file, also if it is not there yet.
bool is_same_file(const std::string& left, const std::string& right)
{
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(left, error);
    return std::filesystem::equivalent(left, right, error)
        || (!path.empty() && path == std::filesystem::weakly_canonical(right, error));
}

/// A file that is written must be no other one of the command. Devices such as /dev/null may.
void refuse_overwriting(const Command& command)
{
    const Settings& settings = command.settings;
    auto taken = command.files;
    taken.push_back(settings.against);
    std::replace(taken.begin(), taken.end(), std::string("-"), std::string("/dev/stdin"));
    const std::pair<const char*, const std::string&> outputs[] = {
        { "--decisions", settings.decisions },
        { "--timeline", command.timeline },
        { "--html", command.html },
        { "--svg", command.svg },
    };
    for (const auto& [option, path] : outputs) {
        std::error_code error;
        const bool checked = !path.empty() && !std::filesystem::is_other(path, error);
        for (const std::string& other : taken) {
            if (checked && is_same_file(path, other)) {
                throw InputError(
                    option + (": " + path) + " is also the configuration, a log or another output");
            }
        }
        taken.push_back(path);
    }
}

/// Returns the exit status.
int run(Command& command)
{
    take_files(command);
    refuse_overwriting(command);
    if (!command.reorder.empty()) {
        command.settings.reorder = reorder_of(command.reorder);
    }
    command.settings.timeline = !command.timeline.empty() || !command.svg.empty();
    if (!command.share.empty()) {
        command.settings.share =
            share_of("--suggest", command.share, "a share of the keys such as 0.1% or 0.001");
    }
    if (!command.skipped.empty()) {
        command.settings.tolerance.skipped =
            share_of("--max-skipped", command.skipped, "a share of the lines such as 5% or 0.05");
    }
    command.settings.curves = !command.html.empty();
    if (command.discover) {
        return run_discovery(command);
    }
    for (const std::string& text : command.fail_if) {
        command.settings.fail_if.push_back(parse_fail_if(text));
    }
    const auto result =
        watched([&](const Watch& watch) { return rehearse(command.settings, watch); });
    print_warnings(*result);
    if (!command.timeline.empty()) {
        write_file(command.timeline, timeline_csv(result->report));
    }
    if (!command.svg.empty()) {
        write_file(command.svg, timeline_svg(result->report));
    }
    if (!command.html.empty()) {
        write_file(command.html, html_report(result->report));
    }
    print(command.json ? json_report(result->report) : text_report(result->report));
    for (const std::string& failure : result->report.failures) {
        std::fprintf(stderr, "ratelimit-rehearse: failed: %s\n", failure.c_str());
    }
    return !result->report.problems.empty() ? exit_status::unusable
        : !result->report.failures.empty()  ? exit_status::failed
                                            : exit_status::good;
}

}  // namespace

}  // namespace ratelimit::rehearse

namespace exit_status = ratelimit::rehearse::exit_status;

int main(int count, char** words)
{
    CLI::App app("", "ratelimit-rehearse");
    ratelimit::rehearse::Command command;
    try {
        ratelimit::rehearse::describe(app, command);
        ratelimit::rehearse::refuse_empty_values(app, { words, static_cast<std::size_t>(count) });
        app.parse(count, words);
        return ratelimit::rehearse::run(command);
    } catch (const CLI::ParseError& error) {
        // Its own statuses are above 100.
        return app.exit(error) == 0 ? exit_status::good : exit_status::bad_input;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ratelimit-rehearse: %s\n", error.what());
        return exit_status::bad_input;
    }
}
