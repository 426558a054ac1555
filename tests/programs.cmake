# Runs of the programs for users.
set(_exit ${CMAKE_CURRENT_SOURCE_DIR}/expect_exit.sh)

tcpx_add_run(test_device_discovery host test_device_discovery)
tcpx_add_run(device_discovery.json host ${_exit} 0 "\"speed_mbps\": [1-9]" $<TARGET_FILE:test_device_discovery> --json)
tcpx_add_run(device_discovery.usage host ${_exit} 2 "--no-such-flag" $<TARGET_FILE:test_device_discovery> --no-such-flag)
tcpx_add_run(device_discovery.no_plugin host env UCCL_TCPX_PLUGIN_PATH=/no/such/plugin.so
  ${_exit} 1 "FAILED: TCPX_E_NOT_FOUND" $<TARGET_FILE:test_device_discovery>)

tcpx_add_run(test_connection loopback test_connection loopback)
tcpx_add_run(connection.two_processes loopback ${CMAKE_CURRENT_SOURCE_DIR}/run_two_processes.sh $<TARGET_FILE:test_connection> 0)
tcpx_add_run(connection.no_such_device loopback ${_exit} 1 "FAILED: TCPX_E_INVALID_ARGUMENT" $<TARGET_FILE:test_connection>
  loopback --dev 1000)
tcpx_add_run(connection.malformed_environment host env UCCL_TCPX_TIMEOUT_MS=soon
  ${_exit} 1 "FAILED: TCPX_E_BAD_CONFIG: .*UCCL_TCPX_TIMEOUT_MS" $<TARGET_FILE:test_connection> loopback)
tcpx_add_run(connection.malformed_port_range host env UCCL_TCPX_PORT_RANGE=60000-50000
  ${_exit} 1 "FAILED: TCPX_E_BAD_CONFIG: .*UCCL_TCPX_PORT_RANGE" $<TARGET_FILE:test_connection> loopback)
tcpx_add_run(connection.no_server loopback env UCCL_TCPX_TIMEOUT_MS=100 NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo
  ${_exit} 1 "FAILED: TCPX_E_TIMEOUT: connect to 127.0.0.1:1: .*refused" $<TARGET_FILE:test_connection> client 127.0.0.1 --port 1)
tcpx_add_run(connection.usage_no_role host ${_exit} 2 "subcommand is required" $<TARGET_FILE:test_connection>)
tcpx_add_run(connection.usage_no_host host ${_exit} 2 "HOST is required" $<TARGET_FILE:test_connection> client)
tcpx_add_run(connection.usage_bad_port host ${_exit} 2 "--port" $<TARGET_FILE:test_connection> server --port 70000)

set(_run_tcpx_test ${PROJECT_SOURCE_DIR}/run_tcpx_test.sh)
tcpx_add_run(run_tcpx_test.help host ${_exit} 0 "^usage:" ${_run_tcpx_test} --help)
tcpx_add_run(run_tcpx_test.usage_no_test host ${_exit} 2 "which test" ${_run_tcpx_test})
tcpx_add_run(run_tcpx_test.usage_unknown_test host ${_exit} 2 "no test named speed" ${_run_tcpx_test} speed)
tcpx_add_run(run_tcpx_test.usage_words host ${_exit} 2 "one word too many: b" ${_run_tcpx_test} connection a b)
tcpx_add_run(run_tcpx_test.usage_options host ${_exit} 2 "behind --" ${_run_tcpx_test} connection --dev 1)
tcpx_add_run(connection.without_ipv6 loopback ${CMAKE_CURRENT_SOURCE_DIR}/connect_without_ipv6.sh $<TARGET_FILE:test_connection>)

# tcpx_add_transfer_test(NAME COMMAND...): one run of the program; exit code 77 counts as skipped.
function(tcpx_add_transfer_test name)
  add_test(NAME transfer.${name} COMMAND ${ARGN})
  set_tests_properties(transfer.${name} PROPERTIES LABELS loopback SKIP_RETURN_CODE 77 TIMEOUT 120)
endfunction()
set(_two_processes ${CMAKE_CURRENT_SOURCE_DIR}/run_two_processes.sh $<TARGET_FILE:test_tcpx_transfer>)
tcpx_add_transfer_test(empty test_tcpx_transfer loopback --bytes 0)
tcpx_add_transfer_test(64MiB test_tcpx_transfer loopback --bytes 67108864)
tcpx_add_transfer_test(one_byte test_tcpx_transfer loopback --bytes 1)
tcpx_add_transfer_test(odd_chunks test_tcpx_transfer loopback --bytes 10000001 --chunk 65537 --iterations 3)
tcpx_add_transfer_test(host_memory test_tcpx_transfer loopback --memory host --bytes 10000001)
tcpx_add_transfer_test(two_processes ${_two_processes} 0 --bytes 8MiB --iterations 2)
tcpx_add_transfer_test(sizes_differ ${_two_processes} 1 --bytes 100 -- --bytes 200)
tcpx_add_transfer_test(chunks_differ ${_two_processes} 1 --bytes 1MiB -- --bytes 1MiB --chunk 4096)
tcpx_add_transfer_test(peer_hangs ${CMAKE_CURRENT_SOURCE_DIR}/stop_peer.sh $<TARGET_FILE:test_tcpx_transfer> 30
  --bytes 32MiB --iterations 1000)
set_property(TEST transfer.peer_hangs PROPERTY ENVIRONMENT UCCL_TCPX_TIMEOUT_MS=2000)
# tcpx_add_transfer_exit(NAME CODE PATTERN ARGUMENT...): the program ends with CODE and prints PATTERN.
function(tcpx_add_transfer_exit name code pattern)
  tcpx_add_transfer_test(${name} ${CMAKE_CURRENT_SOURCE_DIR}/expect_exit.sh ${code} ${pattern}
    $<TARGET_FILE:test_tcpx_transfer> ${ARGN})
