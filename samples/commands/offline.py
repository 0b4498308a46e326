"""Describe a folder of pictures."""
import os

os.environ["VLLM_USE_V1"] = "0"

from vllm import LLM, SamplingParams

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"

llm = LLM(
    model=MODEL,
    max_model_len=8192,
    limit_mm_per_prompt={"image": 10, "video": 1},  # 图片上限
    mm_processor_kwargs={"min_pixels": 28 * 28, "max_pixels": 1280 * 28 * 28},
    enforce_eager=True,
)
print(llm.generate("hello", SamplingParams(max_tokens=8)))
