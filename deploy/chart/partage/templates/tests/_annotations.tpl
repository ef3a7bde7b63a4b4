{{/* Of the rights that are there for `helm test` alone: before its pod, and gone when it is done. */}}
{{- define "partage.testAnnotations" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
