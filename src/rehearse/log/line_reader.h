#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// The lines of a log: a file, compressed with gzip or not, or standard input. What the file
/// contains decides, not its name.
class LineReader {
public:
    /// In bytes. A longer line is broken: nginx's own limits keep lines far shorter.
    static constexpr std::size_t longest_line = std::size_t{ 1 } << 20U;

    /// "-": standard input. Throws InputError if the file cannot be opened.
    explicit LineReader(const std::string& path);
    ~LineReader();
    LineReader(const LineReader&) = delete;
    LineReader& operator=(const LineReader&) = delete;

    enum class Result : std::uint8_t {
        line,
        too_long,  // the line was passed over
        end,
    };

    /// `line` has no line feed, and is valid until the next call. Throws InputError if the file is
    /// compressed with something else.
    Result next(std::string_view& line);

    const std::string& path() const noexcept { return path_; }
    /// Of the file as it is stored, in bytes; 0: not known.
    std::uint64_t size() const noexcept { return size_; }
    std::uint64_t bytes_read() const noexcept { return bytes_read_; }
    /// Why the log could not be read up to its end; empty: it could.
    const std::string& problem() const noexcept { return problem_; }
    /// The problem is that lines are missing.
    bool is_cut_off() const noexcept { return cut_off_; }

private:
    class Gzip;

    std::size_t read_file(char* out, std::size_t size);
    bool fill();
    std::size_t fail(const char* problem);

    std::string path_;
    int file_ = -1;
    std::uint64_t size_ = 0;
    std::uint64_t bytes_read_ = 0;
    std::string problem_;
    bool cut_off_ = false;
    std::unique_ptr<Gzip> gzip_;  // null: not compressed, or nothing has been read
    std::vector<char> buffer_;
    std::size_t start_ = 0;  // of what has not been returned
    std::size_t end_ = 0;    // of what has been read
    bool passing_over_ = false;
};

}  // namespace ratelimit::rehearse
