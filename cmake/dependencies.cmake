# Third-party libraries, all from the distribution, header-only or static. docs/dependencies.md says why each is here.
include_guard(GLOBAL)

function(tcpx_header_only target header package)
  find_path(${target}_INCLUDE_DIR ${header})
  if(NOT ${target}_INCLUDE_DIR)
    message(FATAL_ERROR "tcpx: ${header} not found; install ${package} (scripts/install_deps.sh does it)")
  endif()
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIR})
endfunction()

tcpx_header_only(tcpx_spdlog spdlog/spdlog.h libspdlog-dev)
# Debian's spdlog uses the separate fmt package; both stay header-only so that no shared library is needed at run time.
target_compile_definitions(tcpx_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
tcpx_header_only(tcpx_cli11 CLI/CLI.hpp libcli11-dev)
tcpx_header_only(tcpx_json nlohmann/json.hpp nlohmann-json3-dev)
# Where it lies depends on the release of the distribution.
find_path(tcpx_queue_INCLUDE_DIR concurrentqueue.h PATH_SUFFIXES concurrentqueue/moodycamel concurrentqueue)
tcpx_header_only(tcpx_queue concurrentqueue.h libconcurrentqueue-dev)

set(ZLIB_USE_STATIC_LIBS ON)
find_package(ZLIB QUIET)
if(NOT TARGET ZLIB::ZLIB)
  message(FATAL_ERROR "tcpx: zlib.h not found; install zlib1g-dev (scripts/install_deps.sh does it)")
endif()

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest QUIET)
  if(NOT TARGET GTest::gtest)
    if(EXISTS /usr/src/googletest/CMakeLists.txt)
      set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
      add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
      add_library(GTest::gtest ALIAS gtest)
    else()
      message(FATAL_ERROR "tcpx: GoogleTest not found; install libgtest-dev (scripts/install_deps.sh does it)")
    endif()
  endif()
endif()
