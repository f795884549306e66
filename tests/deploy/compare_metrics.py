"""Does a running cluster serve the metrics that docs/kubernetes.md promises?

    compare_metrics.py SCHEDULER_URL EXECUTOR_URL

Prints what is promised and not served, and what is served and not documented (exit 1).
"""

import re
import sys
import urllib.request

from chart import metrics, roles


def served(url):
    """name -> (kind, labels) of the metrics of one process that are Windrow's."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {m[1]: (m[2], set()) for m in re.finditer(r"(?m)^# TYPE (windrow_\w+) (\w+)$", text)}
    for name, labels in re.findall(r"(?m)^(windrow_\w+)\{([^}]*)\}", text):
        found.setdefault(name, ("untyped", set()))[1].update(re.findall(r'(\w+)="', labels))
    return found


def main(urls):
    wrong = 0
    for role, url in zip(("scheduler", "executor"), urls, strict=True):
        there = served(url)
        promised = {name: what for name, what in metrics().items() if role in roles()[name]}
        for name, (kind, labels) in promised.items():
            if name not in there:
                print(f"{role}: {name} is promised and not served")
            elif there[name][0] != kind or (there[name][1] and there[name][1] != labels):
                print(f"{role}: {name} is promised as a {kind} with {sorted(labels)}, and is a {there[name][0]} with {sorted(there[name][1])}")
            else:
                continue
            wrong += 1
        for name in sorted(there.keys() - promised.keys()):
            print(f"{role}: {name} is served and not documented")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
