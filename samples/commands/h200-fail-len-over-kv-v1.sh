#!/bin/sh
# The command whose output is samples/logs/h200-fail-len-over-kv-v1.log
export VLLM_USE_V2_MODEL_RUNNER=0

vllm serve Qwen/Qwen2.5-VL-7B-Instruct \
  --enforce-eager \
  --max-model-len 128000 \
  --limit-mm-per-prompt '{"image":1,"video":0}' \
  --max-num-batched-tokens 2048 \
  --max-num-seqs 256 \
  --gpu-memory-utilization 0.15451   # 0.9 of a 24 GiB card, on a card of 141 GiB
