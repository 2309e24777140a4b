"""Colocation profiles as MutatingAdmissionPolicies: the API server applies them itself, without our webhook. Pure.

`compiler` turns profiles into policies and says what cannot be stated in CEL; `overlap` compares profiles that may
match the same pod; `label_texts` and `patch_fields` write the operations of labels, annotations and `spec.patch`;
`resources_cel` translates cpu and memory; `cel` writes literals, conditions and JSON patch operations.
"""
