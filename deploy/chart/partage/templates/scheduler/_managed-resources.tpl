{{- /* Made by scripts/manifests.py; do not edit. */ -}}
{{- define "partage.managedResources" -}}
- {name: partage.dev/cards, ignoredByScheduler: false}
- {name: partage.dev/memory-mib, ignoredByScheduler: false}
- {name: partage.dev/memory-percent, ignoredByScheduler: false}
- {name: partage.dev/compute-percent, ignoredByScheduler: false}
- {name: aliyun.com/gpu-mem, ignoredByScheduler: false}
- {name: aliyun.com/gpu-core.percentage, ignoredByScheduler: false}
- {name: tke.cloud.tencent.com/qgpu-core, ignoredByScheduler: false}
- {name: tke.cloud.tencent.com/qgpu-core-greedy, ignoredByScheduler: false}
- {name: tke.cloud.tencent.com/qgpu-memory, ignoredByScheduler: false}
- {name: tencent.com/vcuda-core, ignoredByScheduler: false}
- {name: tencent.com/vcuda-memory, ignoredByScheduler: false}
- {name: elasticgpu.io/gpu-core, ignoredByScheduler: false}
- {name: elasticgpu.io/gpu-memory, ignoredByScheduler: false}
- {name: elasticgpu.com/gpu-core, ignoredByScheduler: false}
- {name: elasticgpu.com/gpu-memory, ignoredByScheduler: false}
- {name: partage.dev/claim, ignoredByScheduler: false}
- {name: tensorstack.dev/nvidia-gpu, ignoredByScheduler: false}
- {name: tensorstack.dev/nvidia-gpu-percent, ignoredByScheduler: false}
- {name: tensorstack.dev/nvidia-gpu-node, ignoredByScheduler: false}
- {name: nvidia.com/gpu, ignoredByScheduler: false}
- {name: nvidia.com/gpumem, ignoredByScheduler: true}
- {name: nvidia.com/gpumem-percentage, ignoredByScheduler: true}
- {name: nvidia.com/gpucores, ignoredByScheduler: true}
- {name: nvidia.com/priority, ignoredByScheduler: true}
{{- end -}}
