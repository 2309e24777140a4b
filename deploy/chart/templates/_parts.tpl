{{/* Names of the processes that run, as a JSON list; "all" for what concerns every one. */}}
{{- define "cotenant.parts" -}}
{{- $parts := list "all" -}}
{{- if include "cotenant.manager" . -}}{{- $parts = append $parts "manager" -}}{{- end -}}
{{- if .Values.webhooks.enabled -}}{{- $parts = append $parts "webhook" -}}{{- end -}}
{{- if .Values.scheduling.enabled -}}{{- $parts = append $parts "extender" -}}{{- end -}}
{{- if .Values.enforcement.enabled -}}{{- $parts = append $parts "enforcer" -}}{{- end -}}
{{- if include "cotenant.recorder" . -}}{{- $parts = append $parts "recorder" -}}{{- end -}}
{{- if .Values.descheduler.enabled -}}{{- $parts = append $parts "descheduler" -}}{{- end -}}
{{- if .Values.scan.enabled -}}
{{- $parts = append $parts "dashboard" -}}
{{- if not (include "cotenant.manager" .) -}}{{- $parts = append $parts "scan" -}}{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end -}}

{{/* Objects of a file whose part runs, with labels: dict "root" $, "path", "labels", "without" parts. A JSON list. */}}
{{- define "cotenant.optional" -}}
{{- $objects := list -}}
{{- $parts := include "cotenant.parts" .root | fromJsonArray -}}
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
