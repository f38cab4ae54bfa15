"""What a gateway counts, for Prometheus."""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Of one gateway; names of clients are the only words that are no constants."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self.requests = Counter("fedroute_requests", "Requests, by path and status", ["path", "status"], registry=r)
        self.seconds = Histogram("fedroute_request_seconds", "Time of a request", ["path"], buckets=SECONDS, registry=r)
        self.answers = Counter("fedroute_answers", "Queries, by who answered", ["client"], registry=r)
        self.fallbacks = Counter(
            "fedroute_fallbacks", "Answers by another client than should be", ["client"], registry=r
        )
        self.abstained = Counter("fedroute_abstained", "Queries unlike any client's rows", registry=r)
        self.passes = Histogram("fedroute_pass_queries", "Queries decided in one pass", buckets=SIZES, registry=r)
        self.here = Gauge("fedroute_client_here", "Whether a client can be asked", ["client"], registry=r)
        self.working = Gauge("fedroute_requests_working", "Requests that are worked on or wait", registry=r)
        self.audit = Gauge("fedroute_audit_waiting", "Lines of the audit that are not written yet", registry=r)

    def answered(self, rows: Iterable[dict[str, Any]]) -> None:
        """Counts what was answered."""
        for row in rows:
            if row.get("abstained"):
                self.abstained.inc()
            elif "answered_by" in row:
                self.answers.labels(row["answered_by"] or "all").inc()
                if row.get("fallback"):
                    self.fallbacks.labels(row["client"]).inc()

    def text(self, clients: Callable[[], list[dict[str, Any]]], waiting: int) -> bytes:
        """In Prometheus' own format."""
        self.audit.set(waiting)
        for c in clients():
            self.here.labels(c["client"]).set(c["here"])
        return generate_latest(self.registry)
