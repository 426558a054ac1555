// Which files a secret may come from, and that it is kept out of core dumps.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "secure/secret.h"
#include "tests/support/secret_file.h"

namespace tcpx::testing {
namespace {

const std::string kThirtyTwo = "0123456789abcdef0123456789ABCDEF";

Status refusal(const std::string& path) {
  return Secret::read_file(path).status();
}

std::string text_of(const Secret& secret) {
  return {reinterpret_cast<const char*>(secret.bytes().data()), secret.bytes().size()};
}

TEST(Secret, TheFileIsReadWithoutItsLastNewline) {
  const SecretFile plain(kThirtyTwo), with_newline(kThirtyTwo + "\n"), binary("\n" + kThirtyTwo + std::string("\0\n\n", 3), 0400);
  EXPECT_EQ(text_of(Secret::read_file(plain.path()).value()), kThirtyTwo);
  EXPECT_EQ(text_of(Secret::read_file(with_newline.path()).value()), kThirtyTwo);
  EXPECT_EQ(text_of(Secret::read_file(binary.path()).value()), "\n" + kThirtyTwo + std::string("\0\n", 2));
}

TEST(Secret, TooShortAndTooLongAreRefused) {
  for (const std::string& content : {std::string(), kThirtyTwo.substr(1), kThirtyTwo.substr(1) + "\n", std::string(4096, 's')}) {
    const SecretFile file(content);
    const Status status = refusal(file.path());
    EXPECT_EQ(status.code(), Code::kBadConfig) << content.size();
    EXPECT_NE(status.detail().find("UCCL_TCPX_SECRET_FILE=" + file.path()), std::string::npos) << status.to_string();
  }
  EXPECT_TRUE(Secret::read_file(SecretFile(std::string(4095, 's')).path()).is_ok());
}

TEST(Secret, AFileOpenToGroupOrOthersIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0601, 0666}) {
    const SecretFile file(kThirtyTwo, mode);
    EXPECT_EQ(refusal(file.path()).code(), Code::kBadConfig) << std::oct << mode;
    EXPECT_NE(refusal(file.path()).detail().find("group or others"), std::string::npos);
  }
}

TEST(Secret, AnotherUsersFileIsRefused) {
  const SecretFile file(kThirtyTwo);
  if (::chown(file.path().c_str(), 12345, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(refusal(file.path()).code(), Code::kBadConfig);
  EXPECT_NE(refusal(file.path()).detail().find("another user, 12345"), std::string::npos);
}

TEST(Secret, WhatIsNoRegularFileIsRefusedAtOnce) {
  const SecretFile place("");
  const std::string pipe = place.path() + "-pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal(pipe).detail().find("regular file"), std::string::npos);
  ::unlink(pipe.c_str());
  EXPECT_NE(refusal("/tmp").detail().find("regular file"), std::string::npos);
  EXPECT_EQ(refusal(pipe).code(), Code::kNotFound);
}

// The mapping's flags in smaps: dd stands for MADV_DONTDUMP.
TEST(Secret, NoCoreDumpHasIt) {
  const SecretFile file(kThirtyTwo);
  const Secret secret = Secret::read_file(file.path()).value();
  const auto address = reinterpret_cast<uintptr_t>(secret.bytes().data());
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  std::string flags;
  for (std::string line; std::getline(maps, line) && flags.empty();) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) inside = begin <= address && address < end;
    if (inside && line.starts_with("VmFlags:")) flags = line;
  }
  if (flags.empty()) GTEST_SKIP() << "the kernel shows no flags of mappings";
  EXPECT_NE(flags.find(" dd"), std::string::npos) << flags;
}

}  // namespace
}  // namespace tcpx::testing
