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
{{- end -}}
