{{/* Labels of all that the chart makes; those of the operator's own objects are gpushare.operatorLabels. */}}
{{- define "gpushare.labels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* gpushare's own image. */}}
{{- define "gpushare.image" -}}
{{- $image := .Values.image -}}
{{- $name := $image.repository -}}
{{- if $image.registry }}{{ $name = printf "%s/%s" $image.registry $image.repository }}{{ end -}}
{{- if $image.digest }}{{ printf "%s@%s" $name $image.digest -}}
{{- else }}{{ printf "%s:%s" $name ($image.tag | default .Chart.AppVersion) }}{{ end -}}
{{- end }}

{{/* The ConfigMap with configs of NVIDIA's plugin. */}}
{{- define "gpushare.pluginConfig" -}}
{{- $config := .Values.devicePlugin.config -}}
{{- $config.name | default (ternary "device-plugin-config" "" $config.create) -}}
{{- end }}

{{/* What the pods of the operator, the hooks and the test have in common. They need no rights on their node. */}}
{{- define "gpushare.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpushare.container" -}}
image: {{ include "gpushare.image" . | quote }}
imagePullPolicy: IfNotPresent
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The spec of the ClusterPolicy: the values of the same names, without what only the chart needs. */}}
{{- define "gpushare.policy" -}}
{{- $values := deepCopy .Values -}}
{{- $plugin := $values.devicePlugin -}}
{{- $config := dict "name" (include "gpushare.pluginConfig" .) "default" $plugin.config.default -}}
{{- $spec := omit $values "global" "image" "imagePullSecrets" "nfd" "psa"
  "cdi" "ccManager" "dcgm" "draDriver" "gdrcopy" "gds" "kataManager" "kataSandboxDevicePlugin" "psp"
  "sandboxDevicePlugin" "sandboxWorkloads" -}}
{{- $_ := set $spec "operator" (pick $values.operator "runtimeClass") -}}
{{- $_ := set $spec "devicePlugin" (set $plugin "config" $config) -}}
{{- $_ := set $spec "finder" (set $values.finder "enabled" $values.nfd.enabled) -}}
{{- toYaml $spec -}}
{{- end }}

{{/* Annotations of a Job of helm's, and of its account and rights, which come first (weight -1). Nothing of it is left
when it has ended, whichever way. */}}
{{- define "gpushare.hook" -}}
helm.sh/hook: {{ .event }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{/* A Job of helm's that runs `gpushare operator` with flags, by the account of this name. */}}
{{- define "gpushare.job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "gpushare.labels" .root | nindent 4 }}
  annotations:
    {{- include "gpushare.hook" (dict "event" .event "weight" 0) | nindent 4 }}
    helm.sh/hook-output-log-policy: hook-failed # its log is shown, and then it is deleted; helm 3.18 and later
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 600 # helm waits for 300 s, unless told otherwise
  template:
    metadata:
      labels: {{- include "gpushare.labels" .root | nindent 8 }}
    spec:
      serviceAccountName: {{ .account }}
      restartPolicy: OnFailure
      {{- include "gpushare.pod" .root | trim | nindent 6 }}
      containers:
        - name: operator
          {{- include "gpushare.container" .root | nindent 10 }}
          args: {{ toJson .args }}
          env:
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          resources: {{- toYaml .root.Values.operator.resources | nindent 12 }}
{{- end }}
