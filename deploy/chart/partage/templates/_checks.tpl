{{/*
Values that contradict each other. A schema could refuse them, too, but only with a text about schemas; what is wrong
with a single value stands there.
*/}}
{{- define "partage.check" -}}
{{- $scheduler := .Values.scheduler -}}
{{- $admission := .Values.admission -}}
{{- if and (eq $scheduler.mode "existing") (not $scheduler.name) (include "partage.setsSchedulerName" .) -}}
{{- fail "admission.setSchedulerName: there is no name to set, because scheduler.mode is existing and scheduler.name is empty; set scheduler.name to the profile that asks the extender, or admission.setSchedulerName=false" -}}
{{- end -}}
{{- if and (eq $scheduler.mode "own") (eq $scheduler.name "default-scheduler") -}}
{{- fail "scheduler.name: default-scheduler is the cluster's own, and two of one name would both schedule the same pods; leave it empty, or set scheduler.mode=existing and give the cluster's scheduler the extender (partage scheduler-config)" -}}
{{- end -}}
{{- if and (eq $scheduler.mode "own") (has "default-scheduler" $scheduler.otherNames) -}}
{{- fail "scheduler.otherNames: default-scheduler is the cluster's own, and two of one name would both schedule the same pods; leave it out: the webhooks write the name of the chart's scheduler on pods with cards" -}}
{{- end -}}
{{- if and $admission.setSchedulerName (not $admission.enabled) -}}
{{- fail "admission.setSchedulerName: nobody sets it, because admission.enabled is false; enable admission, or write schedulerName into pods and leave setSchedulerName out" -}}
{{- end -}}
{{- if and .Values.extender.taints (not $admission.enabled) -}}
{{- fail "extender.taints: nobody adds tolerations to pods, because admission.enabled is false, and the taints would keep away the pods that a node is for; enable admission, or leave extender.taints out" -}}
{{- end -}}
{{- if and (eq $admission.certificates "own") $admission.caBundle -}}
{{- fail "admission.caBundle: the webhooks make their own certificate, and write its authority themselves; set admission.certificates=given, or leave caBundle out" -}}
{{- end -}}
{{- if and (eq $admission.certificates "given") (not $admission.caBundle) (not $admission.webhookAnnotations) -}}
{{- fail "admission.caBundle: with a certificate that is given, the API server has to be told whom to believe; set caBundle, or admission.webhookAnnotations for what injects it (cert-manager.io/inject-ca-from)" -}}
{{- end -}}
{{- if and (not .Values.crds.install) (not .Values.crds.keep) -}}
{{- fail "crds.keep: with crds.install=false and crds.keep=false the next upgrade would delete the definitions, and with them all claims; set crds.keep=true" -}}
{{- end -}}
{{- include "partage.checkDialects" . -}}
{{- end -}}

{{/* What agents offer and nobody decides about would be bound without a card, and never start. */}}
{{- define "partage.checkDialects" -}}
{{- $resources := include "partage.resourcesOfDialects" . | fromYaml -}}
{{- $dialects := .Values.agent.dialects | default $resources.byDefault -}}
{{- if and .Values.agent.enabled (eq .Values.scheduler.mode "own") -}}
{{- range $dialect := $dialects -}}
{{- range $resource := index $resources.dialects $dialect -}}
{{- if has $resource $.Values.scheduler.unmanagedResources -}}
{{- fail (printf "scheduler.unmanagedResources: the agents offer %s in the dialect %s, and nobody would decide about it, so that pods with it would never start; leave it out here, or set agent.dialects, without %s" $resource $dialect $dialect) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
