{{- /* Made by scripts/manifests.py; do not edit. */ -}}
{{- define "partage.resourcesOfDialects" -}}
byDefault:
- partage
- aliyun
- qgpu
- gaia
- claims
- t9k
- nvidia
dialects:
  partage:
  - partage.dev/cards
  - partage.dev/memory-mib
  - partage.dev/memory-percent
  - partage.dev/compute-percent
  aliyun:
  - aliyun.com/gpu-mem
  - aliyun.com/gpu-core.percentage
  qgpu:
  - tke.cloud.tencent.com/qgpu-core
  - tke.cloud.tencent.com/qgpu-core-greedy
  - tke.cloud.tencent.com/qgpu-memory
  gaia:
  - tencent.com/vcuda-core
  - tencent.com/vcuda-memory
  elastic:
  - elasticgpu.io/gpu-core
  - elasticgpu.io/gpu-memory
  - elasticgpu.com/gpu-core
  - elasticgpu.com/gpu-memory
  claims:
  - partage.dev/claim
  t9k:
  - tensorstack.dev/nvidia-gpu
  - tensorstack.dev/nvidia-gpu-percent
  - tensorstack.dev/nvidia-gpu-node
  hami:
  - nvidia.com/gpu
  - nvidia.com/gpumem
  - nvidia.com/gpumem-percentage
  - nvidia.com/gpucores
  - nvidia.com/priority
  nvidia:
  - nvidia.com/gpu
{{- end -}}
