{{/* After `helm uninstall` has removed all else; it goes when it is done, and stays with its log if it fails: (weight). */}}
{{- define "partage.cleanupAnnotations" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
