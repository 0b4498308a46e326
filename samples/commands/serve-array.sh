#!/bin/bash
MODEL="Qwen/Qwen3-VL-8B-Instruct"
TP=2
ARGS=(
  --tensor-parallel-size "$TP"      # both cards
  --max-model-len 65536
  --limit-mm-per-prompt '{"image": 8, "video": 1}'
  --mm-processor-kwargs '{"max_pixels": 1003520}'   # cap
)
# start it
exec vllm serve "$MODEL" "${ARGS[@]}" --port 9000
