"""qvl-doctor: diagnosis, memory planning and safe correction of Qwen-VL servers on vLLM."""

__version__ = "0.1.0"
