xinference launch --model-engine vllm --model-name qwen2.5-vl-instruct --size-in-billions 7 --n-gpu 2 --gpu_memory_utilization 0.9
