# Warnings, sanitizers, hardening, and `tcpx_add_layer`: the one way a layer becomes a target.
include_guard(GLOBAL)

add_library(tcpx_build_flags INTERFACE)
target_include_directories(tcpx_build_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
set(_warnings -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Lock annotations (base/mutex.h) are checked by the compiler whenever it is clang.
  list(APPEND _warnings -Wthread-safety)
  # A local variable may have the name of another file's variable, which is in sight only where files are compiled as one.
  if(CMAKE_UNITY_BUILD)
    list(REMOVE_ITEM _warnings -Wshadow)
  endif()
endif()
if(TCPX_WERROR)
  list(APPEND _warnings -Werror)
endif()
target_compile_options(tcpx_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${_warnings}>)
# The same sources make the same files wherever they lie. nvcc names its temporary files after its process, unless they lie beside the
# object, and what is in a namespace without a name after the folder of its file, so there is none in files for it.
set(_no_folders -ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=build)
list(TRANSFORM _no_folders PREPEND -Xcompiler= OUTPUT_VARIABLE _no_folders_of_nvcc)
target_compile_options(tcpx_build_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX,C>:${_no_folders}>" "$<$<COMPILE_LANGUAGE:CUDA>:--objdir-as-tempdir;${_no_folders_of_nvcc}>")
target_compile_definitions(tcpx_build_flags INTERFACE TCPX_VERSION="${PROJECT_VERSION}")

if(TCPX_SANITIZE)
  # Checking builds check assertions too. -O1: g++ 12 takes three times as long to optimise the added checks any further.
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  string(REPLACE "-O2 -g" "-O1 -g1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  # Without vptr: that check opens a pipe to learn whether an object may be read, and takes any object for a wrong one while a test
  # leaves the process no descriptor. Without clang's function: libraries that are opened while running are called by types of ours,
  # with other names for their handles, and C programs that link libtcpx.so have not the C++ half of that check.
  set(_unchecked vptr)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    string(APPEND _unchecked ",function")
  endif()
  target_compile_options(tcpx_build_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX,C>:-fsanitize=${TCPX_SANITIZE};-fno-sanitize=${_unchecked};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(tcpx_build_flags INTERFACE -fsanitize=${TCPX_SANITIZE})
  if(TCPX_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_definitions(tcpx_build_flags INTERFACE __SANITIZE_THREAD__)  # by which sources know the checker: g++ alone defines it
    # Without the half of the checker's runtime that a C++ driver links: its operator new is also one of some tests (count_allocations.cc).
    target_link_options(tcpx_build_flags INTERFACE --driver-mode=gcc)
    target_link_libraries(tcpx_build_flags INTERFACE stdc++ m)
  elseif(TCPX_SANITIZE MATCHES "thread")
    # "atomic_thread_fence is not supported": every fence here has atomics beside it that order the same accesses, which the
    # checker sees.
    target_compile_options(tcpx_build_flags INTERFACE -Wno-tsan)
  endif()
else()
  # Against faults that are still there: docs/install.md says which. The linker marks a file for control-flow
  # protection only when all that is in it can bear it, and the CUDA runtime says nothing about that.
  include(CheckCXXCompilerFlag)
  set(_hardening -fstack-protector-strong)
  foreach(flag IN ITEMS -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "TCPX_HAVE${flag}" has_flag)
    check_cxx_compiler_flag(${flag} ${has_flag})
    if(${has_flag})
      list(APPEND _hardening ${flag})
    endif()
  endforeach()
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")  # it takes optimisation; some distributions set a lower level
    list(APPEND _hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  endif()
  list(TRANSFORM _hardening PREPEND -Xcompiler= OUTPUT_VARIABLE _hardening_of_nvcc)
  target_compile_options(tcpx_build_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX,C>:${_hardening}>" "$<$<COMPILE_LANGUAGE:CUDA>:${_hardening_of_nvcc}>")
  target_link_options(tcpx_build_flags INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)
endif()
if(NOT TCPX_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
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
  if(TCPX_FUZZ)  # which branches an input takes; the address checker's runtime has the counters of programs that are no fuzzers
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
