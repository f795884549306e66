{{/* Names, labels and the parts of pods that scheduler, executors and pipelines share. */}}

{{/* Short, since names of StatefulSets, CronJobs and their pods are made from it. */}}
{{- define "windrow.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "windrow.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What selects pods: never changed in the life of a release. Takes (list $ "component"). */}}
{{- define "windrow.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "windrow.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
A new version of the chart alone must not restart pods, so that it is no label of theirs.
Takes (list $ "component") and perhaps labels of the user, which never win over ours.
*/}}
{{- define "windrow.podLabels" -}}
{{- $root := index . 0 -}}
{{- $own := include "windrow.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "windrow" -}}
{{- $more := dict -}}
{{- if gt (len .) 2 -}}
{{- $more = deepCopy (index . 2) -}}
{{- end -}}
{{- toYaml (merge $own $more $root.Values.commonLabels) -}}
{{- end -}}

{{- define "windrow.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := include "windrow.podLabels" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_")) -}}
{{- toYaml $labels -}}
{{- end -}}

{{- define "windrow.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "windrow.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Takes (list $ "scheduler"|"executor"). */}}
{{- define "windrow.serviceAccountName" -}}
{{- $root := index . 0 -}}
{{- $given := (index $root.Values.serviceAccount (index . 1)).name -}}
{{- default (printf "%s-%s" (include "windrow.fullname" $root) (index . 1)) $given -}}
{{- end -}}

{{- define "windrow.executorService" -}}
{{- printf "%s-executors" (include "windrow.fullname" .) -}}
{{- end -}}

{{/* Name of a Service with its domain. Takes (list $ "service"). */}}
{{- define "windrow.host" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s.svc.%s" (index . 1) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}

{{/* URL of the scheduler by one of its Services. Takes (list $ "service"). */}}
{{- define "windrow.schedulerUrl" -}}
{{- $root := index . 0 -}}
{{- printf "%s://%s:%d" (ternary "https" "http" $root.Values.tls.enabled) (include "windrow.host" .) (int $root.Values.scheduler.service.port) -}}
{{- end -}}

{{/* Environment of a server. Takes (list $ values-of-the-role). */}}
{{- define "windrow.env" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
- name: WINDROW_LOG
  value: {{ $root.Values.logLevel | quote }}
- name: WINDROW_LOG_FORMAT
  value: {{ $root.Values.logFormat }}
{{- with $root.Values.traces.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with $root.Values.objectStore }}
{{- with .region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- if hasPrefix "http://" . }}
- name: AWS_ALLOW_HTTP
  value: "true"
{{- end }}
{{- end }}
{{- end }}
{{- with concat $root.Values.extraEnv $role.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "windrow.envFrom" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $sources := concat $root.Values.extraEnvFrom $role.extraEnvFrom -}}
{{- with $root.Values.objectStore.existingSecret -}}
{{- $sources = prepend $sources (dict "secretRef" (dict "name" .)) -}}
{{- end -}}
{{- with $sources }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Numbers in values are floats to Helm, and large ones would be written with an exponent. */}}
{{- define "windrow.argument" -}}
{{- if and (kindIs "float64" .) (eq (float64 (int64 .)) .) -}}
{{ int64 . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{/* Where secrets are mounted; the volumes belong to it. Takes (list $ "secret with the certificate"). */}}
{{- define "windrow.secretMounts" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.auth.existingSecret }}
- name: token
  mountPath: /etc/windrow/token
  readOnly: true
{{- end }}
{{- if $root.Values.tls.enabled }}
- name: tls
  mountPath: /etc/windrow/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "windrow.secretVolumes" -}}
{{- $root := index . 0 -}}
{{- $certificate := index . 1 -}}
{{- with $root.Values.auth.existingSecret }}
- name: token
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - key: {{ $root.Values.auth.key }}
        path: token
{{- end }}
{{- if $root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ default $root.Values.tls.scheduler.existingSecret $certificate }}
    defaultMode: 0440
    {{- if not $certificate }}
    items:
      - key: ca.crt
        path: ca.crt
    {{- end }}
{{- end }}
{{- end -}}

{{/* A constraint without labelSelector is about the pods of the component. Takes (list $ "component" constraints). */}}
{{- define "windrow.spread" -}}
{{- $selector := include "windrow.selector" (list (index . 0) (index . 1)) | fromYaml -}}
{{- with index . 2 }}
topologySpreadConstraints:
{{- range . }}
  {{- $own := dict "labelSelector" (dict "matchLabels" $selector) }}
  - {{ toYaml (merge (deepCopy .) (ternary (dict) $own (hasKey . "labelSelector"))) | nindent 4 | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where and how urgently pods run. Takes the values of the role. */}}
{{- define "windrow.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The three probes. Takes (dict "kind" "http|tcp" "port" "name" "startSeconds" n). */}}
{{- define "windrow.probes" -}}
startupProbe:
  {{- include "windrow.probe" (merge (dict "path" "/health/live") .) | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ max 1 (div (int .startSeconds) 2) }}
livenessProbe:
  {{- include "windrow.probe" (merge (dict "path" "/health/live") .) | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- include "windrow.probe" (merge (dict "path" "/health/ready") .) | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- define "windrow.probe" -}}
{{- if eq .kind "tcp" -}}
tcpSocket:
  port: {{ .port }}
{{- else -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  scheme: HTTP
{{- end -}}
{{- end -}}

{{/*
What queries of an executor may hold: as said, or half of the container's limit, since the program
can't be sure to see that limit and would take half of the node's. Empty without either.
*/}}
{{- define "windrow.memoryLimit" -}}
{{- $role := .Values.executor -}}
{{- if not (kindIs "invalid" $role.memoryLimitBytes) -}}
{{- int64 $role.memoryLimitBytes -}}
{{- else -}}
{{- with ($role.resources.limits | default dict).memory -}}
{{- $text := toString . -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if not (hasKey $units $unit) -}}
{{- fail (printf "executor.resources.limits.memory: write %s with Ki, Mi, Gi or Ti, or set executor.memoryLimitBytes" $text) -}}
{{- end -}}
{{- divf (mulf (trimSuffix $unit $text | float64) (get $units $unit)) 2 | floor | int64 -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Slices that one executor should have, queued or running. */}}
{{- define "windrow.slicesPerExecutor" -}}
{{- default .Values.executor.slots .Values.autoscaling.slicesPerExecutor | int -}}
{{- end -}}

{{/* How fast executors come and go; of a HorizontalPodAutoscaler, ours or KEDA's. */}}
{{- define "windrow.scalingBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  policies:
    - type: Pods
      value: {{ .Values.autoscaling.scaleUpPods }}
      periodSeconds: 60
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDownSeconds }}
  policies:
    - type: Percent
      value: 50
      periodSeconds: 60
{{- end -}}