endfunction()
tcpx_add_transfer_exit(usage_negative 2 "--iterations" loopback --iterations -1)
tcpx_add_transfer_exit(usage_chunk_too_large 2 "--chunk" loopback --chunk 8MiB)
tcpx_add_transfer_exit(no_such_gpu 77 "SKIPPED: --gpu 1000 asked for" loopback --gpu 1000)
tcpx_add_transfer_exit(no_such_device 1 "FAILED: TCPX_E_INVALID_ARGUMENT" loopback --dev 1000)
# The mesh, without a launcher: run_ranks.sh stands in for mpirun.
set(_ranks ${CMAKE_CURRENT_SOURCE_DIR}/run_ranks.sh ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh)
set(_small --memory host --size 1MiB --iters 3)
tcpx_add_run(p2p_fullmesh.pairs loopback ${_ranks} 4 0 "PASSED: all 12 pairs" ${_small})
tcpx_add_run(p2p_fullmesh.together loopback ${_ranks} 3 0 "PASSED: all 6 pairs" --size 300001 --iters 3 --together)
tcpx_add_run(p2p_fullmesh.permutation loopback ${_ranks} 4 0 "PASSED: all 4 pairs" ${_small} --mode permutation --shift 3)
tcpx_add_run(p2p_fullmesh.two_ranks loopback ${_ranks} 2 0 "PASSED: all 2 pairs" --memory host --size 1 --iters 1)
tcpx_add_run(p2p_fullmesh.missing_ranks loopback env START_RANKS=2 UCCL_TCPX_TIMEOUT_MS=4000
  ${_ranks} 4 1 "FAILED: TCPX_E_TIMEOUT: gather ranks: ranks 2, 3 of 4 did not come" ${_small})
tcpx_add_run(p2p_fullmesh.options_differ loopback env UCCL_TCPX_TIMEOUT_MS=4000
  ${_ranks} 3 1 "FAILED: TCPX_E_MISMATCH: .*rank 2 .* has iters 4, rank 0 has 3"
  ${_small} -- --memory host --size 1MiB --iters 4)
tcpx_add_run(p2p_fullmesh.rank_killed loopback env KILL_RANK=2 UCCL_TCPX_TIMEOUT_MS=8000
  ${_ranks} 4 1 "FAILED: TCPX_E_PEER_GONE: mesh: [0-9]* of 12 pairs measured" --size 4MiB --iters 20)
tcpx_add_run(p2p_fullmesh.interrupted loopback env INTERRUPT=1
  ${_ranks} 4 143 "^interrupted: [0-9]* of 12 pairs measured" --size 4MiB --iters 20)
tcpx_add_run(p2p_fullmesh.launcher_killed loopback ${CMAKE_CURRENT_SOURCE_DIR}/kill_launcher.sh ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh)
tcpx_add_run(p2p_fullmesh.rendezvous loopback env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo
  ${_ranks} 3 0 "PASSED: all 6 pairs" ${_small} --rendezvous localhost)
tcpx_add_run(p2p_fullmesh.no_launcher host ${_exit} 1 "FAILED: TCPX_E_NOT_FOUND: .*no launcher started it"
  env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u OMPI_COMM_WORLD_LOCAL_RANK -u PMI_RANK -u PMI_SIZE -u MPI_LOCALRANKID
  -u SLURM_PROCID -u SLURM_NTASKS -u SLURM_LOCALID ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh)
tcpx_add_run(p2p_fullmesh.no_such_shift host env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0
  ${_exit} 1 "FAILED: TCPX_E_INVALID_ARGUMENT: plan mesh: a shift of 4" ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh --mode permutation --shift 4)
tcpx_add_run(p2p_fullmesh.usage host ${_exit} 2 "--size" ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh --size 12x)
tcpx_add_run(p2p_fullmesh.usage_plot host ${_exit} 2 "--plot: .*scripts/plot.py run.json" ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh --plot mesh.svg)
tcpx_add_run(p2p_fullmesh.usage_too_much host ${_exit} 2 "--size times --iters" ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh --size 1GiB)
tcpx_add_run(p2p_fullmesh.help host ${_exit} 0 "Exit code:" ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh --help)
# And with one, where it is installed.
find_program(TCPX_MPIRUN mpirun)
tcpx_add_run(p2p_fullmesh.mpirun loopback ${CMAKE_CURRENT_SOURCE_DIR}/run_mpirun.sh "${TCPX_MPIRUN}" ${PROJECT_BINARY_DIR}/tests/p2p_fullmesh 4 0
  "PASSED: all 12 pairs" ${_small})

set(_run_p2p_fullmesh ${PROJECT_SOURCE_DIR}/run_p2p_fullmesh.sh)
tcpx_add_run(run_p2p_fullmesh.help host ${_exit} 0 "^usage:" ${_run_p2p_fullmesh} --help)
tcpx_add_run(run_p2p_fullmesh.usage_local host ${_exit} 2 "needs a number of ranks" ${_run_p2p_fullmesh} --local many)
tcpx_add_run(run_p2p_fullmesh.usage_one_rank host ${_exit} 2 "allowed are 2 to 256" ${_run_p2p_fullmesh} --local 1)
tcpx_add_run(run_p2p_fullmesh.usage_hosts host ${_exit} 2 "there is none at '/no/such/file'" ${_run_p2p_fullmesh} --hosts /no/such/file)
tcpx_add_run(run_p2p_fullmesh.usage_both host ${_exit} 2 "exclude each other" ${_run_p2p_fullmesh} --local 4 --hosts ${CMAKE_CURRENT_LIST_FILE})
tcpx_add_run(run_p2p_fullmesh.usage_options host ${_exit} 2 "behind --" ${_run_p2p_fullmesh} --size 1MiB)

add_test(NAME transfer.unpack_none COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/expect_exit.sh 1 "FAILED: TCPX_E_BAD_CONFIG: .*only test_tcpx_perf"
  $<TARGET_FILE:test_tcpx_transfer> loopback)
