#include "integrations/nixl/family.h"

#include <dlfcn.h>

#include "base/text.h"

namespace tcpx::nixl {
namespace {

// nixlAgent::createGpuXferReq, prepMemoryView and prepMemView, as the wheels 0.7.1 to 1.5.1 export them.
constexpr char kCreateGpuRequest[] = "_ZNK9nixlAgent16createGpuXferReqERK12nixlXferReqHRPv";
constexpr char kPrepareMemoryView[] =
    "_ZNK9nixlAgent14prepMemoryViewERK12nixlDescListI13nixlBasicDescERPvPK21nixlAgentOptionalArgs";
constexpr char kPrepMemView[] = "_ZNK9nixlAgent11prepMemViewERK12nixlDescListI13nixlBasicDescERPvPK21nixlAgentOptionalArgs";

}  // namespace

Result<Family> family_of(const AgentMethods& methods, const std::string& library) {
  if (methods.create_gpu_request && !methods.prep_mem_view) return methods.prepare_memory_view ? Family::kB : Family::kA;
  if (methods.prep_mem_view && !methods.create_gpu_request && !methods.prepare_memory_view) return Family::kC;
  return Status(Code::kUnsupported, "find out the version of NIXL",
                concat(library, " is of no known release (0.6 to 1.5 are): createGpuXferReq ",
                       methods.create_gpu_request ? "yes" : "no", ", prepMemoryView ", methods.prepare_memory_view ? "yes" : "no",
                       ", prepMemView ", methods.prep_mem_view ? "yes" : "no"));
}

Result<Family> family_of_library_at(const void* caller) {
  Dl_info place{};
  if (::dladdr(caller, &place) == 0 || place.dli_fname == nullptr) {
    return Status(Code::kUnsupported, "find out the version of NIXL", "the plugin was called by code of no loaded library");
  }
  // It may have been loaded with RTLD_LOCAL, so that no search by name alone would find it; it is there, so nothing is loaded.
  void* const library = ::dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return Status(Code::kUnsupported, "find out the version of NIXL",
                  concat(place.dli_fname, " cannot be looked into: ", ::dlerror()));
  }
  const AgentMethods methods = {.create_gpu_request = ::dlsym(library, kCreateGpuRequest) != nullptr,
                                .prepare_memory_view = ::dlsym(library, kPrepareMemoryView) != nullptr,
                                .prep_mem_view = ::dlsym(library, kPrepMemView) != nullptr};
  ::dlclose(library);
  return family_of(methods, place.dli_fname);
}

}  // namespace tcpx::nixl
