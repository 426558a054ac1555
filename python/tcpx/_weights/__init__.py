"""The parts of `tcpx.weights`."""
