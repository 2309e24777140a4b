"""A rule of the cluster that refuses some requests, as an operator's admission policy does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cluster.api import Api, Json
from tests.cluster.waiting import wait_for

_PATH = "/apis/admissionregistration.k8s.io/v1"


@contextmanager
def refusing(api: Api, name: str, rule: Json, validation: Json, is_in_force: Callable[[], bool]) -> Iterator[None]:
    """A policy in force: `rule` says which requests it judges, `validation` which of them pass and what is said."""
    constraints = {"resourceRules": [{"apiVersions": ["v1"], **rule}]}
    spec = {"matchConstraints": constraints, "validations": [validation]}
    api.create(f"{_PATH}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    api.create(f"{_PATH}/validatingadmissionpolicybindings", binding)
    try:
        wait_for("the rule", is_in_force)
        yield
    finally:
        api.delete(f"{_PATH}/validatingadmissionpolicybindings/{name}")
        api.delete(f"{_PATH}/validatingadmissionpolicies/{name}")
