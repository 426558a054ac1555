# The interpreter that the package is built for, with nanobind, which wraps C++ for it. TCPX_PYTHON_MISSING says why there is no
# package; pip, which asked for one, is told by an error.
include_guard(GLOBAL)
set(_tools ${PROJECT_SOURCE_DIR}/build/python-tools/bin/python3)  # by scripts/install_deps.sh --tests
if(NOT SKBUILD AND NOT DEFINED Python_EXECUTABLE AND EXISTS ${_tools})
  set(Python_EXECUTABLE ${_tools})
endif()
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)

set(TCPX_PYTHON_MISSING "")
if(NOT Python_FOUND)
  set(TCPX_PYTHON_MISSING "no Python 3.10 or later with its headers")
else()
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    OUTPUT_VARIABLE _free_threaded OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _no_nanobind)
  if(_free_threaded)
    set(TCPX_PYTHON_MISSING "${Python_EXECUTABLE} is free-threaded, and the package relies on the interpreter lock")
  elseif(_no_nanobind)
    set(TCPX_PYTHON_MISSING "no nanobind for ${Python_EXECUTABLE}")
  endif()
endif()
if(TCPX_PYTHON_MISSING)
  if(SKBUILD)
    message(FATAL_ERROR "tcpx: ${TCPX_PYTHON_MISSING}")
  endif()
  message(STATUS "tcpx: no Python package: ${TCPX_PYTHON_MISSING} (scripts/install_deps.sh --tests)")
else()
  unset(nanobind_DIR CACHE)  # of the interpreter that was there before
  find_package(nanobind CONFIG REQUIRED)
  message(STATUS "tcpx: Python package for ${Python_VERSION}, nanobind ${nanobind_VERSION}")
endif()
