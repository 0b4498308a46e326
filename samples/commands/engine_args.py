from vllm import AsyncEngineArgs, AsyncLLMEngine

options = {"gpu_memory_utilization": 0.95, "max_num_seqs": 256}
args = AsyncEngineArgs(model='Qwen/Qwen2-VL-2B-Instruct', tensor_parallel_size=2, dtype='half', **options)
engine = AsyncLLMEngine.from_engine_args(args)
