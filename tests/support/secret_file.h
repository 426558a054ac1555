// A file with a secret, for as long as the object lives.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace tcpx::testing {

class SecretFile {
 public:
  explicit SecretFile(std::string_view content, mode_t mode = 0600) {
    std::string name = "/tmp/tcpx-secret-XXXXXX";
    const int fd = ::mkstemp(name.data());
    EXPECT_GE(fd, 0);
    ::close(fd);
    path_ = name;
    std::ofstream(path_, std::ios::binary) << content;
    EXPECT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tcpx::testing
