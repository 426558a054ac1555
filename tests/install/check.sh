#!/usr/bin/env bash
# The installed tree as its users see it.
#   check.sh STEP FOLDER     with STEP one of those below, `prefix` before all others; FOLDER is kept between them
# From the environment: BUILD (build folder), SOURCE (this project), CXX, CC, FLAGS (what both add for the sanitizers), NM, CUDA (ON
# when it is inside).
#
# `prefix` installs, then moves the prefix away from where it was installed: all other steps prove that nothing remembers the old place.
# Exit code 77: this step cannot be done here.
set -euo pipefail
step=$1 folder=$2
prefix=$folder/moved/tcpx
lib=$prefix/lib
: "${BUILD:?}" "${SOURCE:?}" "${CXX:?}" "${CC:?}"
read -ra flags <<<"${FLAGS:-}"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
skip() {
  echo "SKIPPED: $*"
  exit 77
}
# alone COMMAND...: without anything of ours in the environment, and over loopback.
alone() { env -u LD_LIBRARY_PATH NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo timeout 60 "$@"; }

# uses_installed PROGRAM: does it load the library below the prefix?
uses_installed() {
  local loaded
  loaded=$(ldd "$1" | sed -n 's/.*libtcpx\.so\.0 => \([^ ]*\) .*/\1/p')
  [[ -n $loaded && $(realpath "$loaded") == "$(realpath "$lib/libtcpx.so")" ]] || fail "$1 loads another library: $(ldd "$1")"
}

# build_with_cmake APPLICATION: the folder of that name beside this file, which says find_package(tcpx).
build_with_cmake() {
  local application=$1
  rm -rf "${folder:?}/$application"
  env -u CXXFLAGS -u CFLAGS cmake -S "$SOURCE/tests/install/$application" -B "$folder/$application" -G Ninja --no-warn-unused-cli \
    -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_CXX_FLAGS="${flags[*]}" -DCMAKE_C_FLAGS="${flags[*]}"
  cmake --build "$folder/$application"
}

