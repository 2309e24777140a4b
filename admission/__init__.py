"""Admission webhooks: what `cotenant serve webhook` answers the API server.

From a call to its answer: `connection` (HTTP) -> `app` (paths, counts) -> `review` (AdmissionReview, pure) ->
`pod_mutation` with `profile`, `strategic_merge`, `resources`; `pod_rules` and `quota_rules`, which say
`problem`s. All of them look at one `view`, which `cluster_state` makes from mirrors. `authority` decides about
certificates, `certificates` keeps them, `registration` fills in the webhook configurations, `service` puts one process
together, its TLS server included.
"""
