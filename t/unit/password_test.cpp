// The password of a file that changes.

#include "redis/password.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ratelimit::redis {
namespace {

using namespace std::chrono_literals;

class PasswordFile : public testing::Test {
protected:
    PasswordFile() { write("first"); }
    ~PasswordFile() override { std::filesystem::remove(path_); }

    void write(const std::string& text) { std::ofstream(path_) << text << "\n"; }

    const std::string path_ = "/tmp/ratelimit-password-" + std::to_string(getpid());
};

TEST_F(PasswordFile, is_read_again_once_a_second_when_redis_refuses_its_password)
{
    std::string reason;
    const auto password = Password::in_file(path_, reason);
    EXPECT_EQ(reason, "");
    const std::string refused = "WRONGPASS invalid username-password pair";
    write("second");
    EXPECT_EQ(password.lost("Connection refused", 10s), "Connection refused");
    EXPECT_EQ(password.text(), "first");
    EXPECT_EQ(password.lost(refused, 10s), refused);
    EXPECT_EQ(password.text(), "second");
    write("third");
    EXPECT_EQ(password.lost(refused, 10900ms), refused);
    EXPECT_EQ(password.text(), "second");
    EXPECT_EQ(password.lost(refused, 11s), refused);
    EXPECT_EQ(password.text(), "third");
}

TEST_F(PasswordFile, is_not_read_again_while_it_is_a_pipe_which_would_block)
{
    std::string reason;
    const auto password = Password::in_file(path_, reason);
    std::filesystem::remove(path_);
    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    const auto said = password.lost("WRONGPASS invalid username-password pair", 10s);
    EXPECT_NE(said.find("it is not a regular file"), std::string::npos) << said;
    EXPECT_EQ(password.text(), "first");
}

}  // namespace
}  // namespace ratelimit::redis
