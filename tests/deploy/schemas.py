"""Is a document what its API takes? Unknown fields count as errors.

Kinds of Kubernetes are compared with the schemas of kubernetes-validate, for the oldest version that
the chart allows and for the newest one known. ScaledObject, PodMonitor and PrometheusRule are compared with classes
that cloudcoil generated from what KEDA 2.16 and the Prometheus operator 0.80 publish. What only a
running cluster checks (admission, names that must exist) is not seen here.
"""

import functools
import json

import kubernetes_validate
import pydantic

# The schemas are large, and each call would read them again.
kubernetes_validate.utils.schema_contents = functools.lru_cache(kubernetes_validate.utils.schema_contents)


def custom_kinds():
    # Takes a second, which tests without such resources need not wait.
    from cloudcoil.models.keda.v1alpha1 import ScaledObject
    from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule
    return {("keda.sh/v1alpha1", "ScaledObject"): ScaledObject, ("monitoring.coreos.com/v1", "PodMonitor"): PodMonitor,
            ("monitoring.coreos.com/v1", "PrometheusRule"): PrometheusRule}


def fault(document, version):
    """What is wrong, in words; None for a document that the API takes."""
    api = document["apiVersion"]
    if "." in api and not api.split("/")[0].endswith(".k8s.io"):
        return custom_fault(document)
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return error.message
    return None


def custom_fault(document):
    model = custom_kinds().get((document["apiVersion"], document["kind"]))
    if model is None:
        return f"no schema is known for {document['apiVersion']} {document['kind']}"
    try:
        known = model.model_validate_json(json.dumps(document), strict=True)
    except pydantic.ValidationError as error:
        return str(error)
    # The classes drop fields that they don't know.
    lost = list(missing(document, known.model_dump(mode="json", by_alias=True, exclude_unset=True)))
    return f"unknown fields: {', '.join(lost)}" if lost else None


def missing(given, known, path=""):
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(known, dict) or key not in known:
                yield f"{path}{key}"
            else:
                yield from missing(value, known[key], f"{path}{key}.")
    elif isinstance(given, list):
        for index, (one, other) in enumerate(zip(given, known)):
            yield from missing(one, other, f"{path}{index}.")
