{{/*
Puts values over the plain manifest of a Deployment, DaemonSet, CronJob or Pod, in place: dict "object" it, "root" $.
*/}}
{{- define "cotenant.workload" -}}
{{- $root := .root -}}{{- $object := .object -}}
{{- $name := $object.metadata.name | trimPrefix "cotenant-" -}}
{{- $values := index $root.Values.processes $name | default dict -}}
{{- $isCron := eq $object.kind "CronJob" -}}
{{- $template := $isCron | ternary (dig "spec" "jobTemplate" "spec" "template" dict $object) $object.spec.template -}}
{{- if eq $object.kind "Pod" -}}{{- $template = $object -}}{{- end -}}
{{- $pod := $template.spec -}}{{- $container := first $pod.containers -}}
{{- if not (kindIs "invalid" $values.replicas) -}}{{- $_ := set $object.spec "replicas" $values.replicas -}}{{- end -}}
{{- with $values.schedule -}}{{- $_ := set $object.spec "schedule" . -}}{{- end -}}
{{- $image := eq $name "enforcer" | ternary $root.Values.nodeImage $root.Values.image -}}
{{- range $pod.containers -}}
{{- $_ := set . "image" (include "cotenant.image" (dict "image" $image "root" $root)) -}}
{{- $_ := set . "imagePullPolicy" $image.pullPolicy -}}
{{- end -}}
{{- with $root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- $_ := include "cotenant.store" (dict "pod" $pod "template" $template "root" $root) -}}
{{- $_ := include "cotenant.env" (dict "name" $name "container" $container "values" $values "root" $root) -}}
{{- if and (eq $name "enforcer") (dig "runtime" "nri" false ($root.Values.settings | default dict)) -}}
{{- $_ := include "cotenant.folders" (dict "pod" $pod "container" $container "folders" (dict "nri" (dict "path" (dig "runtime" "nri_socket" "/var/run/nri/nri.sock" $root.Values.settings | dir) "type" "Directory"))) -}}
{{- end -}}
{{- if and (eq $name "enforcer") $root.Values.devices.enabled -}}
{{- $_ := include "cotenant.devices" (dict "pod" $pod "container" $container) -}}
{{- end -}}
{{- $_ := include "cotenant.certificates" (dict "name" $name "pod" $pod "container" $container "root" $root) -}}
{{- $_ := set $template.metadata "labels" (merge (dict "app.kubernetes.io/managed-by" $root.Release.Service) ($values.podLabels | default dict) $template.metadata.labels) -}}
{{- $notes := dict -}}
{{- range $pod.volumes -}}
{{- if eq (dig "configMap" "name" "" .) "cotenant-settings" -}}
{{- $_ := set $notes "cotenant.dev/settings-digest" (include "cotenant.settings" $root | sha256sum | trunc 16) -}}
{{- end -}}
{{- end -}}
{{- with merge $notes ($values.podAnnotations | default dict) ($template.metadata.annotations | default dict) -}}
{{- $_ := set $template.metadata "annotations" . -}}
{{- end -}}
{{- $_ := mergeOverwrite $container (deepCopy ($values.container | default dict)) -}}
{{- $security := dig "container" "securityContext" dict $values -}}
{{- range rest $pod.containers -}}{{- $_ := mergeOverwrite .securityContext (deepCopy $security) -}}{{- end -}}
{{- $_ := mergeOverwrite $pod (deepCopy ($values.pod | default dict)) -}}
{{- end -}}

