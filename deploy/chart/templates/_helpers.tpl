{{/* Names of the components that are switched on, as a JSON list. */}}
{{- define "cotenant.components" -}}
{{- $names := list -}}
{{- range $name := list "scan" "recorder" "recommendations" "colocation" "scheduling" "queues" "descheduler" "tainting" "autopilot" "enforcement" "devices" "webhooks" "applier" -}}
{{- $on := eq $name "recorder" | ternary (include "cotenant.recorder" $) (index $.Values $name).enabled -}}
{{- if $on -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* "true" when any feature of the manager is switched on. */}}
{{- define "cotenant.manager" -}}
{{- with .Values -}}
{{- if or .recommendations.enabled .colocation.enabled .scheduling.enabled .queues.enabled .descheduler.enabled .tainting.enabled .autopilot.enabled .enforcement.enabled -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" when the recorder runs: as its value says, else where no Prometheus is named and something reads the history. */}}
{{- define "cotenant.recorder" -}}
{{- $named := dig "profiler" "prometheus" "url" "" (.Values.settings | default dict) -}}
{{- $readers := or .Values.scan.enabled (include "cotenant.manager" .) -}}
{{- if kindIs "bool" .Values.recorder.enabled -}}{{- if .Values.recorder.enabled -}}true{{- end -}}
{{- else if and $readers (not $named) -}}true{{- end -}}
{{- end -}}

{{/* The port of the Prometheus that is named, as a JSON list; none where none is named. */}}
{{- define "cotenant.prometheusPort" -}}
{{- with dig "profiler" "prometheus" "url" "" (.Values.settings | default dict) -}}
{{- $written := regexFind "[0-9]+$" (regexFind ":[0-9]+$" (urlParse .).host) -}}
{{- list ($written | default (hasPrefix "https:" . | ternary "443" "80") | int) | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{/* Paths of the manifests of the components, once each, as a JSON list. */}}
{{- define "cotenant.files" -}}
{{- $components := (.Files.Get "files/components.json" | fromJson).components -}}
{{- $paths := list -}}
{{- range $name := include "cotenant.components" . | fromJsonArray -}}
{{- range $path := index $components $name -}}
{{- if hasSuffix ".yaml" $path -}}{{- $paths = append $paths (printf "files/%s" $path) -}}
{{- else if $.Values.crds.install -}}
{{- range $file, $_ := $.Files.Glob (printf "files/%s/*.yaml" $path) -}}{{- $paths = append $paths $file -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "cotenant.manager" . -}}{{- $paths = without $paths "files/scan.yaml" -}}{{- end -}}
{{- if or .Values.storage.existingClaim (not (include "cotenant.volume" .)) -}}
{{- $paths = without $paths "files/storage.yaml" -}}
{{- end -}}
{{- $paths | uniq | toJson -}}
{{- end -}}

{{/* "true" when the store is a folder on the volume. */}}
{{- define "cotenant.volume" -}}
{{- if hasPrefix "file:" (dig "store" "url" "file:" (.Values.settings | default dict)) -}}true{{- end -}}
{{- end -}}

{{/* Features of the manager that are off, as a JSON list: those of no component that is on. */}}
{{- define "cotenant.featuresOff" -}}
{{- $features := (.Files.Get "files/components.json" | fromJson).features -}}
{{- $on := list -}}{{- $off := list -}}
{{- range $name := include "cotenant.components" . | fromJsonArray -}}
{{- $on = concat $on (index $features $name | default list) -}}
{{- end -}}
{{- range $_, $names := $features -}}
{{- range $feature := $names -}}{{- if not (has $feature $on) -}}{{- $off = append $off $feature -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $off | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* Features of the manager that this upgrade switches off, as a JSON list: by the settings that are in force until now. */}}
{{- define "cotenant.featuresEnded" -}}
{{- $data := dig "data" dict (lookup "v1" "ConfigMap" .Release.Namespace "cotenant-settings" | default dict) -}}
{{- $before := dig "manager" "features_off" list (index $data "settings.yaml" | default "" | fromYaml) -}}
{{- $ended := list -}}
{{- if $data -}}
{{- range $feature := include "cotenant.featuresOff" . | fromJsonArray -}}
{{- if not (has $feature $before) -}}{{- $ended = append $ended $feature -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $ended -}}
{{- end -}}

{{/* "true" where this upgrade ends what writes into objects of others: a feature of the manager, or the node agent. */}}
{{- define "cotenant.ended" -}}
{{- $agent := and (not .Values.enforcement.enabled) (lookup "apps/v1" "DaemonSet" .Release.Namespace "cotenant-enforcer") -}}
{{- if or $agent (include "cotenant.featuresEnded" . | fromJsonArray) -}}true{{- end -}}
{{- end -}}

{{/* What every process but the node agent reads: the manifest's settings, the features that are off, your settings. YAML. */}}
{{- define "cotenant.settings" -}}
{{- $settings := index (.Files.Get "files/settings.yaml" | fromYaml).data "settings.yaml" | fromYaml -}}
{{- $_ := set $settings.manager "features_off" (include "cotenant.featuresOff" . | fromJsonArray) -}}
{{- if .Values.queues.enabled -}}{{- $_ := set $settings "queues" (dict "enabled" true "keep_gates_at_end" true) -}}{{- end -}}
{{- if .Values.descheduler.enabled -}}{{- $_ := set $settings "descheduler" (dict "enabled" true) -}}{{- end -}}
{{- if .Values.tainting.enabled -}}{{- $_ := set $settings "load_taints" (dict "enabled" true) -}}{{- end -}}
{{- if .Values.autopilot.enabled -}}
{{- $_ := set $settings "autopilot" (dict "enabled" true) -}}
{{- $_ := set $settings "actions" (dict "ledger" "/var/lib/cotenant/ledger.db") -}}
{{- end -}}
{{- mergeOverwrite $settings (deepCopy (.Values.settings | default dict)) | toYaml -}}
{{- end -}}

{{/* Labels of every object, over those that it has. */}}
{{- define "cotenant.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: cotenant
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* An image: dict "image" values, "root" $. */}}
{{- define "cotenant.image" -}}
{{- $name := .image.repository -}}
{{- with .image.registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}{{- end -}}
{{- if .image.digest -}}{{ $name }}@{{ .image.digest }}
{{- else -}}{{ $name }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}
