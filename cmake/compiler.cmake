# Warnings, sanitizers, and `tcpx_add_layer`: the one way a layer becomes a target.
include_guard(GLOBAL)

add_library(tcpx_build_flags INTERFACE)
target_include_directories(tcpx_build_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
set(_warnings -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Lock annotations (base/mutex.h) are checked by the compiler whenever it is clang.
  list(APPEND _warnings -Wthread-safety)
endif()
if(TCPX_WERROR)
  list(APPEND _warnings -Werror)
endif()
target_compile_options(tcpx_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${_warnings}>)
target_compile_definitions(tcpx_build_flags INTERFACE TCPX_VERSION="${PROJECT_VERSION}")

if(TCPX_SANITIZE)
  # Checking builds check assertions too. -O1: g++ 12 takes three times as long to optimise the added checks any further.
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  string(REPLACE "-O2 -g" "-O1 -g1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  target_compile_options(tcpx_build_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX,C>:-fsanitize=${TCPX_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(tcpx_build_flags INTERFACE -fsanitize=${TCPX_SANITIZE})
  if(TCPX_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # "atomic_thread_fence is not supported": every fence here has atomics beside it that order the same accesses, which the
    # checker sees.
    target_compile_options(tcpx_build_flags INTERFACE -Wno-tsan)
  endif()
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A built file runs on other machines: the C++ runtime is linked in. Not all of it, and not libgcc, which every system has:
  # parts that we do not use need a newer C library than we do.
  target_link_options(tcpx_build_flags INTERFACE -static-libstdc++ -Wl,--gc-sections)
endif()

find_package(Threads REQUIRED)
target_link_libraries(tcpx_build_flags INTERFACE Threads::Threads)

# tcpx_add_layer(NAME SOURCES a.cc b.cc... [LINK other layers...])
function(tcpx_add_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC tcpx_build_flags ${ARG_LINK})
endfunction()
