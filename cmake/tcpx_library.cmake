# libtcpx.so, the C interface and the class Endpoint: everything they need is linked in, and only tcpx_* and the declarations of
# include/tcpx/endpoint.h are visible. tcpx_c_api is the C interface as a static target, for the programs of this tree.
include_guard(GLOBAL)

set(_exports ${PROJECT_SOURCE_DIR}/cmake/tcpx_exports.map)
# Objects, because nothing in the library itself calls the class.
add_library(tcpx SHARED tcpx_impl.cc $<TARGET_OBJECTS:tcpx_endpoint> $<TARGET_OBJECTS:tcpx_endpoint_core>)
target_link_libraries(tcpx PRIVATE tcpx_net tcpx_endpoint)
# The name under which an installed library is found.
add_library(tcpx::tcpx ALIAS tcpx)
target_include_directories(tcpx INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(tcpx INTERFACE cxx_std_20)
target_link_options(tcpx PRIVATE -Wl,--version-script=${_exports})
set_target_properties(tcpx PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
  LINK_DEPENDS ${_exports})

tcpx_add_layer(tcpx_c_api SOURCES tcpx_impl.cc LINK tcpx_net)
