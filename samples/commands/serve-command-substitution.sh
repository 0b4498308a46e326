vllm serve "$(cat model.txt)" --tensor-parallel-size $(nvidia-smi -L | wc -l) --max-model-len 8192
