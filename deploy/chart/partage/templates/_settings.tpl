{{/* The settings of the programs, and kube-scheduler's configuration. docs/extender.md and docs/admission.md have all of them. */}}
{{- define "partage.extenderSettings" -}}
{{- $values := .Values.extender -}}
log_level = {{ $values.logLevel | quote }}

[server]
address = "0.0.0.0"
port = 12345
{{- include "partage.extenderCertificates" . }}

[decisions]
policy = {{ $values.policy | quote }}
nodes = {{ if kindIs "string" $values.nodes }}{{ $values.nodes | quote }}{{ else }}{{ int $values.nodes }}{{ end }}
{{ include "partage.requestSettings" . }}

[nodes]
taints = {{ if kindIs "invalid" $values.taints }}{{ .Values.admission.enabled }}{{ else }}{{ $values.taints }}{{ end }}

[scheduler]
http_timeout_s = {{ .Values.scheduler.httpTimeoutSeconds }}

[binds]
most_in_flight = {{ int $values.bindsInFlight }}

[leader]
elect = true
namespace = {{ .Release.Namespace | quote }}
name = {{ printf "%s-extender" (include "partage.name" .) | quote }}
lease_s = {{ $values.leaseSeconds }}
{{- end -}}

{{/*
With what the extender serves, and whom it believes. Its own certificates it keeps in two Secrets, of which the second is
for kube-scheduler. Those that are given are mounted.
*/}}
{{- define "partage.extenderCertificates" -}}
{{- $name := include "partage.name" . -}}
{{- if eq .Values.extender.certificates "own" }}

[certificates]
own = true
namespace = {{ .Release.Namespace | quote }}
service = "{{ $name }}-extender"
secret = "{{ $name }}-extender-tls"
scheduler_secret = "{{ $name }}-scheduler-tls"
{{- else }}
certificate = "/tls/tls.crt"
key = "/tls/tls.key"
client_ca = "/tls/ca.crt"
{{- end }}
{{- end -}}

{{- define "partage.admissionSettings" -}}
{{- $values := .Values.admission -}}
log_level = {{ $values.logLevel | quote }}

[server]
address = "0.0.0.0"
port = 9443

[certificate]
{{ if eq $values.certificates "own" -}}
secret = {{ printf "%s-admission-tls" (include "partage.name" .) | quote }}
{{- else -}}
certificate = "/tls/tls.crt"
key = "/tls/tls.key"
{{- end }}

[service]
name = {{ printf "%s-admission" (include "partage.name" .) | quote }}
namespace = {{ .Release.Namespace | quote }}

[pods]
{{- with $values.runtimeClass }}
runtime_class = {{ . | quote }}
{{- end }}
{{- if include "partage.setsSchedulerName" . }}
scheduler_name = {{ include "partage.schedulerName" . | quote }}
{{- end }}
larger_than_any_card = {{ $values.largerThanAnyCard | quote }}
{{ include "partage.requestSettings" . }}
{{- end -}}

{{/* How requests are read: the same for the extender, which decides, and for the webhooks, which judge before. */}}
{{- define "partage.requestSettings" -}}
memory_unit = {{ .Values.requests.memoryUnit | quote }}
qgpu_max_cards = {{ int .Values.requests.qgpuMaxCards }}
{{- with .Values.requests.tflops }}
tflops = { {{- range $i, $model := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ $model | quote }} = {{ index $.Values.requests.tflops $model }}{{ end -}} }
{{- end }}
{{- end -}}

{{/*
The scheduler that comes with the chart: kube-scheduler as it is, under a name of its own, with the extender.
deploy/scheduler-config.yaml is the same for a scheduler that is there, and has the reasons.
*/}}
{{- define "partage.schedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: {{ include "partage.name" . }}-scheduler
profiles:
{{- range prepend .Values.scheduler.otherNames (include "partage.schedulerName" .) | uniq }}
- schedulerName: {{ . }}
  percentageOfNodesToScore: 100
{{- end }}
extenders:
- urlPrefix: https://{{ include "partage.name" . }}-extender.{{ .Release.Namespace }}.svc/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 10
  httpTimeout: {{ .Values.scheduler.httpTimeoutSeconds }}s
  nodeCacheCapable: true
  ignorable: false
  enableHTTPS: true
  tlsConfig:
    caFile: /tls/ca.crt
    certFile: /tls/tls.crt
    keyFile: /tls/tls.key
  managedResources:
  {{- range include "partage.managedResources" . | fromYamlArray }}
  {{- if not (has .name $.Values.scheduler.unmanagedResources) }}
  - {name: {{ .name }}, ignoredByScheduler: {{ .ignoredByScheduler }}}
  {{- end }}
  {{- end }}
{{- end -}}