set_tests_properties(transfer.unpack_none PROPERTIES LABELS loopback TIMEOUT 60 ENVIRONMENT UCCL_TCPX_UNPACK_IMPL=none)
# A malformed variable is an error in every program, but not with --help.
foreach(program IN ITEMS test_tcpx_perf test_tcpx_transfer test_connection test_device_discovery)
  set(_role loopback)
  if(program STREQUAL "test_device_discovery")
    set(_role "")
  endif()
  foreach(variable IN ITEMS UCCL_TCPX_DEBUG UCCL_TCPX_LOG_LEVEL)
    add_test(NAME ${program}.bad_${variable} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/expect_exit.sh 1
      "FAILED: TCPX_E_BAD_CONFIG: .*${variable}" ${PROJECT_BINARY_DIR}/tests/${program} ${_role})
    add_test(NAME ${program}.help_with_bad_${variable} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/expect_exit.sh 0
      "Exit code:" ${PROJECT_BINARY_DIR}/tests/${program} --help)
    set_tests_properties(${program}.bad_${variable} ${program}.help_with_bad_${variable} PROPERTIES
      LABELS host TIMEOUT 60 ENVIRONMENT ${variable}=2)
  endforeach()
endforeach()
if(NOT TCPX_HAVE_CUDA AND NOT TCPX_SANITIZE)  # both take far more address space
  tcpx_add_transfer_test(out_of_memory ${CMAKE_CURRENT_SOURCE_DIR}/expect_exit.sh 1 "FAILED: TCPX_E_EXHAUSTED: \\(peer reported: \\)\\?allocate 629145600 bytes"
    sh -c "ulimit -v 1100000 && exec \"$0\" loopback --bytes 600MiB" $<TARGET_FILE:test_tcpx_transfer>)
endif()
if(NOT TCPX_HAVE_CUDA)
  tcpx_add_transfer_exit(kernel_needs_a_gpu 1 "FAILED: TCPX_E_UNSUPPORTED: make unpacker" loopback --unpack kernel)
endif()

# Two hosts as network namespaces, which need root.
# tcpx_add_netns_test(NAME COMMAND...)
function(tcpx_add_netns_test name)
  add_test(NAME netns.${name} COMMAND ${ARGN})
  set_tests_properties(netns.${name} PROPERTIES LABELS netns SKIP_RETURN_CODE 77 TIMEOUT 120)
endfunction()
set(_netns ${CMAKE_CURRENT_SOURCE_DIR}/netns)
tcpx_add_netns_test(two_clusters ${_netns}/two_clusters.sh)
tcpx_add_netns_test(nic_down ${_netns}/nic_down.sh ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf)
if(NOT TCPX_SANITIZE)  # it compares rates
  tcpx_add_netns_test(shares ${_netns}/shares.sh ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf)
  set_tests_properties(netns.shares PROPERTIES PROCESSORS 2 COST 30)  # beside one other, and it waits for its slow NICs most of the time
