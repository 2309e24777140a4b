"""Recommendations as files for a GitOps repository: manifests for kustomize and Helm, and bundles of them. Pure."""
