"""Metrics as a scraper sees them."""

from __future__ import annotations

import numpy as np
import pytest

import tcpx
from conftest import Pair

prometheus_client = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")


def test_the_text_has_what_moved(pair: Pair) -> None:
    pair.there.write(np.ones(1 << 20, np.uint8), pair.far.advertise(np.zeros(1 << 20, np.uint8)))
    samples = {
        sample.name: sample.value
        for family in parser.text_string_to_metric_families(pair.near.metrics())
        for sample in family.samples
    }
    assert samples["tcpx_sent_bytes_total"] == 1 << 20 and samples["tcpx_operations_done_total"] == 1


def test_collectors_of_two_endpoints(pair: Pair) -> None:
    from tcpx.prometheus import Collector

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(near=pair.near, far=pair.far))
    pair.there.write(np.ones(100, np.uint8), pair.far.advertise(np.zeros(100, np.uint8)))
    labels = {"gpu": "0", "endpoint": "near"}
    assert registry.get_sample_value("tcpx_sent_bytes_total", labels) == 100
    assert registry.get_sample_value("tcpx_received_bytes_total", {**labels, "endpoint": "far"}) == 100
    assert registry.get_sample_value("tcpx_operation_latency_seconds_count", labels) == 1
    text = prometheus_client.generate_latest(registry).decode()
    assert text.count("# TYPE tcpx_sent_bytes_total ") == 1 and text.count("\ntcpx_sent_bytes_total{") == 2
    pair.near.close()
    assert registry.get_sample_value("tcpx_sent_bytes_total", labels) is None
    with pytest.raises(tcpx.Cancelled):
        pair.near.metrics()