case $step in
  prefix)
    rm -rf "$folder"
    mkdir -p "$folder/moved"
    cmake --install "$BUILD" --prefix "$folder/first" >"$folder/install.log" || fail "$(tail -n 5 "$folder/install.log")"
    mv "$folder/first" "$prefix"
    ;;

  files)
    for file in lib/libtcpx.so lib/libnccl-net-tcpx-{soft,devmem}.so lib/nixl/{libplugin_TCPX.so,install.py,bench.py,memory.py,result.py,wheel.py} \
      include/tcpx_interface.h include/tcpx/{endpoint,status,types}.h \
      bin/{tcpx_doctor,tcpx_devmemd,test_device_discovery,test_tcpx_transfer,tcpx_perf,test_tcpx_perf,p2p_fullmesh} lib/pkgconfig/tcpx.pc \
      lib/cmake/tcpx/tcpxConfig{,Version}.cmake share/doc/tcpx/{{README,CHANGELOG,CONTRIBUTING,SECURITY}.md,LICENSE,tcpx.cdx.json,docs/env.md,examples/{first_transfer.cc,devmemd/tcpx-devmemd.{service,yaml}}}; do
      [[ -s $prefix/$file ]] || fail "no $file"
    done
    readelf --dynamic "$lib/libtcpx.so" | grep -q 'SONAME.*\[libtcpx.so.0\]' || fail "libtcpx.so has another soname"
    [[ $(readlink "$lib/libtcpx.so.0") =~ ^libtcpx\.so\.0\.[0-9]+\.[0-9]+$ ]] || fail "libtcpx.so.0 is no link to a full version"
    # No way back to where it was built or first installed, in what is read by tools or by the dynamic linker.
    if grep -r -n -F -e "$BUILD" -e "$SOURCE" -e "$folder/first" "$lib/cmake" "$lib/pkgconfig"; then fail "a path of this machine"; fi
    for file in "$lib"/*.so "$lib"/nixl/*.so "$prefix"/bin/*; do
      if readelf --dynamic "$file" | grep -E 'R(UN)?PATH'; then fail "$file looks for libraries in a folder of its own"; fi
      if ldd "$file" | grep 'not found'; then fail "$file misses a library"; fi
    done
    ;;

  hardening)
    [[ -z ${FLAGS:-} ]] || skip "checked builds are not hardened"
    for file in "$lib"/*.so "$lib"/nixl/*.so "$prefix"/bin/*; do
      segments=$(readelf --segments --wide "$file")
      dynamic=$(readelf --dynamic --wide "$file")
      symbols=$(readelf --dyn-syms --wide "$file")
      grep -q GNU_RELRO <<<"$segments" || fail "$file: what the linker fills in stays writable"
      grep -q BIND_NOW <<<"$dynamic" || fail "$file: what the linker fills in later stays writable"
      grep -q 'file type is DYN' <<<"$segments" || fail "$file lies at a fixed address"
      if grep -E 'GNU_STACK.* RWE ' <<<"$segments"; then fail "$file has a stack that can be executed"; fi
      if grep -E 'LOAD .* RWE ' <<<"$segments"; then fail "$file has code that can be written to"; fi
      grep -q ' __stack_chk_fail' <<<"$symbols" || fail "$file does not guard its stack"
      grep -q -E ' __(memcpy|snprintf|vsnprintf)_chk' <<<"$symbols" || fail "$file does not check the length of buffers"
      # The names of places are short ones, the same wherever this was built.
      if grep -q -F -a -e "$BUILD/" -e "$SOURCE/" "$file"; then fail "$file names folders of this machine"; fi
    done
    [[ $(uname -m) == x86_64 ]] || exit 0
    # The linker keeps the mark only when everything has it, and the CUDA runtime has not.
    for file in "$BUILD"/{base/libtcpx_base,net/libtcpx_net,net/soft/libtcpx_soft,transfer/libtcpx_transfer,endpoint/libtcpx_endpoint}.a; do
      objects=$(ar t "$file" | wc -l)
      [[ $(readelf --notes --wide "$file" | grep -c 'x86 feature: IBT, SHSTK') -eq $objects && $objects -gt 0 ]] ||
        fail "$file has objects without control-flow protection"
    done
    [[ $CUDA == ON ]] && exit 0
    # Nor have the start files of some distributions (Debian 12 and 13), so the library carries the marks of a file that consists of
    # them and of the same C++ runtime, no more and no less.
    marks() { readelf --notes --wide "$1" | sed -n 's/.*x86 feature: //p' | sort -u; }
    echo 'int length_of(const char* text) { try { return std::stoi(text); } catch (...) { return 0; } }' |
      "$CXX" -include string -x c++ -shared -fPIC -O2 -fcf-protection=full -static-libstdc++ - -o "$folder/marked.so"
    [[ $(marks "$lib/libtcpx.so") == "$(marks "$folder/marked.so")" ]] ||
      fail "libtcpx.so is marked with '$(marks "$lib/libtcpx.so")', a file linked here with '$(marks "$folder/marked.so")'"
    ;;

  contents)
    # The list of what is inside, against docs/dependencies.md and against what is really there.
    list=$prefix/share/doc/tcpx/tcpx.cdx.json
    sed -n 's/^      "name": "\(.*\)",/\1/p' "$list" | tail -n +2 | sort >"$folder/listed"
    sed -n '/^## Libraries/,/^## Tools/s/^| \([^|]*\) | [^|]* | \([^|]*\) |.*/\1|\2/p' "$SOURCE/docs/dependencies.md" |
      awk -F'|' -v cuda="$CUDA" '$1 == "library" || $2 ~ /^(tests|nothing|the Python package|`bench)/ { next }
        cuda != "ON" && $2 ~ /nvcc/ { next } { sub(", libgcc", "", $1); print $1 }' | sort >"$folder/documented"
    [[ -s $folder/listed ]] || fail "$list names nothing"
    diff "$folder/documented" "$folder/listed" || fail "the list and docs/dependencies.md differ"
    if grep -E '"version": "(|[^0-9"].*)"' "$list"; then fail "a version is missing"; fi
    command -v python3 >/dev/null && { python3 -m json.tool "$list" >/dev/null || fail "$list is no JSON"; }
    # All else comes from the C library, libgcc and, for the back-end, from NIXL.
    for file in "$lib"/*.so "$lib"/nixl/*.so "$prefix"/bin/*; do
      if readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -v -E '^(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux-.*)\.so\.[0-9]+$'; then
        fail "$file wants a library that is not named anywhere"
      fi
    done
    ;;

  tools)
    for tool in "$prefix"/bin/*; do alone "$tool" --help >/dev/null || fail "$tool --help"; done
    alone "$prefix/bin/test_device_discovery"
    said=$(alone env UCCL_TCPX_PLUGIN_PATH=/no/such/plugin.so "$prefix/bin/test_device_discovery" 2>&1) && fail "a missing plugin is not missed"
    page=$(sed -n 's/^help: docs\/troubleshooting.md is //p' <<<"$said")
    grep -q TCPX_E_NOT_FOUND "${page:-/dev/null}" || fail "the page of help is not there: $said"
    alone "$prefix/bin/test_tcpx_transfer" loopback --memory host --bytes 1000000
    alone env UCCL_TCPX_PLUGIN_PATH="$lib/libnccl-net-tcpx-soft.so" "$prefix/bin/test_tcpx_perf" loopback -b 1M -n 2 --memory host
    ;;

  headers)
    # Each alone, with no other folder to find ours in.
    for header in $(cd "$prefix/include" && find . -name '*.h' -printf '%P\n'); do
      echo "#include \"$header\"" >"$folder/header.cc"
      "$CXX" -std=c++20 -Wall -Wextra -pedantic -Werror -fsyntax-only -I "$prefix/include" "$folder/header.cc" || fail "$header in C++20"
    done
    echo '#include "tcpx_interface.h"' >"$folder/header.c"
    "$CC" -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -I "$prefix/include" "$folder/header.c" || fail "tcpx_interface.h in C99"
    echo '#include "tcpx/endpoint.h"' >"$folder/header.cc"
    said=$("$CXX" -std=c++17 -fsyntax-only -I "$prefix/include" "$folder/header.cc" 2>&1) && fail "C++17 is accepted"
    grep -q 'needs C++20' <<<"$said" || fail "C++17 is refused without a word about it"
    ;;

  symbols)
    [[ -n ${NM:-} ]] || skip "nm (binutils) was not found when this was built"
    # As cmake/tcpx_exports.map and net/soft/soft_exports.map have them. A constant of the header is a symbol without optimisation.
    "$NM" -D --defined-only -C --format=posix "$lib/libtcpx.so" >"$folder/exported"
    for name in '^tcpx_' '^tcpx::Endpoint::' '^tcpx::uccl::'; do grep -c "$name" "$folder/exported" || fail "libtcpx.so exports no $name"; done
    if grep -v -E '^(tcpx_[a-z0-9_]+ |tcpx::(Endpoint::|LatencyHistogram::quantile\(|uccl::))' "$folder/exported"; then
      fail "libtcpx.so exports more than its own"
    fi
    exported() { "$NM" -D --defined-only --format=posix "$lib/$1" | cut -d ' ' -f 1 | LC_ALL=C sort | xargs; }
    for plugin in libnccl-net-tcpx-{soft,devmem}.so; do
      [[ $(exported "$plugin") == "ncclNetPlugin_v10 ncclNetPlugin_v11 ncclNetPlugin_v7 ncclNetPlugin_v9" ]] ||
        fail "$plugin exports $(exported "$plugin")"
    done
    [[ $(exported nixl/libplugin_TCPX.so) == "nixl_plugin_fini nixl_plugin_init" ]] ||
      fail "the back-end exports $(exported nixl/libplugin_TCPX.so)"
    ;;

  cmake)
    for application in cxx c; do
      build_with_cmake "$application"
      uses_installed "$folder/$application/app"
      alone "$folder/$application/app" || fail "the application in $application ended with $?"
    done
    # Another major version is another library.
    sed 's/tcpx 0.1/tcpx 1.0/' "$SOURCE/tests/install/c/CMakeLists.txt" >"$folder/CMakeLists.txt"
    grep -q 'tcpx 1.0' "$folder/CMakeLists.txt"
    said=$(cmake -S "$folder" -B "$folder/later" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" 2>&1) &&
      fail "version 1.0 was found"
    grep -q 'version: 0.1' <<<"$said" || fail "$said"
    ;;

  pkg_config)
    command -v pkg-config >/dev/null || skip "pkg-config is not installed (scripts/install_deps.sh --tests)"
    export PKG_CONFIG_PATH=$lib/pkgconfig
    read -ra use <<<"$(pkg-config --cflags --libs 'tcpx >= 0.1')"
    use+=("${flags[@]}" "-Wl,-rpath,$(pkg-config --variable=libdir tcpx)")
    [[ -f $(pkg-config --variable=plugin tcpx) ]] || fail "the variable plugin names no file"
    if pkg-config --exists 'tcpx >= 1'; then fail "version 1 was found"; fi
    for source in "$SOURCE/tests/install/cxx/app.cc" "$prefix/share/doc/tcpx/examples/first_transfer.cc"; do
      "$CXX" -std=c++20 "$source" -o "$folder/app" "${use[@]}" -pthread
      uses_installed "$folder/app"
      alone "$folder/app" || fail "$source ended with $?"
    done
    "$CC" -std=c99 "$SOURCE/tests/install/c/app.c" -o "$folder/app" "${use[@]}"
    uses_installed "$folder/app"
    alone "$folder/app" || fail "the application in C ended with $?"
    ;;

  uninstall)
    # As docs/install.md says; files of others stay. Of a copy, so that this step can be repeated.
    copy=$folder/copy
    rm -rf "$copy"
    cp -a "$prefix" "$copy"
    echo mine >"$copy/lib/somebody_elses.so"
    (cd "$copy" && xargs rm <share/doc/tcpx/installed_files.txt)
    left=$(cd "$copy" && find . ! -type d)
    [[ $left == ./lib/somebody_elses.so ]] || fail "left over: $left"
    rm -r "$copy"
    ;;

  *) fail "no step $step" ;;
esac
