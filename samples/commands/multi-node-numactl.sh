export NCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
sudo -E numactl --cpunodebind=0 --membind=0 vllm serve Qwen/Qwen3-VL-235B-A22B-Instruct -tp 8 -dp 2 --data-parallel-address 10.0.0.4 --headless
