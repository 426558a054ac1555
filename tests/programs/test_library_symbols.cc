// Symbols of libtcpx.so: exported are the C interface and Endpoint, and nothing else; wanted is nothing newer than glibc 2.34.
#include <cxxabi.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "tests/support/exported_symbols.h"

namespace tcpx {
namespace {

const std::set<std::string> kNames = {"tcpx_accept_v5",        "tcpx_close_listen",   "tcpx_close_recv",     "tcpx_close_send",
                                      "tcpx_connect_v5",       "tcpx_dereg_mr",       "tcpx_get_properties", "tcpx_irecv",
                                      "tcpx_get_device_count", "tcpx_irecv_consumed", "tcpx_isend",          "tcpx_last_error",
                                      "tcpx_listen",           "tcpx_load_plugin",    "tcpx_reg_mr",         "tcpx_test"};

TEST(CApiLibrary, EveryNameIsThere) {
  void* library = ::dlopen(TCPX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  for (const std::string& name : kNames) EXPECT_NE(::dlsym(library, name.c_str()), nullptr) << name;
  ::dlclose(library);
}

// Declared and not defined in include/tcpx/endpoint.h, private members included, and in tcpx/uccl.h.
const std::set<std::string> kEndpointNames = {"tcpx::Endpoint::Endpoint",
                                              "tcpx::Endpoint::~Endpoint",
                                              "tcpx::Endpoint::accept",
                                              "tcpx::Endpoint::add_remote_endpoint",
                                              "tcpx::Endpoint::advertise",
                                              "tcpx::Endpoint::cancel",
                                              "tcpx::Endpoint::completion_event",
                                              "tcpx::Endpoint::connect",
                                              "tcpx::Endpoint::create",
                                              "tcpx::Endpoint::deregister",
                                              "tcpx::Endpoint::event_fd",
                                              "tcpx::Endpoint::flight_record",
                                              "tcpx::Endpoint::get_metadata",
                                              "tcpx::Endpoint::get_notifs",
                                              "tcpx::Endpoint::is_advertised",
                                              "tcpx::Endpoint::metrics_text",
                                              "tcpx::Endpoint::notify",
                                              "tcpx::Endpoint::perform",
                                              "tcpx::Endpoint::poll",
                                              "tcpx::Endpoint::prepare",
                                              "tcpx::Endpoint::prepare_blocks",
                                              "tcpx::Endpoint::progress",
                                              "tcpx::Endpoint::read",
                                              "tcpx::Endpoint::read_async",
                                              "tcpx::Endpoint::read_metadata",
                                              "tcpx::Endpoint::recv",
                                              "tcpx::Endpoint::recv_async",
                                              "tcpx::Endpoint::recv_slot",
                                              "tcpx::Endpoint::register_memory",
                                              "tcpx::Endpoint::remove_connection",
                                              "tcpx::Endpoint::send",
                                              "tcpx::Endpoint::send_async",
                                              "tcpx::Endpoint::send_slot",
                                              "tcpx::Endpoint::start",
                                              "tcpx::Endpoint::start_accepting",
                                              "tcpx::Endpoint::stats",
                                              "tcpx::Endpoint::stop_waiting",
                                              "tcpx::Endpoint::wait",
                                              "tcpx::Endpoint::wait_notifs",
                                              "tcpx::Endpoint::withdraw",
                                              "tcpx::Endpoint::write",
                                              "tcpx::Endpoint::write_async",
                                              "tcpx::LatencyHistogram::quantile",
                                              "tcpx::uccl::Endpoint::Endpoint",
                                              "tcpx::uccl::Endpoint::accept",
                                              "tcpx::uccl::Endpoint::add_remote_endpoint",
                                              "tcpx::uccl::Endpoint::advertise",
                                              "tcpx::uccl::Endpoint::advertisev",
                                              "tcpx::uccl::Endpoint::connect",
                                              "tcpx::uccl::Endpoint::dereg",
                                              "tcpx::uccl::Endpoint::get_metadata",
                                              "tcpx::uccl::Endpoint::get_notifs",
                                              "tcpx::uccl::Endpoint::last_error",
                                              "tcpx::uccl::Endpoint::parse_metadata",
                                              "tcpx::uccl::Endpoint::poll_async",
                                              "tcpx::uccl::Endpoint::read",
                                              "tcpx::uccl::Endpoint::read_async",
                                              "tcpx::uccl::Endpoint::readv",
                                              "tcpx::uccl::Endpoint::readv_async",
                                              "tcpx::uccl::Endpoint::recv",
                                              "tcpx::uccl::Endpoint::recv_async",
                                              "tcpx::uccl::Endpoint::recvv",
                                              "tcpx::uccl::Endpoint::recvv_async",
                                              "tcpx::uccl::Endpoint::reg",
                                              "tcpx::uccl::Endpoint::regv",
                                              "tcpx::uccl::Endpoint::remove_remote_endpoint",
                                              "tcpx::uccl::Endpoint::send",
                                              "tcpx::uccl::Endpoint::send_async",
                                              "tcpx::uccl::Endpoint::send_notif",
                                              "tcpx::uccl::Endpoint::sendv",
                                              "tcpx::uccl::Endpoint::sendv_async",
                                              "tcpx::uccl::Endpoint::start_passive_accept",
                                              "tcpx::uccl::Endpoint::write",
                                              "tcpx::uccl::Endpoint::write_async",
                                              "tcpx::uccl::Endpoint::writev",
                                              "tcpx::uccl::Endpoint::writev_async",
                                              "tcpx::uccl::Endpoint::~Endpoint",
                                              "tcpx::uccl::deserialize_fifo_item",
                                              "tcpx::uccl::serialize_fifo_item"};

/// Name of a function without its parameters, as C++ writes it.
std::string plain_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(::abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return symbol;
  const std::string name = text.get();
  return name.substr(0, std::min(name.find('('), name.find('[')));
}

TEST(CApiLibrary, NothingElseIsExported) {
  if (std::string(TCPX_NM).empty()) GTEST_SKIP() << "nm (binutils) was not found when this was built";
  std::set<std::string> exported;
  for (const std::string& symbol : testing::dynamic_symbols(TCPX_NM, "--defined-only", TCPX_LIBRARY))
    exported.insert(plain_name(symbol));
  exported.erase("tcpx::Endpoint::kMaxRanges");  // a constant of the header, which is a symbol only without optimisation
  std::set<std::string> wanted = kNames;
  wanted.insert(kEndpointNames.begin(), kEndpointNames.end());
  EXPECT_EQ(exported, wanted);
}

TEST(CApiLibrary, AGlibcOf2021IsEnough) {
  if (std::string(TCPX_NM).empty()) GTEST_SKIP() << "nm (binutils) was not found when this was built";
  int of_glibc = 0;
  for (const std::string& symbol : testing::dynamic_symbols(TCPX_NM, "--undefined-only", TCPX_LIBRARY)) {
    int minor = 0;
    const size_t version = symbol.find("@GLIBC_2.");
    if (version == std::string::npos || std::sscanf(symbol.c_str() + version, "@GLIBC_2.%d", &minor) != 1) continue;
    ++of_glibc;
    // Headers of glibc 2.38 and later put these in place of sscanf and its like: programs for older systems are built on one.
    EXPECT_TRUE(minor <= 34 || symbol.starts_with("__isoc23_")) << symbol;
  }
  EXPECT_GT(of_glibc, 20) << "is that the library?";
}

}  // namespace
}  // namespace tcpx