endif()
tcpx_add_netns_test(transfer ${_netns}/transfer.sh $<TARGET_FILE:test_tcpx_transfer>)
add_executable(netns_meet ${CMAKE_CURRENT_SOURCE_DIR}/netns/meet.cc)
target_link_libraries(netns_meet PRIVATE tcpx_endpoint)
tcpx_add_netns_test(families ${_netns}/families.sh $<TARGET_FILE:netns_meet>)
tcpx_add_netns_test(pods ${_netns}/pods.sh $<TARGET_FILE:netns_meet> ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf)
tcpx_add_netns_test(pairs ${_netns}/pairs.sh $<TARGET_FILE:netns_meet>)
tcpx_add_netns_test(one_subnet ${_netns}/one_subnet.sh $<TARGET_FILE:netns_meet>)
tcpx_add_netns_test(bridges ${_netns}/bridges.sh $<TARGET_FILE:test_tcpx_transfer>)
tcpx_add_netns_test(away ${_netns}/away.sh $<TARGET_FILE:test_tcpx_transfer>)
# Where there is no Python package it is skipped. It takes a minute, and longer where much else goes on.
tcpx_add_netns_test(matrix env BUILD=${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/scripts/network_matrix.sh --quick)
set_tests_properties(netns.matrix PROPERTIES TIMEOUT 300 COST 30)
tcpx_add_netns_test(fairness env BUILD=${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/scripts/network_matrix.sh --fairness --streams 1
                    --stream-seconds 0.3)
tcpx_add_run(netns.usage_no_command host ${_exit} 2 "which command" ${_netns}/cluster.sh)
tcpx_add_run(netns.usage_no_such_host host ${_exit} 2 "no host .c.:" ${_netns}/cluster.sh nic-down c 1)
tcpx_add_run(netns.usage_no_such_rail host ${_exit} 2 "no rail .5.:" ${_netns}/cluster.sh nic-up a 5)
tcpx_add_run(netns.usage_bad_id host ${_exit} 2 "TCPX_NETNS_ID" env TCPX_NETNS_ID=../x ${_netns}/cluster.sh up)
# One program, by the names that lead to it and by its words.
foreach(part IN ITEMS "mesh Started.once.per.rank" "plugin the.software.plugin.moves" "endpoint endpoints.of.two.processes" "loopback both.ends.on.this.machine")
  separate_arguments(part)
  list(GET part 0 word)
  list(GET part 1 says)
  tcpx_add_run(tcpx_perf.${word} host ${_exit} 0 "${says}" ${PROJECT_BINARY_DIR}/programs/tcpx_perf ${word} --help)
endforeach()
tcpx_add_run(tcpx_perf.ends loopback ${_exit} 0 "PASSED: all bytes" ${PROJECT_BINARY_DIR}/programs/tcpx_perf endpoint --quick --only bulk)
# tcpx_add_perf_test(NAME COMMAND...)
function(tcpx_add_perf_test name)
  add_test(NAME perf.${name} COMMAND ${ARGN})
  set_tests_properties(perf.${name} PROPERTIES LABELS loopback SKIP_RETURN_CODE 77 TIMEOUT 120)
endfunction()
# tcpx_add_perf_exit(NAME CODE PATTERN ARGUMENT...): a loopback run ends with CODE and prints PATTERN.
function(tcpx_add_perf_exit name code pattern)
  tcpx_add_perf_test(${name} ${_exit} ${code} ${pattern} ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf loopback ${ARGN})
endfunction()
if(NOT TCPX_HAVE_CUDA)
  tcpx_add_perf_test(kernel_needs_no_client
    ${_exit} 1 "FAILED: TCPX_E_UNSUPPORTED: make unpacker" ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf server 0 --port 0 --unpack kernel)
endif()
set(_row " 1048576  *3 .* 0  verified$")
tcpx_add_perf_exit(host_memory 0 ${_row} -b 1K -e 1M -f 32 -n 3 --memory host)
tcpx_add_perf_exit(cuda_memory 0 ${_row} -b 1K -e 1M -f 32 -n 3)
tcpx_add_perf_exit(odd_sizes 0 " 999999  *7 .* 0  verified$" -b 999999 -n 7 -w 2 --chunk 65537 --channels 3 --window 2)
tcpx_add_perf_exit(latency 0 ${_row} -b 8 -e 1M -f 131072 -n 3 --latency)
set_property(TEST perf.latency PROPERTY ENVIRONMENT UCCL_TCPX_NUM_CHANNELS=2)
tcpx_add_perf_exit(bidirectional 0 ${_row} -b 1M -n 3 --bidirectional --channels 2)
tcpx_add_perf_exit(duration 0 "one\\?s for 0.200 s of each size" -b 64K --duration 0.2)
tcpx_add_perf_exit(last_words 0 "^\\[PERF\\] Avg: [0-9.]* ms, BW: [0-9.]* GB/s" -b 1M -n 3)
tcpx_add_perf_exit(unpack_none 0 " 1048576 .* unverified$" -b 1M -n 3)
set_property(TEST perf.unpack_none PROPERTY ENVIRONMENT UCCL_TCPX_UNPACK_IMPL=none)
tcpx_add_perf_exit(size_of_environment 0 " 12345  *4 .* 0  verified$" -w 1)
set_property(TEST perf.size_of_environment PROPERTY ENVIRONMENT UCCL_TCPX_PERF_SIZE=12345 UCCL_TCPX_PERF_ITERS=4)
tcpx_add_perf_exit(bad_environment 1 "FAILED: TCPX_E_BAD_CONFIG: .*UCCL_TCPX_PERF_SIZE" -n 1)
set_property(TEST perf.bad_environment PROPERTY ENVIRONMENT UCCL_TCPX_PERF_SIZE=64M)
tcpx_add_perf_exit(no_room 1 "FAILED: TCPX_E_EXHAUSTED: .*1099511627776 bytes.* has room for" -b 1T --memory host)
tcpx_add_perf_exit(no_such_gpu 77 "SKIPPED: GPU 1000 asked for" 1000)
tcpx_add_perf_exit(no_such_plugin 1 "FAILED: TCPX_E_NOT_FOUND" -b 1M)
set_property(TEST perf.no_such_plugin PROPERTY ENVIRONMENT UCCL_TCPX_PLUGIN_PATH=/no/such/plugin.so)
tcpx_add_perf_exit(no_such_report 1 "FAILED: TCPX_E_NOT_FOUND: .*none.json" --compare none.json)
tcpx_add_perf_exit(usage_zero 2 "--min-bytes" -b 0)
tcpx_add_perf_exit(usage_no_iterations 2 "--iters" -n 0)
tcpx_add_perf_exit(usage_sizes_fall 2 "larger than -e" -b 4M -e 1M)
tcpx_add_perf_exit(usage_chunk 2 "--chunk" --chunk 8M)
tcpx_add_perf_exit(usage_channels 2 "--channels" --channels 17)
tcpx_add_perf_exit(usage_plot 2 "--plot: .*scripts/plot.py run.json" --plot run.svg --json run.json)
tcpx_add_perf_exit(usage_modes 2 "excludes" --latency --bidirectional)
tcpx_add_perf_test(two_processes ${CMAKE_CURRENT_SOURCE_DIR}/run_two_processes.sh ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf 0 -b 1M -e 4M -n 3)
set(_perf ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf)
# tcpx_add_perf_request(NAME PATTERN [ARGUMENT of the server...] -- ARGUMENT of the client...): both pass, and one of them says PATTERN.
function(tcpx_add_perf_request name pattern)
  tcpx_add_perf_test(request_${name} ${_exit} 0 "${pattern}" ${CMAKE_CURRENT_SOURCE_DIR}/run_two_processes.sh ${_perf} 0 ${ARGN})
endfunction()
tcpx_add_perf_request(alone " 1048576  *3 .* 0  verified$" -- -b 1K -e 1M -f 1024 -n 3 -w 1)
tcpx_add_perf_request(latency "^# .*there and back" -- -b 8 -n 3 --latency)
tcpx_add_perf_request(bidirectional "^# .*both ways" -- -b 1M -n 3 --bidirectional --channels 2 --window 7)
tcpx_add_perf_request(duration "timed ones for 0.200 s" -- -b 64K --duration 0.2)
tcpx_add_perf_request(memory "^# server: .* host memory, window 9$" -- -b 64K -n 3 --memory host --window 9)
tcpx_add_perf_request(chunks "chunks of 65537 bytes, tag" -- -b 1M -n 3 --chunk 65537)
foreach(layer IN ITEMS tcp plugin endpoint)
  tcpx_add_perf_request(layer_${layer} "^# .*layer ${layer}: " -- -b 1M -n 3 --layer ${layer})
endforeach()
tcpx_add_perf_test(request_no_room ${_exit} 0 "EXHAUSTED: .*1099511627776 bytes.* has room for"
  ${CMAKE_CURRENT_SOURCE_DIR}/run_two_processes.sh ${_perf} 1 -- -b 1T --memory host)
tcpx_add_perf_request(sizes_differ "^# the client decides: --max-bytes 2097152 (here 1048576)$" -b 1M -e 1M -- -b 1M -e 2M)
tcpx_add_perf_request(modes_differ "^# the client decides: --iters 4 (here 3), --latency 0 (here 1)$" -n 3 --latency -- -b 1M -n 4)
tcpx_add_perf_request(channels_differ "^# the client decides: --channels 1 (here 2)$" -b 1M --channels 2 -- -b 1M --channels 1)
tcpx_add_perf_request(layers_differ "^# the client decides: --layer plugin (here tcp)$" --layer tcp -- --layer plugin -b 1M)
tcpx_add_perf_test(interrupted ${CMAKE_CURRENT_SOURCE_DIR}/interrupt_perf.sh ${_perf} interrupt)
tcpx_add_perf_test(killed ${CMAKE_CURRENT_SOURCE_DIR}/interrupt_perf.sh ${_perf} kill)
tcpx_add_perf_test(server_hangs ${CMAKE_CURRENT_SOURCE_DIR}/interrupt_perf.sh ${_perf} hang)
set_property(TEST perf.server_hangs PROPERTY ENVIRONMENT UCCL_TCPX_TIMEOUT_MS=1000)
tcpx_add_perf_test(files ${CMAKE_CURRENT_SOURCE_DIR}/perf_files.sh ${_perf})

# Use from plain C: C99, our header, libtcpx.so, nothing else of ours.
add_executable(c_api_c99 c_api_c99.c)
set_target_properties(c_api_c99 PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
target_compile_options(c_api_c99 PRIVATE -Wall -Wextra -pedantic -Werror)
target_link_libraries(c_api_c99 PRIVATE tcpx)
if(TCPX_SANITIZE)
  target_compile_options(c_api_c99 PRIVATE -fsanitize=${TCPX_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(c_api_c99 PRIVATE -fsanitize=${TCPX_SANITIZE})
endif()
add_dependencies(c_api_c99 tcpx_soft_plugin)
add_test(NAME c_api_c99 COMMAND c_api_c99 embedded)
add_test(NAME c_api_c99_library COMMAND c_api_c99 $<TARGET_FILE:tcpx_soft_plugin>)
set_tests_properties(c_api_c99 c_api_c99_library PROPERTIES LABELS loopback TIMEOUT 60
  ENVIRONMENT NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo)
set_property(TEST c_api_c99_library APPEND PROPERTY LABELS plugin)

# tcpx_devmemd
tcpx_add_run(devmemd.help host ${_exit} 0 "UCCL_TCPX_DEVMEM_SOCKET, else /run/tcpx-devmem/daemon" $<TARGET_FILE:tcpx_devmemd> --help)
tcpx_add_run(devmemd.usage host ${_exit} 2 "--no-such" $<TARGET_FILE:tcpx_devmemd> --no-such)
tcpx_add_run(devmemd.no_group host ${_exit} 1 "there is no group nobodys" $<TARGET_FILE:tcpx_devmemd> --group nobodys)
tcpx_add_run(devmemd.no_path host ${_exit} 1 "devmemd is not a path" $<TARGET_FILE:tcpx_devmemd> --socket devmemd)
find_program(TCPX_PYTHON3 python3)
if(TCPX_PYTHON3)
  tcpx_add_run(devmemd.examples host ${TCPX_PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/devmem/check_examples.py $<TARGET_FILE:tcpx_devmemd>
    ${PROJECT_SOURCE_DIR})
endif()
# tcpx_doctor
tcpx_add_run(doctor.help host ${_exit} 0 "Exit code: 0 all is well" $<TARGET_FILE:tcpx_doctor> --help)
tcpx_add_run(doctor.usage host ${_exit} 64 "--only" $<TARGET_FILE:tcpx_doctor> --only nobody)
tcpx_add_run(doctor.malformed host env UCCL_TCPX_CHUNK_BYTES=512K
  ${_exit} 2 "\"verdict\": \"fail\"" $<TARGET_FILE:tcpx_doctor> --only environment --json)
tcpx_add_run(doctor.fix_env host env UCCL_TCPX_CHUNK_BYTES=512K
  ${_exit} 0 "unset UCCL_TCPX_CHUNK_BYTES" $<TARGET_FILE:tcpx_doctor> --fix-env)

# The layers below and above the pipeline, measured in the same way.
foreach(layer IN ITEMS tcp plugin endpoint)
  tcpx_add_perf_exit(layer_${layer} 0 " 1048576  *7 .* 0  verified$" --layer ${layer} -b 1K -e 1M -f 32 -n 7)
  tcpx_add_perf_exit(layer_${layer}_says_so 0 "^# .*layer ${layer}: " --layer ${layer} -b 1 -n 100)
  tcpx_add_perf_exit(layer_${layer}_latency 0 " 8  *200 .* 0  verified$" --layer ${layer} --latency -b 8 -n 200)
  tcpx_add_perf_test(layer_${layer}_two_processes ${CMAKE_CURRENT_SOURCE_DIR}/run_two_processes.sh ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf 0
    --layer ${layer} -b 300001 -e 3M -n 3)
  tcpx_add_perf_exit(layer_${layer}_one_direction 2 "--bidirectional: not for --layer ${layer}" --layer ${layer} --bidirectional)
endforeach()
tcpx_add_perf_exit(layer_tcp_streams 0 "layer tcp: 3 streams, calls of 65536 bytes" --layer tcp --channels 3 --chunk 64K -b 999999 -n 5)
tcpx_add_perf_exit(layer_endpoint_over_tcp 0 "PASSED: every byte" --layer endpoint --local off -b 1M -n 5)
tcpx_add_perf_exit(layer_pipeline_is_not_local 2 "--local: not for --layer pipeline" --local off)
tcpx_add_perf_exit(layer_unknown 2 "--layer" --layer sockets)
tcpx_add_netns_test(layers ${_netns}/layers.sh ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf)

# Errors that help
tcpx_add_perf_exit(help_line 1 "^help: .* See docs/troubleshooting.md#TCPX_E_NOT_FOUND$" -b 1M)
set_property(TEST perf.help_line PROPERTY ENVIRONMENT UCCL_TCPX_PLUGIN_PATH=/no/such/plugin.so)
# The installed tree, created by the first step.
# tcpx_add_install_step(NAME PROPERTY...)
function(tcpx_add_install_step name)
  add_test(NAME install.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/check.sh ${name} ${CMAKE_CURRENT_BINARY_DIR}/install)
  set(flags)
  if(TCPX_SANITIZE)
    set(flags "-fsanitize=${TCPX_SANITIZE}")
  endif()
  set_tests_properties(install.${name} PROPERTIES LABELS host SKIP_RETURN_CODE 77 TIMEOUT 180
    ENVIRONMENT "BUILD=${PROJECT_BINARY_DIR};SOURCE=${PROJECT_SOURCE_DIR};CXX=${CMAKE_CXX_COMPILER};CC=${CMAKE_C_COMPILER};FLAGS=${flags};NM=${TCPX_NM};CUDA=${TCPX_HAVE_CUDA}"
    ${ARGN})
endfunction()
tcpx_add_install_step(prefix FIXTURES_SETUP tcpx_installed)
foreach(step IN ITEMS files hardening contents tools headers symbols cmake pkg_config uninstall)
  tcpx_add_install_step(${step} FIXTURES_REQUIRED tcpx_installed)
endforeach()

# The mutations still apply to the sources. Detection by tests is checked by hand: scripts/mutate.sh.
set(_mutate ${PROJECT_SOURCE_DIR}/scripts/mutate.sh)
tcpx_add_run(mutations.apply host ${_mutate} --check)
tcpx_add_run(mutations.a_stale_one_is_told host
  ${_exit} 1 "DOES NOT APPLY  stale: a text that is not there" ${_mutate} --check ${CMAKE_CURRENT_SOURCE_DIR}/support/stale.txt)

tcpx_add_run(doctor.plugin_that_exits host env UCCL_TCPX_PLUGIN_PATH=${TCPX_FAKE_PLUGIN_DIR}/bad_exit.so
  ${_exit} 2 "called exit(1)" $<TARGET_FILE:tcpx_doctor> --only plugin)
tcpx_add_run(doctor.services_not_needed host env UCCL_TCPX_PLUGIN_PATH=embedded
  ${_exit} 0 "Only GPUDirect-TCPX needs RxDM" $<TARGET_FILE:tcpx_doctor> --only services --verbose)
tcpx_add_run(doctor.quiet host env UCCL_TCPX_PLUGIN_PATH=embedded
  ${_exit} 0 "^Data goes .*nothing to fix (looked at: services)" $<TARGET_FILE:tcpx_doctor> --only services)
find_program(TCPX_UNSHARE unshare)
if(TCPX_UNSHARE)
  tcpx_add_run(doctor.no_network host sh -c "unshare -rn true 2>/dev/null || exit 77 && exec \"$@\"" doctor ${_exit} 2
    "^Data goes nowhere.* ip link set lo up" ${TCPX_UNSHARE} -rn $<TARGET_FILE:tcpx_doctor> --only nics,network)
endif()
tcpx_add_netns_test(doctor ${_netns}/doctor.sh $<TARGET_FILE:tcpx_doctor>)
# Slowness of a busy machine is only a warning.
set(_selftest sh -c "\"$@\" || [ $? -eq 1 ]" doctor $<TARGET_FILE:tcpx_doctor> --only selftest)
tcpx_add_run(doctor.selftest loopback ${_exit} 0 "ok *transfer *4 MiB, [2-6] times, every byte compared"
  ${_selftest} --selftest-bytes 4194304)
tcpx_add_run(doctor.selftest_plugin loopback ${_exit} 0 "path *plugin .* inline up to [0-9]* bytes$"
  ${_selftest} --selftest-bytes 4194304)
tcpx_add_run(doctor.selftest_one_host loopback ${_exit} 0 "ok *one_host .* by shared memory in place of TCP: same host, "
  ${_selftest} --selftest-bytes 4194304)
tcpx_add_run(doctor.selftest_library loopback env UCCL_TCPX_PLUGIN_PATH=$<TARGET_FILE:tcpx_soft_plugin>
  ${_exit} 0 "ok *path *plugin .*libnccl-net-tcpx-soft.so" ${_selftest} --selftest-bytes 1048577)
tcpx_add_run(doctor.selftest_fails loopback env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==nosuch
  ${_exit} 2 "fail *transfer *TCPX_E_" $<TARGET_FILE:tcpx_doctor> --only selftest)
tcpx_add_run(doctor.selftest_vendor host env UCCL_TCPX_PLUGIN_PATH=/no/such/plugin.so
  ${_exit} 0 "n/a *transfer *this machine is for GPUDirect-TCPX" $<TARGET_FILE:tcpx_doctor> --only selftest --verbose)
tcpx_add_run(doctor.selftest_interrupted loopback ${CMAKE_CURRENT_SOURCE_DIR}/interrupt_doctor.sh $<TARGET_FILE:tcpx_doctor>)
tcpx_add_run(doctor.peer_malformed host ${_exit} 64 "--peer" $<TARGET_FILE:tcpx_doctor> --peer 10.0.0.300)
# Output quoted by the original documents. GPU 0 is the default: naming it changes nothing.
tcpx_add_transfer_exit(gpu_0_is_the_default 0 "SUCCESS: Payload matches expected string" loopback --gpu 0)
tcpx_add_perf_exit(gpu_0_is_the_default 0 "PASSED: every byte" 0 -b 1M -n 3)
# Every variable of docs/env.md is checked, even one that a program does not read.
foreach(variable IN ITEMS UCCL_TCPX_UNPACK_IMPL UCCL_TCPX_PERF_SIZE NCCL_GPUDIRECTTCPX_SOCKET_FAMILY)
  tcpx_add_transfer_exit(bad_${variable} 1 "FAILED: TCPX_E_BAD_CONFIG: .*${variable}=.banana" loopback)
  set_property(TEST transfer.bad_${variable} PROPERTY ENVIRONMENT ${variable}=banana)
endforeach()
tcpx_add_run(device_discovery.bad_variable host env UCCL_TCPX_CHUNK_BYTES=banana
  ${_exit} 1 "FAILED: TCPX_E_BAD_CONFIG: .*UCCL_TCPX_CHUNK_BYTES" $<TARGET_FILE:test_device_discovery>)
tcpx_add_transfer_exit(chunk_of_environment 0 "1048576 bytes in 256 chunks" loopback --bytes 1M)
set_property(TEST transfer.chunk_of_environment PROPERTY ENVIRONMENT UCCL_TCPX_CHUNK_BYTES=4096)
tcpx_add_transfer_exit(one_channel 0 "one channel, whatever UCCL_TCPX_NUM_CHANNELS" loopback)
set_property(TEST transfer.one_channel PROPERTY ENVIRONMENT UCCL_TCPX_NUM_CHANNELS=4)
tcpx_add_transfer_exit(tag 0 "receiving 23 bytes, tag=42" loopback)
tcpx_add_perf_exit(tag 0 "tag=99 and up" -b 1M -n 1 -w 0)
# Chunks with which GPUDirect-TCPX loses pages, over a fake of it: both programs refuse them before anything is made.
set(_long_chunks UCCL_TCPX_PLUGIN_PATH=${TCPX_FAKE_PLUGIN_DIR}/vendor.so NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo UCCL_TCPX_CHUNK_BYTES=4194304)
tcpx_add_transfer_exit(long_chunks 1 "the plugin loses pages of its pool with more than 524288" loopback --bytes 4M)
tcpx_add_perf_exit(long_chunks 1 "the plugin loses pages of its pool with more than 524288" -b 4M -n 1 -w 0 --layer plugin)
set_property(TEST transfer.long_chunks perf.long_chunks PROPERTY ENVIRONMENT ${_long_chunks})
# Output of UCCL_TCPX_DEBUG=1, by the names that readers look for.
set(_debug_lines
  "debug_load=: net->init rc=0"
  "debug_devices=net->devices rc=0 ndev=[1-9]"
  "debug_request=request_ptr=0x[0-9a-f]* active=[01] idx=0 cnt_cache=[0-9]"
  "debug_handle=Device handle: meta=0x[0-9a-f]* bounce_buf=0x[0-9a-f]* head="
  "debug_descriptor=descriptor.0. src_off=[0-9]* len=23 dst_off=0"
  "debug_probe=Bounce probe (23B) from src_off=[0-9]*: 48 65 .* 74 21 |Hello from TCPX client!|"
  "debug_tag=recv posted: chunk_idx=0 tag=42 size=23 offset=0"
  "debug_validation=Data validation PASSED"
  "debug_all_bytes=All bytes: 23"
  "debug_payload=payload_bytes=23, buffer ptr=0x[0-9a-f]* bytes=4096")
foreach(line IN LISTS _debug_lines)
  string(FIND "${line}" "=" at)
  string(SUBSTRING "${line}" 0 ${at} name)
  math(EXPR at "${at} + 1")
  string(SUBSTRING "${line}" ${at} -1 pattern)
  tcpx_add_transfer_exit(${name} 0 "${pattern}" loopback)
  set_property(TEST transfer.${name} PROPERTY ENVIRONMENT UCCL_TCPX_DEBUG=1)
endforeach()
tcpx_add_perf_exit(debug_tag 0 "posted: chunk_idx=1 tag=100 size=1048576 offset=1048576" -b 2M -n 1 -w 0)
set_property(TEST perf.debug_tag PROPERTY ENVIRONMENT UCCL_TCPX_DEBUG=1)
foreach(case IN ITEMS interrupted_while_dpkg_runs interrupted_while_fetching no_name_server no_route not_in_the_lists unknown)
  tcpx_add_run(install_deps.${case} host ${CMAKE_CURRENT_SOURCE_DIR}/install_deps.sh ${case})
endforeach()
find_program(TCPX_MAKE make)
if(TCPX_MAKE)
  tcpx_add_run(make.any_test host ${_exit} 0 "--target test_rx_cmsg_parser" ${TCPX_MAKE} -C ${PROJECT_SOURCE_DIR} -n test_rx_cmsg_parser)
  tcpx_add_run(make.simple host ${_exit} 0 "--target test_connection"
    ${TCPX_MAKE} -C ${PROJECT_SOURCE_DIR} -n -f Makefile.simple test_connection)
  foreach(case IN ITEMS read_only moved same no_clang)
    tcpx_add_run(make.${case} host ${CMAKE_CURRENT_SOURCE_DIR}/make_place.sh ${TCPX_MAKE} ${case})
  endforeach()
endif()
# A profile of the pipeline, for a listener that stands in for Nsight Systems.
if(TCPX_NVTX_INCLUDE_DIR)
  add_library(nvtx_listener MODULE support/nvtx_listener.cc)
  target_link_libraries(nvtx_listener PRIVATE tcpx_build_flags)
  foreach(range IN ITEMS "send chunk" "recv chunk" "submit unpack")
    string(REPLACE " " "_" name ${range})
    tcpx_add_transfer_exit(nvtx_${name} 0 "nvtx: range .${range}." loopback --bytes 4M)
    set_property(TEST transfer.nvtx_${name} PROPERTY ENVIRONMENT NVTX_INJECTION64_PATH=$<TARGET_FILE:nvtx_listener>)
  endforeach()
  tcpx_add_transfer_exit(nvtx_ends 0 "nvtx: \\([0-9]*\\) ranges begun, \\1 ended" loopback --bytes 4M --iterations 3)
  set_property(TEST transfer.nvtx_ends PROPERTY ENVIRONMENT NVTX_INJECTION64_PATH=$<TARGET_FILE:nvtx_listener>)
endif()
# The last line of a failure names its cause.
set(_no_such_interface "^FAILED: .*none is up and matches NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=.nosuch.. there are: .*lo 127")
tcpx_add_run(cause.interface host env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=nosuch
  ${_exit} 1 ${_no_such_interface} $<TARGET_FILE:test_device_discovery>)
tcpx_add_run(cause.interface_of_library plugin env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=nosuch UCCL_TCPX_PLUGIN_PATH=$<TARGET_FILE:tcpx_soft_plugin>
  ${_exit} 1 ${_no_such_interface} $<TARGET_FILE:test_device_discovery>)
tcpx_add_run(cause.interface_has_its_help host env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=nosuch
  ${_exit} 1 "^help: .*docs/troubleshooting.md#TCPX_E_BAD_CONFIG$" $<TARGET_FILE:test_tcpx_transfer> server)
tcpx_add_run(cause.control_interface host env NCCL_GPUDIRECTTCPX_CTRL_DEV=nosuch
  ${_exit} 1 "^FAILED: .*NCCL_GPUDIRECTTCPX_CTRL_DEV=.nosuch. is not the name" $<TARGET_FILE:test_device_discovery>)
tcpx_add_run(cause.example host env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=nosuch
  ${_exit} 1 ${_no_such_interface} $<TARGET_FILE:first_transfer>)
tcpx_add_run(cause.fix_env host env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=nosuch ${_exit} 0 "^PASSED: [1-9]"
  sh -c "eval \"$(\"$0\" --fix-env)\" && exec \"$1\"" $<TARGET_FILE:tcpx_doctor> $<TARGET_FILE:test_device_discovery>)
# Handling of the command line and of Ctrl-C by all programs.
tcpx_add_transfer_exit(usage_slip 2 "did you mean \"client\"" clinet 1.2.3.4)
tcpx_add_run(doctor.usage_slip host ${_exit} 64 "did you mean \"--peer\"" $<TARGET_FILE:tcpx_doctor> --peeer 10.0.0.1)
set(_interrupt ${CMAKE_CURRENT_SOURCE_DIR}/interrupt.sh)
set(_waits "waiting for a client")
tcpx_add_run(interrupt.transfer_server loopback ${_interrupt} INT ${_waits} $<TARGET_FILE:test_tcpx_transfer> server --port 0)
tcpx_add_run(interrupt.transfer_term loopback ${_interrupt} TERM ${_waits} $<TARGET_FILE:test_tcpx_transfer> server --port 0)
tcpx_add_run(interrupt.transfer_client loopback ${_interrupt} INT "connecting to" $<TARGET_FILE:test_tcpx_transfer> client 127.0.0.1 --port 1)
tcpx_add_run(interrupt.transfer loopback ${_interrupt} INT "9. receiving" $<TARGET_FILE:test_tcpx_transfer> loopback --bytes 4M --iterations 100000)
tcpx_add_run(interrupt.connection_server loopback ${_interrupt} INT ${_waits} $<TARGET_FILE:test_connection> server --port 0)
tcpx_add_run(interrupt.connection_client loopback ${_interrupt} INT "connecting to" $<TARGET_FILE:test_connection> client 127.0.0.1 --port 1)
tcpx_add_run(interrupt.perf_server loopback ${_interrupt} TERM ${_waits} ${PROJECT_BINARY_DIR}/tests/test_tcpx_perf server --port 0)
tcpx_add_run(interrupt.doctor loopback ${_interrupt} INT "^network" $<TARGET_FILE:tcpx_doctor> --only network,selftest
  --selftest-bytes 1073741824)

# The benchmarks: quick runs that say whether they work. Their numbers mean something only on a machine of one's own.
if(TCPX_HAVE_CUDA)
  tcpx_add_run(bench_unpack.help host ${_exit} 0 "Exit code: 0 done" $<TARGET_FILE:bench_unpack> --help)
  tcpx_add_run(bench_unpack.usage host ${_exit} 2 "--bytes" $<TARGET_FILE:bench_unpack> --bytes 12x)
endif()
tcpx_add_run(bench_endpoint.help host ${_exit} 0 "Exit code: 0 done" ${PROJECT_BINARY_DIR}/bench/bench_endpoint --help)
tcpx_add_run(bench_endpoint.usage host ${_exit} 2 "--only" ${PROJECT_BINARY_DIR}/bench/bench_endpoint --only speed)
tcpx_add_run(bench_endpoint.quick loopback ${_exit} 0 "PASSED: all bytes" ${PROJECT_BINARY_DIR}/bench/bench_endpoint --quick)
tcpx_add_run(interrupt.bench_endpoint loopback ${CMAKE_CURRENT_SOURCE_DIR}/interrupt.sh INT "Bulk, pipeline, 1 MiB" ${PROJECT_BINARY_DIR}/bench/bench_endpoint --nccl off)
tcpx_add_run(bench_soft_plugin.help host ${_exit} 0 "Exit code: 0 done" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --help)
tcpx_add_run(bench_soft_plugin.usage host ${_exit} 2 "--sizes" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --sizes 12x)
tcpx_add_run(bench_soft_plugin.usage_chart host ${_exit} 2 "--chart: .*scripts/plot.py run.json" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --chart soft.svg)
tcpx_add_run(bench_soft_plugin.quick_host loopback ${_exit} 0 "PASSED: all bytes" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --quick --memory host)
tcpx_add_run(bench_soft_plugin.quick_long loopback ${_exit} 0 "PASSED: all bytes" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --quick --long
  --memory host,gpu --unpack host)
tcpx_add_run(bench_soft_plugin.quick_gpu loopback ${_exit} 0 "PASSED: all bytes" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --quick --memory gpu
  --plugin $<TARGET_FILE:tcpx_soft_plugin>)
tcpx_add_run(interrupt.bench_soft_plugin loopback ${CMAKE_CURRENT_SOURCE_DIR}/interrupt.sh INT "raw TCP" ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin
  --memory host --nccl off)
tcpx_add_run(bench_soft_plugin.no_such_plugin host ${_exit} 1 "FAILED: TCPX_E_NOT_FOUND: .*ing end: load net plugin"
  ${PROJECT_BINARY_DIR}/bench/bench_soft_plugin --quick --plugin /no/such/plugin.so)
