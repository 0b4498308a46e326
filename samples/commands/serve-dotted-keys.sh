vllm serve Qwen/Qwen3-VL-4B-Instruct -tp=1 -q fp8 -O3 \
  --limit-mm-per-prompt.image 3 --limit-mm-per-prompt.video=0 \
  --mm-processor-kwargs.max_pixels=1003520 --no-enable-prefix-caching --max_num_seqs 16
