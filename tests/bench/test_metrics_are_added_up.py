"""What the programs counted is read from their pages of metrics."""

from __future__ import annotations

from bench.measurement import metrics_page

PAGE = """\
# TYPE requests_total counter
requests_total{code="201",resource="pods",subresource="binding"} 40
requests_total{code="409",resource="pods",subresource="binding"} 2
requests_total{code="200",resource="pods",subresource=""} 7
requests_total_of_others{resource="pods"} 1000
up 1
"""


def test_series_with_these_labels_are_added() -> None:
    """Labels that are not named may be anything, and similar names are others."""
    binding = {"resource": "pods", "subresource": "binding"}
    assert metrics_page.total(PAGE, "requests_total", **binding) == 42
    assert metrics_page.total(PAGE, "requests_total", code="409") == 2
    assert metrics_page.total(PAGE, "requests_total") == 49


def test_a_series_without_labels_is_read() -> None:
    """Its value stands beside its name."""
    assert metrics_page.total(PAGE, "up") == 1


def test_what_was_never_counted_is_zero() -> None:
    """Programs write no series before the first time."""
    assert metrics_page.total(PAGE, "requests_total", code="500") == 0
