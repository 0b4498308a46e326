vllm serve Qwen/Qwen2.5-VL-7B-Instruct \
  --max-model-len 8192 \   # enough for two pictures
  --limit-mm-per-prompt '{"image": 2}' \
  --port 8000
