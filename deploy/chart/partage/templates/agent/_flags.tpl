{{/* The agent's settings are flags: it has no file. What is as the agent has it by itself is left out. */}}
{{- define "partage.agentFlags" -}}
{{- $values := .Values.agent -}}
- --address=0.0.0.0 # for scraping: docs/agent-metrics.md
{{- with $values.dialects }}
- --dialects={{ join "," . }}
{{- end }}
{{- if ne .Values.requests.memoryUnit "auto" }}
- --memory-unit={{ .Values.requests.memoryUnit }}
{{- end }}
{{- if ne (int $values.hamiSplit) 10 }}
- --hami-split={{ int $values.hamiSplit }}
{{- end }}
{{- if ne $values.driverFiles "auto" }}
- --driver-files={{ $values.driverFiles }}
{{- end }}
{{- if ne $values.outside "end" }}
- --outside={{ $values.outside }}
{{- end }}
{{- range $values.outsideClasses }}
- --outside-class={{ . }}
{{- end }}
{{- range $values.computeClasses }}
- --compute-class={{ . }}
{{- end }}
{{- if ne (int $values.quietAfterXidSeconds) 60 }}
- --quiet-after-xid={{ int $values.quietAfterXidSeconds }}
{{- end }}
{{- with $values.oldMetrics }}
- --old-metrics={{ join "," . }}
{{- end }}
{{- if $values.t9kLabel }}
- --t9k-label
{{- end }}
{{- if ne $values.kubeletFolder "/var/lib/kubelet" }}
- --kubelet-folder={{ $values.kubeletFolder }}
{{- end }}
{{- if ne $values.logLevel "info" }}
- --log-level={{ $values.logLevel }}
{{- end }}
{{- end -}}
