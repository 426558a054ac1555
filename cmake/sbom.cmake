# The list of what the built files have inside, for tools that look for known faults: CycloneDX 1.5, in JSON. Its versions are those of the
# headers and libraries that this build has found. docs/dependencies.md says why each is there.
include_guard(GLOBAL)

# Versions as the headers have them, by asking the preprocessor.
set(_probe ${PROJECT_BINARY_DIR}/sbom_versions.h)
file(WRITE ${_probe} [[
#include <CLI/Version.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <spdlog/version.h>
#include <zlib.h>
version of CLI11 is CLI11_VERSION
version of fmt is FMT_VERSION
version of nlohmann-json is NLOHMANN_JSON_VERSION_MAJOR NLOHMANN_JSON_VERSION_MINOR NLOHMANN_JSON_VERSION_PATCH
version of spdlog is SPDLOG_VER_MAJOR SPDLOG_VER_MINOR SPDLOG_VER_PATCH
version of zlib is ZLIB_VERSION
]])
set(_folders ${tcpx_spdlog_INCLUDE_DIR} ${tcpx_cli11_INCLUDE_DIR} ${tcpx_json_INCLUDE_DIR} ${ZLIB_INCLUDE_DIRS})
list(REMOVE_DUPLICATES _folders)
list(REMOVE_ITEM _folders ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
list(TRANSFORM _folders PREPEND -I)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E -P ${_folders} ${_probe}
  OUTPUT_VARIABLE _lines ERROR_VARIABLE _error RESULT_VARIABLE _failed)
if(_failed)
  message(FATAL_ERROR "tcpx: versions of the libraries are not to be had: ${_error}")
endif()

# tcpx_version_of(RESULT LIBRARY): its version as the probe printed it, 1.2.3.
function(tcpx_version_of result library)
  if(NOT _lines MATCHES "version of ${library} is ([^\n]*)")
    message(FATAL_ERROR "tcpx: ${library} does not say its version")
  endif()
  string(REGEX MATCHALL "[0-9]+" numbers "${CMAKE_MATCH_1}")
  if(library STREQUAL "fmt")  # 90100 is 9.1.0
    math(EXPR major "${numbers} / 10000")
    math(EXPR minor "${numbers} / 100 % 100")
    math(EXPR patch "${numbers} % 100")
    set(numbers ${major} ${minor} ${patch})
  endif()
  list(JOIN numbers . version)
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# tcpx_write_sbom(FILE [LINE...]): with further lines as those below, name|version|license|place. No version: as probed.
function(tcpx_write_sbom file)
  set(lines
    "spdlog||MIT|github/gabime/spdlog"
    "fmt||MIT|github/fmtlib/fmt"
    "CLI11||BSD-3-Clause|github/cliutils/cli11"
    "nlohmann-json||MIT|github/nlohmann/json"
    "zlib||Zlib|github/madler/zlib"
    ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # linked in
    list(APPEND lines "libstdc++|${CMAKE_CXX_COMPILER_VERSION}|GPL-3.0-or-later WITH GCC-exception-3.1|generic/libstdc++")
  endif()
  if(TCPX_HAVE_CUDA)
    list(APPEND lines "CUDA runtime|${CUDAToolkit_VERSION}|LicenseRef-NVIDIA-CUDA-EULA|generic/cudart")
  endif()
  if(TCPX_HAVE_CUDA AND TCPX_NVTX_INCLUDE_DIR)
    list(APPEND lines "NVTX 3|${CUDAToolkit_VERSION}|Apache-2.0 WITH LLVM-exception|generic/nvtx")
  endif()
  set(components)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^(.*)\\|(.*)\\|(.*)\\|(.*)$")
      message(FATAL_ERROR "tcpx: no component: ${line}")
    endif()
    set(name ${CMAKE_MATCH_1})
    set(version ${CMAKE_MATCH_2})
    set(license ${CMAKE_MATCH_3})
    set(place ${CMAKE_MATCH_4})
    if(NOT version)
      tcpx_version_of(version ${name})
    endif()
    list(APPEND components "    {
      \"type\": \"library\",
      \"name\": \"${name}\",
      \"version\": \"${version}\",
      \"licenses\": [{\"expression\": \"${license}\"}],
      \"purl\": \"pkg:${place}@${version}\"
    }")
  endforeach()
  list(JOIN components ",\n" components)
  file(WRITE ${file} "{
  \"bomFormat\": \"CycloneDX\",
  \"specVersion\": \"1.5\",
  \"version\": 1,
  \"metadata\": {
    \"component\": {
      \"type\": \"library\",
      \"name\": \"tcpx\",
      \"version\": \"${PROJECT_VERSION}\",
      \"licenses\": [{\"expression\": \"Apache-2.0\"}]
    }
  },
  \"components\": [
${components}
  ]
}
")
endfunction()
