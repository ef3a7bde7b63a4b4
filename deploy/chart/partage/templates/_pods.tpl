{{/* What the pods of the programs have in common. */}}
{{- define "partage.image" -}}
{{- $image := .Values.image -}}
{{- $tag := $image.tag -}}
{{- if not $image.digest -}}{{- $tag = $tag | default .Chart.AppVersion -}}{{- end -}}
{{ $image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* kube-scheduler of the cluster's own version, without what a provider appends to it. */}}
{{- define "partage.schedulerImage" -}}
{{- $image := .Values.scheduler.image -}}
{{- $tag := $image.tag -}}
{{- if not $image.digest -}}
{{- $tag = $tag | default (regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{ $image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* The part of a pod of the control plane that is the same for all: (list $ component values). */}}
{{- define "partage.controlPlanePod" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
serviceAccountName: {{ include "partage.name" $root }}-{{ index . 1 }}
{{- include "partage.placed" (list $root $values) }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "partage.selector" (list $root (index . 1)) | nindent 6 }}
securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- end -}}

{{/* Where a pod may be, and how important it is: (list $ values). */}}
{{- define "partage.placed" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "partage.noRights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The probes of a program of ours with TLS. */}}
{{- define "partage.probes" -}}
readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}, periodSeconds: 2}
livenessProbe: {httpGet: {path: /healthz, port: https, scheme: HTTPS}, periodSeconds: 10}
{{- end -}}
