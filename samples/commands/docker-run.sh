docker run -d --name vlm --gpus all --shm-size=2g \
  -e HF_TOKEN=$HF_TOKEN -e VLLM_USE_V1=1 \
  -v ~/.cache/huggingface:/root/.cache/huggingface -p 8000:8000 \
  vllm/vllm-openai:v0.8.5.post1 \
  --model Qwen/Qwen2.5-VL-7B-Instruct-AWQ \
  --quantization awq --max-model-len 16384
