"""The parts of `tcpx.uccl`."""
