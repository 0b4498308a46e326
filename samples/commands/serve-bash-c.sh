tmux new-session -d -s vlm "true"
bash -lc "source /opt/venv/bin/activate && VLLM_USE_V1=0 vllm serve Qwen/Qwen2-VL-7B-Instruct --limit-mm-per-prompt '{\"image\": 5}' --port 8000"
