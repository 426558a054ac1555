# Contents of `cmake --install`: the library with its headers, for CMake and pkg-config, the software plugin, the tools, the
# documents. docs/install.md tells how to use it; tests/install/ uses it.
#
# There is no static library: one would need every layer, the CUDA runtime and the C++ runtime of this build beside it, and
# would expose all our internal names to the linker. libtcpx.so hides them.
#
# The prefix is relocatable: everything below finds its neighbours relative to its own location.
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tcpx)
install(TARGETS tcpx EXPORT tcpxTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tcpx_soft_plugin tcpx_devmem_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The back-end for NIXL lies beside the scripts that put it into a wheel and measure it.
install(TARGETS nixl_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/nixl)
foreach(script IN ITEMS install.py bench.py memory.py result.py wheel.py)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/integrations/nixl/${script} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nixl)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# The library needs no other package, so the exported targets are the whole package file.
install(EXPORT tcpxTargets FILE tcpxConfig.cmake NAMESPACE tcpx:: DESTINATION ${_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tcpxConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tcpxConfigVersion.cmake DESTINATION ${_cmake_dir})

# Some distributions set absolute folders; the prefix is not relocatable then, and tcpx.pc names the folders.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(TCPX_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH _up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" _up "${_up}")
  set(TCPX_PC_PREFIX "\${pcfiledir}/${_up}")
endif()
foreach(folder IN ITEMS LIBDIR INCLUDEDIR)
  set(TCPX_PC_${folder} ${CMAKE_INSTALL_${folder}})
  if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_${folder}})
    set(TCPX_PC_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/tcpx.pc.in ${PROJECT_BINARY_DIR}/tcpx.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tcpx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The tools have all of ours inside and need no libtcpx.so.
install(TARGETS tcpx_devmemd tcpx_doctor test_device_discovery test_tcpx_transfer tcpx_perf RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_BINARY_DIR}/programs/test_tcpx_perf ${PROJECT_BINARY_DIR}/programs/p2p_fullmesh
  DESTINATION ${CMAKE_INSTALL_BINDIR})  # links to tcpx_perf

tcpx_write_sbom(${PROJECT_BINARY_DIR}/tcpx.cdx.json)
install(FILES ${PROJECT_BINARY_DIR}/tcpx.cdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})

# As in the source tree, so that links between documents hold.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json" PATTERN "*.cc" PATTERN "*.service" PATTERN "*.yaml")

# The list of files for uninstalling; its paths are relative to the prefix, so it moves with it.
install(CODE "
  get_filename_component(list \"${CMAKE_INSTALL_DOCDIR}/installed_files.txt\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
  set(lines)
  foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES ITEMS \${list})
    file(RELATIVE_PATH line \"\${CMAKE_INSTALL_PREFIX}\" \"\${file}\")
    string(APPEND lines \"\${line}\\n\")
  endforeach()
  file(WRITE \"\$ENV{DESTDIR}\${list}\" \"\${lines}\")
")
