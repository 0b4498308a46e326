vllm serve Qwen/Qwen2.5-VL-7B-Instruct \
  --tensor-parallel-size 2
  --max-model-len 8192 \
  --gpu-memory-utilization 0.85
