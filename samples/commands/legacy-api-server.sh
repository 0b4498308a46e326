python3 -m vllm.entrypoints.api_server --model /models/Qwen2-VL-2B-Instruct --trust-remote-code --dtype half
