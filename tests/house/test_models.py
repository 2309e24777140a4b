"""A kind of Kubernetes objects is decoded by one family of structs: that of `base/kubernetes/models`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.rooms import ON_TREES, ROOT, trees_by_path

pytestmark = ON_TREES
MODELS = ROOT / "base" / "kubernetes" / "models"
METADATA = {"api_version", "creation_timestamp", "deletion_timestamp", "managed_fields", "owner_references"}
METADATA |= {"resource_version"}
TELLING = {"allocatable", "taints", "tolerations", "unschedulable"}
"""Fields of one word that no other kind has; those of several words are read from the family itself."""
OTHER_KINDS = {
    ("PublishedCondition", "last_transition_time"),  # of any kind's status
    ("_RecommendedPodStatus", "container_statuses"),  # of a Recommendation
    ("_RecommendedContainer", "container_name"),  # the same; the family's is of a checkpoint of VPA
    ("_SliceSpec", "node_name"),  # of a ResourceSlice
    *((name, "node_selector") for name in ("ConfigurationLimits", "HighNodeLoadArgs", "LoadThresholdFields")),
    ("_WrittenMetadata", "generate_name"),  # of any object under review
    ("MigrationArgs", "node_selector"),  # like the three before: of a DeschedulerConfiguration
}


def declared() -> Iterator[tuple[bool, ast.ClassDef, str]]:
    """Every field that a struct declares for the wire's names in camelCase, or that tells by its name alone."""
    for path, tree in trees_by_path().items():
        for class_node in ast.walk(tree):
            if isinstance(class_node, ast.ClassDef) and not class_node.decorator_list:
                camel = any(word.arg == "rename" for word in class_node.keywords)
                for entry in class_node.body:
                    if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
                        name = entry.target.id
                        if name in TELLING or (camel and "_" in name):
                            yield path.parent == MODELS, class_node, name


@pytest.mark.slow
def test_pods_nodes_and_forecasts_are_decoded_by_the_structs_of_one_package() -> None:
    every = list(declared())
    family = {name for inside, _, name in every if inside} - METADATA
    assert {"node_name", "container_statuses", "valid_until", "queues_served_until"} <= family
    beside = {(class_def.name, name) for inside, class_def, name in every if not inside and name in family}
    assert beside == OTHER_KINDS, "inherit from a struct of base/kubernetes/models, or add the projection there"
