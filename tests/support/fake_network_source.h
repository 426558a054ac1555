// A network that a test makes up: what the kernel and other hosts would answer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/socket_io.h"
#include "programs/doctor/network_source.h"

namespace tcpx::testing {

inline SocketAddress address_of(const std::string& host) {
  const auto addresses = resolve(host, 0);
  EXPECT_TRUE(addresses.is_ok()) << host;
  return addresses.is_ok() ? addresses->front() : SocketAddress();
}

/// Healthy until told otherwise: everything can be bound, no firewall program, and each address leaves by its own interface.
class FakeNetworkSource final : public doctor::NetworkSource {
 public:
  /// @param address "10.0.1.2/24", "" for none
  FakeNetworkSource& interface(const std::string& name, const std::string& address, bool up = true) {
    auto known = std::find_if(interfaces_.begin(), interfaces_.end(), [&](const auto& entry) { return entry.name == name; });
    if (known == interfaces_.end()) {
      interfaces_.push_back({.name = name, .up = up, .loopback = name == "lo", .addresses = {}});
      known = interfaces_.end() - 1;
    }
    const size_t slash = address.find('/');
    if (!address.empty())
      known->addresses.push_back({address_of(address.substr(0, slash)), std::stoi(address.substr(slash + 1))});
    return *this;
  }

  std::map<uint16_t, int> bind_errors;                    ///< by port
  int bind_error = 0;                                     ///< of every other port from 50000 on
  std::map<std::string, doctor::CommandAnswer> commands;  ///< by program and arguments
  /// By target, or "TARGET from SOURCE", which goes first.
  std::map<std::string, doctor::Route> routes;
  std::map<std::string, Status> connects;  ///< by source; what is not there is connected
  std::map<std::string, doctor::PathProbe> paths;

  std::vector<doctor::NetworkInterface> interfaces() override { return interfaces_; }
  int try_bind(uint16_t port) override {
    const auto found = bind_errors.find(port);
    return found != bind_errors.end() ? found->second : port >= 50000 ? bind_error : 0;
  }
  doctor::CommandAnswer run(const std::string& program, const std::vector<std::string>& arguments, Duration) override {
    std::string line = program;
    for (const std::string& argument : arguments) line += " " + argument;
    const auto found = commands.find(line);
    return found != commands.end() ? found->second : doctor::CommandAnswer{};
  }
  Result<doctor::Route> route(const SocketAddress& target, const SocketAddress* source) override {
    if (source != nullptr) {
      const auto found = routes.find(target.host() + " from " + source->host());
      if (found != routes.end()) return found->second;
      for (const auto& interface : interfaces_) {
        for (const auto& entry : interface.addresses) {
          if (entry.address.host() == source->host()) return doctor::Route{interface.name, source->host(), false};
        }
      }
    }
    const auto found = routes.find(target.host());
    if (found != routes.end()) return found->second;
    return system_error("ask for a route", ENETUNREACH);
  }
  std::vector<Status> connect_from(const SocketAddress& target, std::span<const SocketAddress> sources, Duration) override {
    connected_to = target.to_string();
    std::vector<Status> answers;
    for (const SocketAddress& source : sources) {
      const auto found = connects.find(source.host());
      answers.push_back(found != connects.end() ? found->second : Status::ok());
    }
    return answers;
  }
  std::vector<doctor::PathProbe> probe_paths(const SocketAddress&, std::span<const doctor::PathQuestion> questions,
                                             Duration) override {
    std::vector<doctor::PathProbe> answers;
    for (const doctor::PathQuestion& question : questions) {
      const auto found = paths.find(question.source.host());
      answers.push_back(found != paths.end() ? found->second : doctor::PathProbe{doctor::PathAnswer::kArrives, question.mtu});
    }
    return answers;
  }

  std::string connected_to;  ///< of the last connect_from

 private:
  std::vector<doctor::NetworkInterface> interfaces_;
};

}  // namespace tcpx::testing
