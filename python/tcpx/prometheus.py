"""Metrics of endpoints in the registry of `prometheus_client`, beside the application's own (docs/metrics.md)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as _Collector

from .endpoint import Endpoint
from .errors import Cancelled

__all__ = ["Collector"]


class Collector(_Collector):
    """Collects the metrics of an endpoint when it is scraped: ``prometheus_client.REGISTRY.register(Collector(ep))``.

    labels: added to every sample; what tells several endpoints of a process apart. It does not keep the endpoint, and has nothing
    to say once that is closed.
    """

    def __init__(self, endpoint: Endpoint, labels: dict[str, str] | None = None) -> None:
        self._endpoint = weakref.ref(endpoint)
        self._labels = dict(labels or {})

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known when there is something to tell."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        endpoint = self._endpoint()
        if endpoint is None:
            return
        try:
            text = endpoint.metrics()
        except Cancelled:
            return
        for family in text_string_to_metric_families(text):
            family.samples = [sample._replace(labels={**sample.labels, **self._labels}) for sample in family.samples]
            yield family
