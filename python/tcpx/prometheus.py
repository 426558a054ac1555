"""Metrics of endpoints in the registry of `prometheus_client`, beside the application's own (docs/metrics.md)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as _Collector

from .endpoint import Endpoint
from .errors import Cancelled

__all__ = ["Collector"]


class Collector(_Collector):
    """Collects the metrics of endpoints when it is scraped: ``prometheus_client.REGISTRY.register(Collector(ep))``.

    Several endpoints of a process share one collector, and get a label ``endpoint`` with the name that each is given here:
    ``Collector(prefill=a, decode=b)``. It does not keep them; one that is closed has nothing to say.
    """

    def __init__(self, endpoint: Endpoint | None = None, /, **named: Endpoint) -> None:
        self._endpoints = [({"endpoint": name}, weakref.ref(one)) for name, one in named.items()]
        if endpoint is not None:
            self._endpoints.append(({}, weakref.ref(endpoint)))

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known when there is something to tell."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now; those of one name together, as the format wants them."""
        families: dict[str, Metric] = {}
        for labels, reference in self._endpoints:
            endpoint = reference()
            try:
                text = "" if endpoint is None else endpoint.metrics()
            except Cancelled:
                continue
            for family in text_string_to_metric_families(text):
                samples = [sample._replace(labels={**sample.labels, **labels}) for sample in family.samples]
                family.samples = []
                families.setdefault(family.name, family).samples.extend(samples)
        return families.values()
