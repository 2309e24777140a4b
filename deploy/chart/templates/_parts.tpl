{{/* Names of the processes that run, as a JSON list; "all" for what concerns every one. */}}
{{- define "cotenant.parts" -}}
{{- $parts := list "all" -}}
{{- if include "cotenant.manager" . -}}{{- $parts = append $parts "manager" -}}{{- end -}}
{{- if .Values.webhooks.enabled -}}{{- $parts = append $parts "webhook" -}}{{- end -}}
{{- if .Values.scheduling.enabled -}}{{- $parts = append $parts "extender" -}}{{- end -}}
{{- if .Values.enforcement.enabled -}}{{- $parts = append $parts "enforcer" -}}{{- end -}}
{{- if include "cotenant.recorder" . -}}{{- $parts = append $parts "recorder" -}}{{- end -}}
{{- if .Values.descheduler.enabled -}}{{- $parts = append $parts "descheduler" -}}{{- end -}}
{{- if include "cotenant.reservations" . -}}{{- $parts = append $parts "reservations" -}}{{- end -}}
{{- if .Values.scan.enabled -}}
{{- $parts = append $parts "dashboard" -}}
{{- if not (include "cotenant.manager" .) -}}{{- $parts = append $parts "scan" -}}{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end -}}

{{/* "true" where the namespace of placeholders is, or comes with the release. */}}
{{- define "cotenant.reservations" -}}
{{- if or .Values.scheduling.enabled .Values.queues.enabled .Values.descheduler.enabled (lookup "v1" "Namespace" "" "cotenant-reservations") -}}true{{- end -}}
{{- end -}}

{{/* "true" where the manager runs, or ran for this release: its namespace stays when every part of it is switched off. */}}
{{- define "cotenant.managed" -}}
{{- $namespace := lookup "v1" "Namespace" "" "koordinator-system" | default dict -}}
{{- $ours := eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $namespace) .Release.Name -}}
{{- if or (include "cotenant.manager" .) $ours -}}true{{- end -}}
{{- end -}}

{{/* Objects of a file whose part runs, with labels: dict "root" $, "path", "labels", "with" and "without" parts. A JSON list. */}}
{{- define "cotenant.optional" -}}
{{- $objects := list -}}
{{- $parts := concat (include "cotenant.parts" .root | fromJsonArray) (.with | default list) -}}
{{- range $text := regexSplit "(?m)^---\\s*$" (.root.Files.Get .path) -1 -}}
{{- $object := fromYaml $text -}}
{{- $part := index $object.metadata.labels "app.kubernetes.io/component" -}}
{{- if and (has $part $parts) (not (has $part ($.without | default list))) -}}
{{- $labels := merge (deepCopy ($.labels | default dict)) (include "cotenant.labels" $.root | fromYaml) $object.metadata.labels -}}
{{- $_ := set $object.metadata "labels" $labels -}}
{{- $objects = append $objects $object -}}
{{- end -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{/* Parts that Prometheus cannot reach: a dashboard on the loopback of its pod. A JSON list. */}}
{{- define "cotenant.unreachable" -}}
{{- $host := dig "dashboard" "host" "127.0.0.1" (.Values.settings | default dict) -}}
{{- ternary (list "dashboard") list (has $host (list "127.0.0.1" "localhost" "::1")) | toJson -}}
{{- end -}}
