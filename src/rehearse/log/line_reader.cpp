#include "rehearse/log/line_reader.h"

#include "rehearse/conf/input_error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <zlib.h>

namespace ratelimit::rehearse {

namespace {

constexpr std::size_t block = std::size_t{ 256 } << 10U;  // bytes to read at once

constexpr std::string_view gzip_magic = "\x1f\x8b";
/// A format that is not read: its first bytes, and the program that decompresses it.
struct Compression {
    std::string_view magic;
    const char* program;
};
constexpr Compression others[] = {
    { { "\xfd\x37zXZ\0", 6 }, "xz" },
    { "\x28\xb5\x2f\xfd", "zstd" },
    { "BZh91AY&SY", "bzip2" },
};
constexpr std::size_t longest_magic = 10;

void refuse_others(std::string_view start, const std::string& path)
{
    for (const Compression& one : others) {
        if (start.starts_with(one.magic)) {
            throw InputError(
                path + " is compressed with " + one.program
                + ", which is not read: decompress it first, as in " + one.program
                + " -dc FILE | ratelimit-rehearse CONF -");
        }
    }
}

}  // namespace

/// Decompresses the members of a gzip file, one after another.
class LineReader::Gzip {
public:
    Gzip()
    {
        constexpr int gzip_only = 16 + MAX_WBITS;
        if (inflateInit2(&stream_, gzip_only) != Z_OK) {
            throw std::bad_alloc();
        }
        input_.resize(block);
    }
    ~Gzip() { inflateEnd(&stream_); }
    Gzip(const Gzip&) = delete;
    Gzip& operator=(const Gzip&) = delete;

    void give(const char* data, std::size_t size)
    {
        std::memcpy(input_.data(), data, size);
        set_input(size);
    }

    /// Decompresses at most `size` bytes of the file. 0: the end, or it has a problem.
    std::size_t read(LineReader& file, char* out, std::size_t size)
    {
        stream_.next_out = reinterpret_cast<Bytef*>(out);
        stream_.avail_out = static_cast<uInt>(size);
        while (stream_.avail_out == size) {
            if (stream_.avail_in == 0) {
                set_input(file.read_file(input_.data(), input_.size()));
            }
            if (stream_.avail_in == 0) {
                return between_ ? 0 : file.fail("the compressed data ends too early");
            }
            if (between_ && inflateReset(&stream_) != Z_OK) {
                return file.fail("cannot decompress");
            }
            const bool first_byte = std::exchange(between_, false);
            const int result = inflate(&stream_, Z_NO_FLUSH);
            if (result == Z_STREAM_END) {
                between_ = true;
                any_ = true;
            } else if (result != Z_OK && result != Z_BUF_ERROR) {
                // As gzip does: bytes after a whole member may be padding.
                if (!first_byte || !any_) {
                    return file.fail("the compressed data is damaged");
                }
                file.problem_ = "garbage after the compressed data was passed over";
                return 0;
            }
        }
        return size - stream_.avail_out;
    }

private:
    void set_input(std::size_t size)
    {
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(size);
    }

    z_stream stream_{};
    std::vector<char> input_;
    bool between_ = false;  // two members
    bool any_ = false;      // a member was complete
};

LineReader::LineReader(const std::string& path) : path_(path)
{
    if (path == "-") {
        path_ = "standard input";
        file_ = STDIN_FILENO;
        return;
    }
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (file_ < 0 || fstat(file_, &info) != 0) {
        fail_by_errno("cannot open " + path);
    }
    if (S_ISDIR(info.st_mode)) {
        close(file_);
        throw InputError(path + " is a directory, expected a log");
    }
    size_ = S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
}

LineReader::~LineReader()
{
    if (file_ > STDIN_FILENO) {
        close(file_);
    }
}

std::size_t LineReader::read_file(char* out, std::size_t size)
{
    const ssize_t count = ::read(file_, out, size);
    if (count < 0 && errno == EINTR) {
        return 0;  // Ctrl-C: what was read is enough
    }
    if (count < 0) {
        return fail(std::strerror(errno));
    }
    bytes_read_ += static_cast<std::uint64_t>(count);
    return static_cast<std::size_t>(count);
}

/// There is nothing more to read, but lines are missing.
std::size_t LineReader::fail(const char* problem)
{
    problem_ = problem;
    cut_off_ = true;
    return 0;
}

/// Reads more into the buffer. False: there is no more.
bool LineReader::fill()
{
    if (start_ > 0) {  // the rest of the last line is kept
        std::memmove(buffer_.data(), buffer_.data() + start_, end_ - start_);
        end_ -= start_;
        start_ = 0;
    }
    if (buffer_.size() < end_ + block) {
        buffer_.resize(end_ + block);
    }
    char* const out = buffer_.data() + end_;
    if (bytes_read_ == 0) {
        std::size_t count = 0;
        std::size_t more = 0;
        do {  // a pipe may give one byte first
            more = read_file(out + count, block - count);
            count += more;
        } while (more > 0 && count < longest_magic);
        const std::string_view start(out, count);
        refuse_others(start, path_);
        if (!start.starts_with(gzip_magic)) {
            end_ += count;
            return count > 0;
        }
        gzip_ = std::make_unique<Gzip>();
        gzip_->give(out, count);
    }
    const std::size_t count =
        gzip_ == nullptr ? read_file(out, block) : gzip_->read(*this, out, block);
    end_ += count;
    return count > 0;
}

LineReader::Result LineReader::next(std::string_view& line)
{
    for (;;) {
        const void* found =
            start_ == end_ ? nullptr : std::memchr(buffer_.data() + start_, '\n', end_ - start_);
        if (found != nullptr) {
            const auto at =
                static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
            line = { buffer_.data() + start_, at - start_ };
            start_ = at + 1;
            if (line.ends_with('\r')) {
                line.remove_suffix(1);
            }
            return std::exchange(passing_over_, false) || line.size() > longest_line
                ? Result::too_long
                : Result::line;
        }
        if (end_ - start_ > longest_line) {
            passing_over_ = true;
            start_ = end_;  // its bytes are not kept
        }
        if (!fill()) {
            break;
        }
    }
    if (start_ == end_ && !passing_over_) {
        return Result::end;
    }
    line = { buffer_.data() + start_, end_ - start_ };  // the last line has no line feed
    start_ = end_;
    return std::exchange(passing_over_, false) ? Result::too_long : Result::line;
}

}  // namespace ratelimit::rehearse
