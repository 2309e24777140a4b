"""Admission webhooks: how `cotenant serve webhook` answers the API server.

From a request to its answer: `webhook_server.app` (HTTP paths, metrics) -> `review` (AdmissionReview, pure) ->
`pod_mutation` with `profile`, `strategic_merge` and `resources`; `pod_rules` and the quota rules, which return
`Problem`s. All of them read one `view`, which `webhook_server.cluster_state` builds from mirrors. `authority` decides
about certificates, `certificates` stores them, `registration` completes the webhook configurations, and `service`
assembles one process with its TLS server.
"""
