"""What a server is doing, as Prometheus reads it: GET /metrics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class Metrics:
    """In a registry of its own: several applications may be in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter(
            "elmo_requests", "Requests by path and status.", ["path", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "elmo_request_seconds", "From a request's arrival to its answer.", buckets=SECONDS, registry=registry
        )
        self.queue_seconds = Histogram(
            "elmo_queue_seconds",
            "From a request's arrival in the queue to the first batch with a part of it.",
            buckets=SECONDS,
            registry=registry,
        )
        self.compute_seconds = Histogram(
            "elmo_compute_seconds", "Computing a batch or a call.", buckets=SECONDS, registry=registry
        )
        self.encode_seconds = Histogram(
            "elmo_encode_seconds", "Vectors to the bytes of an answer.", buckets=SECONDS, registry=registry
        )
        self.batch_tokens = Histogram(
            "elmo_batch_tokens", "Tokens of a batch, boundaries counted.", buckets=TOKENS, registry=registry
        )
        self.batch_sentences = Histogram(
            "elmo_batch_sentences", "Sentences of a batch.", buckets=TOKENS, registry=registry
        )
        self.tokens = Counter("elmo_tokens", "Tokens computed, boundaries counted.", registry=registry)
        self.truncated = Counter("elmo_truncated_inputs", "Inputs that were cut short.", registry=registry)
        self.gone = Counter("elmo_gone", "Requests whose client had left before the answer.", registry=registry)

    def watch_queue(self, tokens: Callable[[], int], requests: Callable[[], int]) -> None:
        for name, what, function in (
            ("elmo_queue_tokens", "Tokens that wait or are computed.", tokens),
            ("elmo_queue_requests", "Requests that wait.", requests),
        ):
            Gauge(name, what, registry=self.registry).set_function(function)

    def page(self) -> bytes:
        return generate_latest(self.registry)
