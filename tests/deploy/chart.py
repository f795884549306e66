"""The Helm chart for tests: rendered by Helm itself (as a library), offline."""

import re
from pathlib import Path

import helm_python
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/windrow"
VALUES = Path(__file__).parent / "values"
RELEASE, NAMESPACE = "demo", "lake"


def values(name):
    return yaml.safe_load((VALUES / f"{name}.yaml").read_text())


def names():
    return sorted(path.stem for path in VALUES.glob("*.yaml"))


def over(below, above):
    """Values laid over others, as Helm lays them."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: over(below.get(key), value) for key, value in above.items()}


def render(given, release=RELEASE):
    """Templates and their text; raises helm_python.HelmError with Helm's message."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(given)
        return chart.render(given, name=release, namespace=NAMESPACE)


def documents(given, release=RELEASE):
    found = []
    for template, text in render(given, release).items():
        if template.endswith(".yaml"):
            found += [document for document in yaml.safe_load_all(text) if document]
    return found


class Rendered:
    """The objects of one rendering, and how they point at each other."""

    def __init__(self, given, release=RELEASE):
        self.values = given
        self.documents = documents(given, release)

    def of(self, kind):
        return [d for d in self.documents if d["kind"] == kind]

    def one(self, kind, ends):
        found = [d for d in self.of(kind) if d["metadata"]["name"].endswith(ends)]
        assert len(found) == 1, f"{kind} *{ends}: {[d['metadata']['name'] for d in found]}"
        return found[0]

    def templates(self):
        """Pod templates by the name of what makes the pods."""
        found = {d["metadata"]["name"]: d["spec"]["template"] for d in self.of("Deployment") + self.of("StatefulSet")}
        for job in self.of("CronJob"):
            found[job["metadata"]["name"]] = job["spec"]["jobTemplate"]["spec"]["template"]
        return found

    def selected(self, labels):
        """Names of what makes the pods that have all these labels."""
        return {name for name, template in self.templates().items()
                if labels.items() <= template["metadata"]["labels"].items()}


def container(template):
    (only,) = template["spec"]["containers"]
    return only


def option(arguments, name):
    return arguments[arguments.index(name) + 1]


def table():
    """Rows of the table of metrics in docs/kubernetes.md: name, kind, role, labels."""
    row = re.compile(r"\| `(windrow_\w+)` \| (counter|gauge) \| (scheduler|executor|both) \|\s*([^|]*?)\s*\|")
    return [match.groups() for match in map(row.match, (ROOT / "docs/kubernetes.md").read_text().splitlines()) if match]


def metrics():
    """Documented metrics: name -> (kind, labels)."""
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, _, labels in table()}


def roles():
    """Documented metrics: name -> the roles that serve it."""
    return {name: {"scheduler", "executor"} if role == "both" else {role} for name, _, role, _ in table()}
