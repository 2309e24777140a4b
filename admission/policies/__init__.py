"""Colocation profiles as MutatingAdmissionPolicies, which the API server applies itself, without our webhook. Pure.

`compiler` turns profiles into policies and reports what CEL cannot express; `overlap` compares profiles that may match
the same pod; `label_texts` and `patch_fields` write the operations of labels, annotations and `spec.patch`;
`resources_cel` translates cpu and memory; `cel` writes literals, conditions and JSON patch operations.
"""
