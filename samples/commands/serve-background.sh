#!/usr/bin/env bash
# Two cards, log to a file
set -euo pipefail
export HF_HOME=/data/hf
CUDA_VISIBLE_DEVICES=0,1 nohup /opt/venv/bin/vllm serve /data/models/Qwen2.5-VL-32B-Instruct \
    --served-model-name qwen-vl \
    --tensor-parallel-size 2 \
    --max-model-len 16384 \
    --gpu-memory-utilization 0.92 > server.log 2>&1 &
echo "pid $!"
