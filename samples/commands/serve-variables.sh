#!/bin/sh
MODEL_DIR=/models
MODEL=$MODEL_DIR/Qwen2-VL-7B-Instruct
EXTRA="--enforce-eager --max-num-seqs 4"
PORT=${PORT:-8001}
python3 -m vllm.entrypoints.openai.api_server --model "$MODEL" $EXTRA --port $PORT --api-key "$VLLM_KEY"