{{/* The store's volume: another claim, or none when the store is elsewhere. Then nothing keeps the pods together. */}}
{{- define "cotenant.store" -}}
{{- $pod := .pod -}}
{{- if hasKey .template.metadata.labels "cotenant.dev/store" -}}
{{- if include "cotenant.volume" .root -}}
{{- with .root.Values.storage.existingClaim -}}
{{- range $pod.volumes -}}{{- if .persistentVolumeClaim -}}{{- $_ := set .persistentVolumeClaim "claimName" $.root.Values.storage.existingClaim -}}{{- end -}}{{- end -}}
{{- end -}}
{{- else -}}
{{- $_ := unset $pod "affinity" -}}{{- $_ := unset .template.metadata.labels "cotenant.dev/store" -}}
{{- $volumes := list -}}
{{- range $pod.volumes -}}{{- if ne .name "store" -}}{{- $volumes = append $volumes . -}}{{- end -}}{{- end -}}
{{- $_ := set $pod "volumes" $volumes -}}
{{- $container := first $pod.containers -}}{{- $mounts := list -}}
{{- range $container.volumeMounts -}}{{- if ne .name "store" -}}{{- $mounts = append $mounts . -}}{{- end -}}{{- end -}}
{{- $_ := set $container "volumeMounts" $mounts -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The node agent as driver of devices: its switch, and the folders that kubelet and runtime look into. */}}
{{- define "cotenant.devices" -}}
{{- $container := .container -}}{{- $pod := .pod -}}
{{- $names := list -}}{{- range $container.env -}}{{- $names = append $names .name -}}{{- end -}}
{{- if not (has "COTENANT_ENFORCER__DRA__ON" $names) -}}
{{- $_ := set $container "env" (append $container.env (dict "name" "COTENANT_ENFORCER__DRA__ON" "value" "true")) -}}
{{- end -}}
{{- $folders := dict -}}
{{- range $name, $path := dict "dra-plugin" "/var/lib/kubelet/plugins/node.cotenant.dev" "dra-registry" "/var/lib/kubelet/plugins_registry" "cdi" "/var/run/cdi" -}}
{{- $_ := set $folders $name (dict "path" $path "type" "DirectoryOrCreate") -}}
{{- end -}}
{{- include "cotenant.folders" (dict "pod" $pod "container" $container "folders" $folders) -}}
{{- end -}}

{{/* Folders of the node at their own paths in a container: dict "pod", "container", "folders" hostPath by name. */}}
{{- define "cotenant.folders" -}}
{{- $container := .container -}}{{- $pod := .pod -}}
{{- range $name, $folder := .folders -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" $name "mountPath" $folder.path)) -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" $name "hostPath" $folder)) -}}
{{- end -}}
{{- end -}}

{{/* The webhook's certificate by cert-manager, and a Secret of yours for the extender's. */}}
{{- define "cotenant.certificates" -}}
{{- if and (eq .name "webhook") .root.Values.certManager.enabled -}}
{{- $_ := set .container "command" (concat .container.command (list "--cert-dir" "/etc/cotenant-webhook")) -}}
{{- $mount := dict "name" "certificate" "mountPath" "/etc/cotenant-webhook" "readOnly" true -}}
{{- $_ := set .container "volumeMounts" (append .container.volumeMounts $mount) -}}
{{- $volume := dict "name" "certificate" "secret" (dict "secretName" "cotenant-webhook-tls" "defaultMode" 292) -}}
{{- $_ := set .pod "volumes" (append .pod.volumes $volume) -}}
{{- else if eq .name "extender" -}}
{{- with .root.Values.extenderCertificate.existingSecret -}}{{- $name := . -}}
{{- range $.pod.volumes -}}{{- if .secret -}}{{- $_ := set .secret "secretName" $name -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The container's environment: the manifest's, the cluster's name, the node agent's settings, the process' own values. */}}
{{- define "cotenant.env" -}}
{{- $settings := list -}}
{{- if eq .name "enforcer" -}}
{{- range $section := list "enforcer" "kube" "runtime" "telemetry" -}}
{{- with index ($.root.Values.settings | default dict) $section -}}
{{- $settings = concat $settings (include "cotenant.variables" (dict "prefix" (printf "COTENANT_%s" (upper $section)) "values" .) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .container.env -}}
{{- if eq .name "CLUSTER_NAME" -}}{{- $_ := set . "value" $.root.Values.clusterName -}}{{- end -}}
{{- end -}}
{{- $env := list -}}{{- $names := list -}}
{{- range $variables := list (.values.env | default list) $settings (.container.env | default list) -}}
{{- $more := list -}}
{{- range $variables -}}
{{- if not (has .name $names) -}}{{- $names = append $names .name -}}{{- $more = append $more . -}}{{- end -}}
{{- end -}}
{{- $env = concat $more $env -}}
{{- end -}}
{{- $_ := set .container "env" $env -}}
{{- end -}}

{{/* Settings as variables, because the node agent's image holds no YAML reader: dict "prefix", "values". A JSON list. */}}
{{- define "cotenant.variables" -}}
{{- $list := list -}}
{{- range $key, $value := .values -}}
{{- $name := printf "%s__%s" $.prefix (upper $key) -}}
{{- if kindIs "map" $value -}}
{{- $list = concat $list (include "cotenant.variables" (dict "prefix" $name "values" $value) | fromJsonArray) -}}
{{- else -}}
{{- $list = append $list (dict "name" $name "value" (kindIs "slice" $value | ternary (join "," $value) (kindIs "string" $value | ternary $value (toJson $value)))) -}}
{{- end -}}
{{- end -}}
{{- toJson $list -}}
{{- end -}}
