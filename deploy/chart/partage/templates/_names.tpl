{{/*
Names and labels. A cluster has one Partage, as two would grant the same cards twice, so names do not carry that of
the release. The guard's policies and the configurations of the webhooks always have the names that the programs know.
*/}}
{{- define "partage.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{/* The labels of an object: (list $ component). */}}
{{- define "partage.labels" -}}
{{- $root := index . 0 -}}
{{ include "partage.selector" . }}
app.kubernetes.io/part-of: partage
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Those by which the pods of a component are found, and which never change: (list $ component). */}}
{{- define "partage.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "partage.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The labels of pods, which change only with what they run: (list $ component). */}}
{{- define "partage.podLabels" -}}
{{ include "partage.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end -}}

{{/* The account of a component, as the API server names it: (list $ component). */}}
{{- define "partage.account" -}}
{{- $root := index . 0 -}}
system:serviceaccount:{{ $root.Release.Namespace }}:{{ include "partage.name" $root }}-{{ index . 1 }}
{{- end -}}

{{/* The name by which pods ask for the scheduler that asks the extender; empty: that of the cluster. */}}
{{- define "partage.schedulerName" -}}
{{- if eq .Values.scheduler.mode "own" -}}
{{ .Values.scheduler.name | default (printf "%s-scheduler" (include "partage.name" .)) }}
{{- else -}}
{{ .Values.scheduler.name }}
{{- end -}}
{{- end -}}

{{/* Whether the webhooks write that name on pods; "" means no. */}}
{{- define "partage.setsSchedulerName" -}}
{{- $chosen := .Values.admission.setSchedulerName -}}
{{- if kindIs "invalid" $chosen -}}
{{- $chosen = eq .Values.scheduler.mode "own" -}}
{{- end -}}
{{- if $chosen }}yes{{ end -}}
{{- end -}}

{{/* The namespaces that the guard leaves out by name: that of the agent, which mounts what is forbidden to others. */}}
{{- define "partage.exceptedNamespaces" -}}
{{- prepend .Values.guard.exceptNamespaces .Release.Namespace | uniq | toJson -}}
{{- end -}}

{{/* The programs of this installation, each with the port on which it answers. */}}
{{- define "partage.components" -}}
- {name: extender, port: https}
{{- if .Values.admission.enabled }}
- {name: admission, port: https}
{{- end }}
{{- if eq .Values.scheduler.mode "own" }}
- {name: scheduler, port: https}
{{- end }}
{{- if .Values.agent.enabled }}
- {name: agent, port: metrics}
{{- end }}
{{- end -}}
