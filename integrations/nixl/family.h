// Families of NIXL releases: which virtual table the library that loads the plugin will call.
#pragma once

#include <string>

#include "tcpx/status.h"

namespace tcpx::nixl {

/// Of nixl_abi.h: EngineA, EngineB, EngineC.
enum class Family { kA, kB, kC };

/// The family of the loaded library that holds the address `caller`, told by the methods of the agent that it exports: they
/// mirror those of the engine, and nothing else in it names a version.
/// @param caller an instruction of libnixl: the return address of nixl_plugin_init
/// @return kUnsupported naming the library and what it exports: no family has exactly these
Result<Family> family_of_library_at(const void* caller);

/// The decision alone: which of the three methods there are.
struct AgentMethods {
  bool create_gpu_request = false;   ///< A and B
  bool prepare_memory_view = false;  ///< B
  bool prep_mem_view = false;        ///< C
};
Result<Family> family_of(const AgentMethods& methods, const std::string& library);

}  // namespace tcpx::nixl
