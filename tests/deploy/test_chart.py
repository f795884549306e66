"""The chart: what it makes is valid, its parts fit each other, and wrong values are refused."""

import functools
import os
import re
import subprocess
import unittest
from pathlib import Path

import helm_python
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

import chart
import schemas
from chart import NAMESPACE, Rendered, container, option

OLDEST, NEWEST = "1.27", "1.37"
SERVERS = {"scheduler": "-scheduler", "executor": "-executor"}


def ports(rendered, one, other, direction):
    """Ports that the policies of `one` open between it and `other`."""
    found = set()
    for policy in rendered.of("NetworkPolicy"):
        if one in rendered.selected(policy["spec"]["podSelector"]["matchLabels"]):
            for rule in policy["spec"].get(direction, []):
                for peer in rule.get("to" if direction == "egress" else "from", []):
                    labels = peer.get("podSelector", {}).get("matchLabels")
                    if labels and "namespaceSelector" not in peer and other in rendered.selected(labels):
                        found |= {p["port"] for p in rule["ports"]}
    return found


def everywhere(test):
    """Runs a test for every file of values."""
    @functools.wraps(test)
    def run(self):
        for name, rendered in self.all.items():
            with self.subTest(values=name):
                test(self, rendered)
    return run


class EveryRendering(unittest.TestCase):
    """What holds for whatever values."""

    @classmethod
    def setUpClass(cls):
        cls.all = {name: Rendered(chart.values(name)) for name in chart.names()}

    @everywhere
    def test_apis_take_every_document(self, rendered):
        for document in rendered.documents:
            for version in (OLDEST, NEWEST):
                with self.subTest(kind=document["kind"], name=document["metadata"]["name"], kubernetes=version):
                    self.assertIsNone(schemas.fault(document, version))

    @everywhere
    def test_no_two_objects_have_one_name(self, rendered):
        keys = [(d["kind"], d["metadata"]["name"]) for d in rendered.documents]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertEqual({d["metadata"]["namespace"] for d in rendered.documents}, {NAMESPACE})

    def test_no_key_stands_twice(self):
        config = YamlLintConfig("{rules: {key-duplicates: enable, trailing-spaces: enable}}")
        for name in chart.names():
            for template, text in chart.render(chart.values(name)).items():
                if template.endswith(".yaml"):
                    self.assertEqual([str(p) for p in linter.run(text, config)], [], f"{name} {template}")

    @everywhere
    def test_no_number_is_a_float(self, rendered):
        # An integer of seven digits, printed carelessly, becomes one, and Kubernetes refuses it.
        def floats(value, path):
            children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            if isinstance(value, float):
                yield path
            for key, child in children:
                yield from floats(child, f"{path}.{key}")

        for document in rendered.documents:
            self.assertEqual(list(floats(document, document["kind"])), [])

    def test_lint_finds_nothing(self):
        for name in chart.names():
            report = helm_python.lint(chart.CHART, chart.values(name), strict=True, namespace=NAMESPACE,
                                      kube_version=f"v{OLDEST}.0")
            bad = [m for m in report["messages"] if m["severity"] >= 2]
            self.assertEqual((bad, report["errors"]), ([], []), name)

    @everywhere
    def test_pods_have_no_more_rights_than_they_need(self, rendered):
        for name, template in rendered.templates().items():
            with self.subTest(pods=name):
                pod, only = template["spec"], container(template)
                self.assertFalse(pod["automountServiceAccountToken"])
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertGreater(pod["securityContext"]["runAsUser"], 0)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertTrue(only["securityContext"]["readOnlyRootFilesystem"])
                self.assertFalse(only["securityContext"]["allowPrivilegeEscalation"])
                self.assertEqual(only["securityContext"]["capabilities"], {"drop": ["ALL"]})
                self.assertNotIn("command", only)
                self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & pod.keys())
                self.assertIn("memory", only["resources"]["limits"])
                self.assertFalse([v for v in pod["volumes"] if "hostPath" in v])

    @everywhere
    def test_secrets_are_named_and_never_made(self, rendered):
        self.assertEqual(rendered.of("Secret"), [])
        for template in rendered.templates().values():
            for variable in container(template)["env"]:
                self.assertNotRegex(variable["name"], "SECRET|ACCESS_KEY|PASSWORD|WINDROW_TOKEN$")

    @everywhere
    def test_files_in_arguments_are_mounted(self, rendered):
        for name, template in rendered.templates().items():
            only = container(template)
            mounts = {m["mountPath"]: m["name"] for m in only["volumeMounts"]}
            volumes = {v["name"]: v for v in template["spec"]["volumes"]}
            self.assertEqual(set(mounts.values()), volumes.keys(), name)
            named = only["args"] + [v.get("value", "") for v in only["env"]]
            for path in (Path(word) for word in named if word.startswith("/")):
                with self.subTest(pods=name, path=str(path)):
                    if str(path) in mounts:
                        continue
                    secret = volumes[mounts[str(path.parent)]]["secret"]
                    kept = [i["path"] for i in secret.get("items", [])] or ["tls.crt", "tls.key", "ca.crt"]
                    self.assertIn(path.name, kept)

    @everywhere
    def test_selectors_find_the_pods_they_mean(self, rendered):
        for document in rendered.documents:
            kind, name, spec = document["kind"], document["metadata"]["name"], document.get("spec", {})
            if kind in ("Deployment", "StatefulSet"):
                labels, meant = spec["selector"]["matchLabels"], {name}
                self.assertNotIn("app.kubernetes.io/version", labels)
            elif kind == "Service":
                labels, meant = spec["selector"], {f"demo-windrow-{'executor' if 'executors' in name else 'scheduler'}"}
            elif kind in ("PodDisruptionBudget", "PodMonitor"):
                labels, meant = spec["selector"]["matchLabels"], {name}
            elif kind == "NetworkPolicy" and name.endswith("-pipeline"):
                labels = spec["podSelector"]["matchLabels"]
                meant = {job["metadata"]["name"] for job in rendered.of("CronJob")}
            elif kind == "NetworkPolicy":
                labels, meant = spec["podSelector"]["matchLabels"], {name}
            else:
                continue
            with self.subTest(kind=kind, name=name):
                self.assertEqual(rendered.selected(labels), meant)

    @everywhere
    def test_ports_have_names_that_pods_know(self, rendered):
        templates = rendered.templates()
        known = {name: {p["name"] for p in container(t).get("ports", [])} for name, t in templates.items()}
        for service in rendered.of("Service"):
            for name in rendered.selected(service["spec"]["selector"]):
                self.assertLessEqual({p["targetPort"] for p in service["spec"]["ports"]}, known[name])
        for monitor in rendered.of("PodMonitor"):
            self.assertIn(monitor["spec"]["podMetricsEndpoints"][0]["port"], known[monitor["metadata"]["name"]])
        for name, template in templates.items():
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container(template):
                    (how,) = [container(template)[probe][k] for k in ("httpGet", "tcpSocket") if k in container(template)[probe]]
                    self.assertIn(how["port"], known[name])

    @everywhere
    def test_policies_open_the_ports_of_pods(self, rendered):
        numbers = {name: {p["containerPort"] for p in container(t).get("ports", [])} for name, t in rendered.templates().items()}
        for policy in rendered.of("NetworkPolicy"):
            own = rendered.selected(policy["spec"]["podSelector"]["matchLabels"])
            for rule in policy["spec"].get("ingress", []):
                (name,) = own
                self.assertLessEqual({p["port"] for p in rule["ports"]}, numbers[name])
            for rule in policy["spec"]["egress"]:
                for peer in rule.get("to", []):
                    labels = peer.get("podSelector", {}).get("matchLabels", {})
                    for name in rendered.selected(labels) if "app.kubernetes.io/name" in labels else ():
                        self.assertLessEqual({p["port"] for p in rule["ports"]}, numbers[name])

    def test_policies_let_through_what_is_needed(self):
        rendered = Rendered(chart.values("everything"))
        scheduler, executor = "demo-windrow-scheduler", "demo-windrow-executor"
        jobs = {job["metadata"]["name"] for job in rendered.of("CronJob")}
        wanted = {(executor, scheduler): 50050, (scheduler, executor): 6001, (executor, executor): 6001,
                  **{(job, scheduler): 50050 for job in jobs}}
        for one in rendered.templates():
            for other in (scheduler, executor):
                let = ports(rendered, one, other, "egress") & ports(rendered, other, one, "ingress")
                self.assertEqual(let, {wanted[one, other]} if (one, other) in wanted else set(), f"{one} to {other}")

    @everywhere
    def test_grace_is_longer_than_the_draining(self, rendered):
        for ends in SERVERS.values():
            (template,) = [t for n, t in rendered.templates().items() if n == f"demo-windrow{ends}"]
            self.assertGreater(template["spec"]["terminationGracePeriodSeconds"],
                               int(option(container(template)["args"], "--drain-seconds")))

    @everywhere
    def test_executors_find_the_scheduler_and_each_other(self, rendered):
        executors = rendered.one("StatefulSet", "-executor")
        domain = rendered.values.get("clusterDomain", "cluster.local")
        only = container(executors["spec"]["template"])
        services = {f"{s['metadata']['name']}.{NAMESPACE}.svc.{domain}": s["spec"] for s in rendered.of("Service")}

        scheme, host, port = re.fullmatch(r"(https?)://([^:]+):(\d+)", option(only["args"], "--scheduler")).groups()
        self.assertEqual(scheme, "https" if rendered.values.get("tls", {}).get("enabled") else "http")
        self.assertEqual(services[host]["ports"][0]["port"], int(port))
        # One that waits for the lease would refuse them.
        self.assertNotIn("publishNotReadyAddresses", services[host])

        host = re.fullmatch(r"\$\(POD_NAME\)\.([^:]+)", option(only["args"], "--advertise"))[1]
        self.assertEqual(host.split(".")[0], executors["spec"]["serviceName"])
        self.assertEqual(services[host]["clusterIP"], "None")
        self.assertTrue(services[host]["publishNotReadyAddresses"])
        port = option(only["args"], "--bind").split(":")[1]
        self.assertIn({"name": "flight", "containerPort": int(port)}, only["ports"])
        self.assertIn({"name": "http", "containerPort": int(option(only["args"], "--http").split(":")[1])}, only["ports"])

    @everywhere
    def test_clients_go_to_schedulers_that_are_ready(self, rendered):
        for job in rendered.of("CronJob"):
            arguments = container(job["spec"]["jobTemplate"]["spec"]["template"])["args"]
            host = re.match(r"https?://([^.]+)\.", option(arguments, "--scheduler"))[1]
            (service,) = [s for s in rendered.of("Service") if s["metadata"]["name"] == host]
            self.assertNotIn("publishNotReadyAddresses", service["spec"])
            self.assertLessEqual(len(job["metadata"]["name"]), 52)

    @everywhere
    def test_ports_are_without_tls_only_when_said(self, rendered):
        said = rendered.values.get("insecureRemote", False)
        for made, ends in (("Deployment", "-scheduler"), ("StatefulSet", "-executor")):
            arguments = container(rendered.one(made, ends)["spec"]["template"])["args"]
            self.assertEqual("--insecure-remote" in arguments, said)
            self.assertEqual("--tls-cert" in arguments, not said)

    @everywhere
    def test_autoscalers_scale_the_executors_alone(self, rendered):
        executors = rendered.one("StatefulSet", "-executor")
        scalers = rendered.of("HorizontalPodAutoscaler") + rendered.of("ScaledObject")
        self.assertEqual("replicas" in executors["spec"], not scalers)
        for scaler in scalers:
            self.assertEqual(scaler["spec"]["scaleTargetRef"],
                             {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": executors["metadata"]["name"]})


class OneRendering(unittest.TestCase):
    """What single values do."""

    def rendered(self, name="minimal", **above):
        return Rendered(chart.over(chart.values(name), above))

    def test_one_scheduler_is_gone_before_the_next_comes(self):
        strategy = self.rendered().one("Deployment", "-scheduler")["spec"]["strategy"]
        self.assertEqual(strategy, {"type": "Recreate"})

    def test_a_rollout_does_not_wait_for_one_in_wait(self):
        spec = self.rendered(scheduler={"replicas": 2}).one("Deployment", "-scheduler")["spec"]
        self.assertEqual(spec["strategy"]["rollingUpdate"]["maxUnavailable"], "100%")
        self.assertEqual(spec["progressDeadlineSeconds"], 2**31 - 1)
        self.assertNotIn("progressDeadlineSeconds", self.rendered().one("Deployment", "-scheduler")["spec"])

    def test_readiness_tells_who_leads_with_mutual_tls_too(self):
        for mutual in (False, True):
            rendered = self.rendered("secure", tls={"mutual": mutual, "client": {"existingSecret": "client-tls"}},
                                     scheduler={"replicas": 2, "httpPort": 6003})
            only = container(rendered.one("Deployment", "-scheduler")["spec"]["template"])
            self.assertEqual("--tls-client-ca" in only["args"], mutual)
            self.assertEqual(option(only["args"], "--http"), "0.0.0.0:6003")
            self.assertIn({"name": "http", "containerPort": 6003}, only["ports"])
            self.assertEqual(only["readinessProbe"]["httpGet"], {"path": "/health/ready", "port": "http", "scheme": "HTTP"})
            self.assertEqual(only["livenessProbe"]["httpGet"]["path"], "/health/live")

    def test_prometheus_gets_the_token_and_verifies_the_name(self):
        (endpoint,) = self.rendered("everything").one("PodMonitor", "-scheduler")["spec"]["podMetricsEndpoints"]
        self.assertEqual(endpoint["scheme"], "https")
        self.assertEqual(endpoint["authorization"]["credentials"], {"name": "windrow-token", "key": "value"})
        self.assertEqual(endpoint["tlsConfig"]["keySecret"], {"name": "client-tls", "key": "tls.key"})
        self.assertEqual(endpoint["tlsConfig"]["serverName"], "demo-windrow.lake.svc.lake.example")
        (endpoint,) = self.rendered("secure").one("PodMonitor", "-scheduler")["spec"]["podMetricsEndpoints"]
        self.assertEqual(endpoint["tlsConfig"]["ca"], {"secret": {"name": "scheduler-tls", "key": "ca.crt"}})
        self.assertNotIn("keySecret", endpoint["tlsConfig"])

    def test_the_token_is_not_sent_in_plain(self):
        for name in ("secure", "everything"):
            (endpoint,) = self.rendered(name).one("PodMonitor", "-executor")["spec"]["podMetricsEndpoints"]
            self.assertEqual(endpoint["scheme"], "http")
            self.assertFalse({"authorization", "tlsConfig"} & endpoint.keys())

    def test_queries_may_hold_half_of_the_limit(self):
        for limit, half in (("4Gi", 2 << 30), ("1.5Gi", 3 << 28), ("3000M", 1500000000), (8589934592, 4 << 30), ("1Ti", 1 << 39)):
            executors = self.rendered(executor={"resources": {"limits": {"memory": limit}}}).one("StatefulSet", "-executor")
            self.assertEqual(option(container(executors["spec"]["template"])["args"], "--memory-limit"), str(half))
        executors = self.rendered(executor={"resources": {"limits": {"memory": None}}}).one("StatefulSet", "-executor")
        self.assertNotIn("--memory-limit", container(executors["spec"]["template"])["args"])

    def test_clients_without_a_certificate_get_the_authority_and_no_key(self):
        job = self.rendered("secure").one("CronJob", "-orders")
        volumes = {v["name"]: v for v in job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]}
        self.assertEqual(volumes["tls"]["secret"]["secretName"], "scheduler-tls")
        self.assertEqual([item["key"] for item in volumes["tls"]["secret"]["items"]], ["ca.crt"])

    def test_files_of_a_pipeline_arrive_as_they_are(self):
        rendered = self.rendered("everything")
        files = rendered.values["pipelines"][0]["files"]
        job, config = rendered.one("CronJob", "-orders"), rendered.one("ConfigMap", "-orders")
        (volume,) = [v["configMap"] for v in job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
                     if v["name"] == "pipeline"]
        self.assertEqual(volume["name"], config["metadata"]["name"])
        self.assertEqual({item["path"]: config["data"][item["key"]] for item in volume["items"]}, files)

    def test_a_wrong_pipeline_is_not_tried_again_and_runs_do_not_overlap(self):
        job = self.rendered("everything").one("CronJob", "-orders")["spec"]
        rules = job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(rules[0]["action"], "FailJob")
        self.assertEqual(rules[0]["onExitCodes"]["values"], [2])
        self.assertEqual(job["concurrencyPolicy"], "Forbid")

    def test_ours_win_over_labels_of_the_same_name(self):
        labels = self.rendered("everything").one("Deployment", "-scheduler")["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(labels["app.kubernetes.io/component"], "scheduler")
        self.assertEqual((labels["tier"], labels["team"]), ("control", "other"))

    def test_pods_stay_when_only_the_chart_is_new(self):
        for template in self.rendered("everything").templates().values():
            self.assertNotIn("helm.sh/chart", template["metadata"]["labels"])

    def test_settings_of_the_store_reach_both_roles(self):
        for ends in SERVERS.values():
            rendered = self.rendered("hpa")
            (template,) = [t for n, t in rendered.templates().items() if n.endswith(ends)]
            only = container(template)
            variables = {v["name"]: v.get("value") for v in only["env"]}
            self.assertEqual(variables["AWS_ENDPOINT_URL"], "http://minio.store:9000")
            self.assertEqual(variables["AWS_ALLOW_HTTP"], "true")
            self.assertEqual(only["envFrom"], [{"secretRef": {"name": "store-keys"}}])
            self.assertEqual(template["spec"]["serviceAccountName"], "lake")
        for ends in SERVERS.values():
            (template,) = [t for n, t in self.rendered("everything").templates().items() if n == f"demo-windrow{ends}"]
            self.assertNotIn("AWS_ALLOW_HTTP", [v["name"] for v in container(template)["env"]])

    def test_logs_and_traces_reach_both_roles(self):
        for name, wanted in (("everything", ("text", "http://collector.monitoring:4317")), ("minimal", ("json", None))):
            for ends in SERVERS.values():
                (template,) = [t for n, t in self.rendered(name).templates().items() if n == f"demo-windrow{ends}"]
                variables = {v["name"]: v.get("value") for v in container(template)["env"]}
                found = variables["WINDROW_LOG_FORMAT"], variables.get("OTEL_EXPORTER_OTLP_ENDPOINT")
                self.assertEqual(found, wanted)

    def test_scratch_is_bounded_and_takes_what_is_temporary(self):
        for name in ("minimal", "everything"):
            template = self.rendered(name).one("StatefulSet", "-executor")["spec"]["template"]
            (scratch,) = [v for v in template["spec"]["volumes"] if v["name"] == "scratch"]
            if name == "minimal":
                self.assertEqual(scratch["emptyDir"], {"sizeLimit": "50Gi"})
            else:
                claim = scratch["ephemeral"]["volumeClaimTemplate"]["spec"]
                self.assertEqual((claim["resources"]["requests"]["storage"], claim["storageClassName"]), ("200Gi", "fast"))
            only = container(template)
            self.assertEqual(option(only["args"], "--work-dir"), "/scratch")
            self.assertIn({"name": "TMPDIR", "value": "/scratch"}, only["env"])

    def test_queue_and_running_slices_together_decide(self):
        (scaled,) = self.rendered("keda").of("ScaledObject")
        (trigger,) = scaled["spec"]["triggers"]
        self.assertEqual(trigger["metadata"]["threshold"], "8")
        self.assertEqual(scaled["spec"]["fallback"]["replicas"], 3)
        self.assertEqual(trigger["metadata"]["ignoreNullValues"], "false")
        for part in ("windrow_queued_slices", "windrow_running_slices", 'namespace="lake"', 'pod=~"demo-windrow-scheduler-.+"'):
            self.assertIn(part, trigger["metadata"]["query"])
        (scaler,) = self.rendered("hpa").of("HorizontalPodAutoscaler")
        external = [m["external"] for m in scaler["spec"]["metrics"] if m["type"] == "External"]
        self.assertEqual([e["metric"]["name"] for e in external], ["windrow_queued_slices", "windrow_running_slices"])
        self.assertEqual({e["target"]["averageValue"] for e in external}, {"4"})

    def test_numbers_are_not_written_with_exponents(self):
        only = container(self.rendered("everything").one("StatefulSet", "-executor")["spec"]["template"])
        self.assertEqual(option(only["args"], "--memory-limit"), "3221225472")
        only = container(self.rendered("everything").one("Deployment", "-scheduler")["spec"]["template"])
        self.assertEqual(option(only["args"], "--max-message-bytes"), "33554432")
        self.assertEqual(option(only["args"], "--ratio"), "0.5")

    def test_names_of_the_longest_releases_fit(self):
        rendered = Rendered(chart.values("everything"), release="r" * 53)
        for document in rendered.documents:
            self.assertLessEqual(len(document["metadata"]["name"]), 52 if document["kind"] in ("CronJob", "StatefulSet") else 63)


class WrongValues(unittest.TestCase):
    def test_each_is_refused_with_a_reason(self):
        cases = yaml.safe_load((Path(__file__).parent / "wrong.yaml").read_text())
        self.assertGreater(len(cases), 40)
        for case in cases:
            with self.subTest(values=case["values"]):
                with self.assertRaises(helm_python.HelmError) as refused:
                    chart.render(chart.over(chart.values(case.get("over", "minimal")), case["values"]))
                self.assertRegex(str(refused.exception), case["says"])


class SchemasOfTests(unittest.TestCase):
    """The checks above would be worth nothing if they took anything."""

    def test_faults_are_found(self):
        rendered = Rendered(chart.values("everything"))
        for kind in ("Deployment", "StatefulSet", "CronJob", "NetworkPolicy", "ScaledObject", "PodMonitor"):
            document = rendered.of(kind)[0]
            self.assertIsNone(schemas.fault(document, NEWEST))
            self.assertIsNotNone(schemas.fault(chart.over(document, {"spec": {"unheardOf": 1}}), NEWEST), kind)
        (scaled,) = rendered.of("ScaledObject")
        self.assertIsNotNone(schemas.fault(chart.over(scaled, {"spec": {"minReplicaCount": "one"}}), NEWEST))
        self.assertIsNotNone(schemas.fault(scaled | {"kind": "Unheard"}, NEWEST))


class CommandLine(unittest.TestCase):
    """Each option in an argument is one that the program has. Needs WINDROW_TEST_PROGRAM."""

    def test_options_are_those_of_the_program(self):
        program = os.environ.get("WINDROW_TEST_PROGRAM")
        if not program:
            self.skipTest("WINDROW_TEST_PROGRAM names no program")
        # An option of the user, not one of the chart.
        rendered = Rendered(chart.over(chart.values("everything"), {"scheduler": {"extraArgs": []}}))
        insecure = Rendered(chart.values("minimal"))
        for template in [*rendered.templates().values(), *insecure.templates().values()]:
            arguments = container(template)["args"]
            told = subprocess.run([program, arguments[0], "--help"], capture_output=True, text=True, timeout=60)
            if told.returncode != 0:
                self.skipTest(f"this program has no command `{arguments[0]}`")
            for word in arguments:
                if word.startswith("--"):
                    self.assertRegex(told.stdout, rf"(?m)^\s+(-\w, )?{word}\b", f"windrow {arguments[0]}")


if __name__ == "__main__":
    unittest.main()
