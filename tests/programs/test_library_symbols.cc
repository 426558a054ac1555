// What libtcpx.so exports: the C interface and Endpoint, and nothing else.
#include <cxxabi.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// What include/tcpx/endpoint.h declares and does not define, private members included.
const std::set<std::string> kEndpointNames = {"tcpx::Endpoint::Endpoint",
                                              "tcpx::Endpoint::~Endpoint",
                                              "tcpx::Endpoint::accept",
                                              "tcpx::Endpoint::add_remote_endpoint",
                                              "tcpx::Endpoint::advertise",
                                              "tcpx::Endpoint::advertisev",
                                              "tcpx::Endpoint::cancel",
                                              "tcpx::Endpoint::completion_event",
                                              "tcpx::Endpoint::connect",
                                              "tcpx::Endpoint::create",
                                              "tcpx::Endpoint::dereg",
                                              "tcpx::Endpoint::deregister",
                                              "tcpx::Endpoint::flight_record",
                                              "tcpx::Endpoint::get_metadata",
                                              "tcpx::Endpoint::get_notifs",
                                              "tcpx::Endpoint::impl",
                                              "tcpx::Endpoint::last_error",
                                              "tcpx::Endpoint::notify",
                                              "tcpx::Endpoint::parse_metadata",
                                              "tcpx::Endpoint::perform",
                                              "tcpx::Endpoint::poll",
                                              "tcpx::Endpoint::poll_async",
                                              "tcpx::Endpoint::progress",
                                              "tcpx::Endpoint::read",
                                              "tcpx::Endpoint::read_async",
                                              "tcpx::Endpoint::read_metadata",
                                              "tcpx::Endpoint::readv",
                                              "tcpx::Endpoint::readv_async",
                                              "tcpx::Endpoint::recv",
                                              "tcpx::Endpoint::recv_async",
                                              "tcpx::Endpoint::recv_slot",
                                              "tcpx::Endpoint::recvv",
                                              "tcpx::Endpoint::recvv_async",
                                              "tcpx::Endpoint::reg",
                                              "tcpx::Endpoint::register_memory",
                                              "tcpx::Endpoint::regv",
                                              "tcpx::Endpoint::remove_connection",
                                              "tcpx::Endpoint::remove_remote_endpoint",
                                              "tcpx::Endpoint::send",
                                              "tcpx::Endpoint::send_async",
                                              "tcpx::Endpoint::send_slot",
                                              "tcpx::Endpoint::send_notif",
                                              "tcpx::Endpoint::sendv",
                                              "tcpx::Endpoint::sendv_async",
                                              "tcpx::Endpoint::start",
                                              "tcpx::Endpoint::start_accepting",
                                              "tcpx::Endpoint::start_passive_accept",
                                              "tcpx::Endpoint::stats",
                                              "tcpx::Endpoint::status",
                                              "tcpx::Endpoint::wait",
                                              "tcpx::Endpoint::wait_notifs",
                                              "tcpx::Endpoint::write",
                                              "tcpx::Endpoint::write_async",
                                              "tcpx::Endpoint::writev",
                                              "tcpx::Endpoint::writev_async",
                                              "tcpx::LatencyHistogram::quantile",
                                              "tcpx::deserialize_fifo_item",
                                              "tcpx::serialize_fifo_item"};

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
  for (const std::string& symbol : testing::exported_symbols(TCPX_NM, TCPX_LIBRARY)) exported.insert(plain_name(symbol));
  exported.erase("tcpx::Endpoint::kMaxRanges");  // a constant of the header, which is a symbol only without optimisation
  std::set<std::string> wanted = kNames;
  wanted.insert(kEndpointNames.begin(), kEndpointNames.end());
  EXPECT_EQ(exported, wanted);
}

}  // namespace
}  // namespace tcpx
