#include "secure/openssl.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "base/text.h"

namespace tcpx {

Result<OpenSsl> OpenSsl::load(const char* ssl_name, const char* crypto_name) {
  OpenSsl made;
  std::string missing;
  const auto open = [&](const char* name) -> void* {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr && missing.empty()) missing = ::dlerror();
    return library;
  };
  void* const crypto = open(crypto_name);
  void* const ssl = open(ssl_name);
  const auto find = [&](void* library, const char* name, auto& function) {
    function = library == nullptr ? nullptr : reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = concat("no ", name);
  };
#define TCPX_FIND(name) find(ssl, #name, made.name);
  TCPX_OF_LIBSSL(TCPX_FIND)
#undef TCPX_FIND
#define TCPX_FIND(name) find(crypto, #name, made.name);
  TCPX_OF_LIBCRYPTO(TCPX_FIND)
#undef TCPX_FIND
  if (missing.empty()) return made;
  return Status(Code::kUnsupported, "load OpenSSL",
                concat("authentication needs OpenSSL 3 (package libssl3, or libssl3t64): ", missing));
}

Result<const OpenSsl*> OpenSsl::of_process() {
  static const Result<OpenSsl> loaded = [] {
    auto made = load("libssl.so.3", "libcrypto.so.3");
    // At exit OpenSSL would take down what threads of an endpoint that is still there are using.
    if (made.is_ok()) (void)made->OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    return made;
  }();
  TCPX_RETURN_IF_ERROR(loaded.status());
  return &*loaded;
}

}  // namespace tcpx
