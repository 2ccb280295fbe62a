"""The dashboard and the files beside it name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tidewheel.telemetry.samples import CATALOGUE

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "examples/grafana"

_ENDS = ("_bucket", "_sum", "_count")


def existing(name: str) -> bool:
    """Whether a metric has such a series."""
    for end in _ENDS:
        metric = CATALOGUE.get(name.removesuffix(end))
        if name.endswith(end) and metric is not None and metric.kind == "histogram":
            return True
    metric = CATALOGUE.get(name)
    return metric is not None and metric.kind != "histogram"


def named(text: str) -> set[str]:
    return set(re.findall(r"\btidewheel_[a-z_]+", text))


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GRAFANA / "tidewheel.json").read_text("utf-8"))
    return loaded


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    """Also by their labels, and for every metric there is."""
    asked = expressions()
    found = set().union(*map(named, asked))
    assert found
    assert {name for name in found if not existing(name)} == set()
    labels = {label for metric in CATALOGUE.values() for label in metric.labels} | {"le"}
    for expression in asked:
        by = re.findall(r"by \(([^)]*)\)", expression)
        assert {label.strip() for one in by for label in one.split(",")} <= labels, expression
        assert set(re.findall(r'(\w+)=~?"', expression)) <= labels, expression
    shown = {re.sub("_(bucket|sum|count)$", "", name) if name not in CATALOGUE else name for name in found}
    assert shown == set(CATALOGUE)


def test_the_dashboard_can_be_imported() -> None:
    """Panels have ids and places of their own, and ask the data source that is chosen."""
    loaded = dashboard()
    assert (loaded["title"], loaded["uid"]) == ("Tidewheel", "tidewheel")
    panels = loaded["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    variables = {variable["name"] for variable in loaded["templating"]["list"]}
    assert set(re.findall(r"\$(\w+)", " ".join(expressions()))) - {"__rate_interval"} <= variables


def test_prometheus_asks_services_of_the_compose_file() -> None:
    """At the ports they listen on."""
    scraped = yaml.safe_load((GRAFANA / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    targets = {target for job in scraped for config in job["static_configs"] for target in config["targets"]}
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text("utf-8"))["services"]
    more = yaml.safe_load((GRAFANA / "compose.yaml").read_text("utf-8"))["services"]
    assert targets == {"worker-1:9090", "worker-2:9090", "serve:8080"}
    assert {target.partition(":")[0] for target in targets} <= set(services)
    for name in ("worker-1", "worker-2"):
        before, after = services[name]["command"], more[name]["command"]
        assert after == [part if part != "9090" else "0.0.0.0:9090" for part in before]


def test_the_pages_name_metrics_that_exist() -> None:
    """And the reference names all of them."""
    for page in ("docs/how-to/metrics.md", "docs/how-to/tracing.md", "docs/reference/metrics.md"):
        found = named((ROOT / page).read_text("utf-8"))
        assert {name for name in found if not existing(name) and name not in CATALOGUE} == set(), page
    assert set(CATALOGUE) <= named((ROOT / "docs/reference/metrics.md").read_text("utf-8"))
