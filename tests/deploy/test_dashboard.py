"""The dashboard and the chart's queries ask for metrics that are documented, in the way of their kind."""

import contextlib
import http.server
import io
import json
import re
import threading
import unittest

import promql_parser

import chart
import compare_metrics

PATH = chart.ROOT / "deploy/grafana/windrow.json"
# What Prometheus adds when it scrapes pods.
SCRAPED = {"namespace", "pod"}


def parsed(query):
    """The query with Grafana's own variables put in place."""
    for variable, value in (("$__rate_interval", "5m"), ("$__range", "6h"), ("$namespace", "lake")):
        query = query.replace(variable, value)
    return promql_parser.parse(query)


def nodes(expression):
    found = []
    promql_parser.walk(expression, lambda node: found.append(node) or True)
    return found


def selectors(expression):
    """(metric, labels asked for, is it a rate) of each selector."""
    found = nodes(expression)
    for above, node in zip([None, *found], found):
        if isinstance(node, promql_parser.VectorSelector):
            # A range is visited just before the selector that it is a range of.
            yield node.name, labels(node), isinstance(above, promql_parser.MatrixSelector)


def labels(selector):
    return {matcher.name for matcher in selector.matchers.matchers}


def grouped(expression):
    return {label for node in nodes(expression) if isinstance(node, promql_parser.AggregateExpr) and node.modifier
            for label in node.modifier.labels}


class Queries(unittest.TestCase):
    def check(self, query):
        known = chart.metrics()
        expression = parsed(query)
        found = list(selectors(expression))
        self.assertTrue(found, query)
        allowed = set(SCRAPED)
        for metric, asked, rate in found:
            self.assertIn(metric, known, query)
            kind, own = known[metric]
            self.assertEqual(rate, kind == "counter", f"{metric} is a {kind}: {query}")
            self.assertLessEqual(asked, own | SCRAPED, query)
            allowed |= own
        self.assertLessEqual(grouped(expression), allowed, query)
        return {metric for metric, _, _ in found}

    def test_dashboard(self):
        dashboard = json.loads(PATH.read_text())
        used = set()
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                with self.subTest(panel=panel["title"]):
                    used |= self.check(target["expr"])
                    self.assertIn('namespace=~"$namespace"', target["expr"])
                    shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                    self.assertLessEqual(shown, grouped(parsed(target["expr"])) | SCRAPED)
        self.assertEqual(used, chart.metrics().keys(), "every documented metric is shown")

    def test_panels_are_apart_and_named(self):
        dashboard = json.loads(PATH.read_text())
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        taken = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
            if panel["type"] != "row":
                self.assertTrue(panel["title"] and panel["description"])
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
        variables = {variable["name"] for variable in dashboard["templating"]["list"]}
        self.assertEqual(variables, {"datasource", "namespace"})

    def test_the_chart_brings_the_same_dashboard(self):
        self.assertEqual((chart.CHART / "dashboards/windrow.json").read_text(), PATH.read_text())
        (config,) = [d for d in chart.documents(chart.values("everything"))
                     if d["kind"] == "ConfigMap" and d["metadata"]["name"].endswith("-dashboard")]
        self.assertEqual(json.loads(config["data"]["windrow.json"]), json.loads(PATH.read_text()))

    def test_autoscaling(self):
        (scaled,) = chart.Rendered(chart.values("keda")).of("ScaledObject")
        self.check(scaled["spec"]["triggers"][0]["metadata"]["query"])
        (scaler,) = chart.Rendered(chart.values("hpa")).of("HorizontalPodAutoscaler")
        named = {m["external"]["metric"]["name"] for m in scaler["spec"]["metrics"] if m["type"] == "External"}
        self.assertLessEqual(named, chart.metrics().keys())

    def test_alerts(self):
        for name in ("everything", "secure"):
            (rule,) = chart.Rendered(chart.values(name)).of("PrometheusRule")
            alerts = {r["alert"]: r["expr"] for group in rule["spec"]["groups"] for r in group["rules"]}
            # Autoscalers decide how many executors are right.
            self.assertEqual("WindrowExecutorsMissing" in alerts, name == "secure")
            self.assertGreaterEqual(len(alerts), 5)
            for alert, query in alerts.items():
                with self.subTest(values=name, alert=alert):
                    self.check(query)
                    self.assertIn('namespace="lake",pod=~"demo-windrow-.+"', query)

    def test_faults_are_found(self):
        for query in ("sum(windrow_queued_slizes)", "rate(windrow_queued_slices[5m])", "sum(windrow_updates_total)",
                      'windrow_executor_slots{status="free"}', "sum by (kind) (windrow_executors)"):
            with self.subTest(query=query), self.assertRaises(AssertionError):
                self.check(query)


class Comparison(unittest.TestCase):
    """The script that compares a running cluster with the table."""

    def compare(self, change=lambda text: text):
        served = {"scheduler": "", "executor": ""}
        for name, (kind, labels) in chart.metrics().items():
            shown = ",".join(f'{label}="x"' for label in sorted(labels))
            for role in chart.roles()[name]:
                served[role] += f"# TYPE {name} {kind}\n{name}{{{shown}}} 0\n"

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(change(served[self.path.split("/")[1]]).encode())

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}"
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                status = compare_metrics.main([f"{url}/scheduler", f"{url}/executor"])
            server.shutdown()
        return status, said.getvalue()

    def test_same(self):
        self.assertEqual(self.compare(), (0, ""))

    def test_missing_wrong_and_new(self):
        status, said = self.compare(lambda text: text.replace("windrow_executors", "windrow_executers"))
        self.assertEqual(status, 1)
        self.assertIn("windrow_executors is promised and not served", said)
        self.assertIn("windrow_executers is served and not documented", said)
        status, said = self.compare(lambda text: text + "# TYPE windrow_new gauge\nwindrow_new 0\n")
        self.assertEqual((status, said.count("windrow_new is served and not documented")), (1, 2))
        status, said = self.compare(lambda text: text.replace("outcome=", "result="))
        self.assertEqual(status, 1)
        self.assertIn("windrow_tasks_total is promised as a counter with ['outcome']", said)


if __name__ == "__main__":
    unittest.main()
