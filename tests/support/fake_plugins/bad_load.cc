// A library whose constructor performs BAD_LOAD, so that opening it never returns.
#include <unistd.h>

#include <cstdlib>

namespace {

[[maybe_unused]] void bad_exit() {
  std::exit(1);
}
[[maybe_unused]] void bad_abort() {
  std::abort();
}
[[maybe_unused]] void bad_hang() {
  for (;;) ::pause();
}

__attribute__((constructor)) void on_load() {
  BAD_LOAD();
}

}  // namespace
