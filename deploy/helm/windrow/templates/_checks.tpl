{{/*
What values.schema.json can't say: values that do not go together. Each failure says what to do.
Included by the scheduler's Deployment, which is always there.
*/}}
{{- define "windrow.checks" -}}
{{- $v := .Values -}}
{{- if not $v.storage.url -}}
{{- fail "storage.url is missing: the root on object storage where the scheduler keeps its state, for example s3://lake/windrow" -}}
{{- end -}}
{{- if and $v.tls.enabled (not (and $v.tls.scheduler.existingSecret $v.tls.executor.existingSecret)) -}}
{{- fail "tls.enabled needs tls.scheduler.existingSecret and tls.executor.existingSecret (keys tls.crt, tls.key, ca.crt)" -}}
{{- end -}}
{{- if not (or $v.insecureRemote (and $v.tls.enabled (or $v.tls.mutual $v.auth.existingSecret))) -}}
{{- fail "the scheduler would listen without TLS, or to anybody: set tls.enabled with tls.mutual or auth.existingSecret, or say insecureRemote: true" -}}
{{- end -}}
{{- if and $v.tls.enabled $v.tls.mutual (or $v.pipelines $v.metrics.podMonitor.enabled) (not $v.tls.client.existingSecret) -}}
{{- fail "tls.mutual needs tls.client.existingSecret: pipelines and Prometheus have to show a certificate" -}}
{{- end -}}
{{- range $role := list "scheduler" "executor" -}}
{{- if not (or $v.serviceAccount.create (index $v.serviceAccount $role).name) -}}
{{- fail (printf "serviceAccount.create is false: name an account in serviceAccount.%s.name" $role) -}}
{{- end -}}
{{- end -}}
{{- with $v.autoscaling -}}
{{- if and (eq .kind "keda") (not .keda.serverAddress) -}}
{{- fail "autoscaling.kind keda needs autoscaling.keda.serverAddress, the URL of a Prometheus" -}}
{{- end -}}
{{- if and .keda.authModes (not .keda.authenticationRef) -}}
{{- fail "autoscaling.keda.authModes needs autoscaling.keda.authenticationRef, the TriggerAuthentication with the secrets" -}}
{{- end -}}
{{- if and (eq .kind "hpa") (lt (int .minReplicas) 1) -}}
{{- fail "autoscaling.minReplicas must be 1 or more with hpa; only keda starts from none" -}}
{{- end -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- $names := dict -}}
{{- range $v.pipelines -}}
{{- if hasKey $names .name -}}
{{- fail (printf "two pipelines are named %s" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- if and .files .existingConfigMap -}}
{{- fail (printf "pipeline %s has both files and existingConfigMap" .name) -}}
{{- end -}}
{{- if not (or .files .existingConfigMap) -}}
{{- fail (printf "pipeline %s has neither files nor existingConfigMap" .name) -}}
{{- end -}}
{{- if and .files (not (or (hasKey .files "windrow.yml") (hasKey .files "spark-pipeline.yml"))) -}}
{{- fail (printf "pipeline %s has no file windrow.yml or spark-pipeline.yml" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
