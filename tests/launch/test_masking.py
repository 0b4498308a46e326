"""Secrets never reach a screen, a record or a log."""

from __future__ import annotations

import pytest

from qvl_doctor.core.masking import masked


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve A --api-key S3CRETVALUE --port 1",
        "vllm serve A --api-key=S3CRETVALUE --port 1",
        "vllm serve A --api_key 'S3CRETVALUE'",
        "vllm serve A --hf-token S3CRETVALUE",
        "HF_TOKEN=S3CRETVALUE vllm serve A",
        'docker run -e "HUGGING_FACE_HUB_TOKEN=S3CRETVALUE" img',
        "      VLLM_API_KEY: S3CRETVALUE",
        "- name: HF_TOKEN\n  value: S3CRETVALUE",
        "Environment=MY_SECRET=S3CRETVALUE",
        "DB_PASSWORD='S3CRETVALUE with blanks'",
        "Authorization: Bearer S3CRETVALUE",
        "{'api_key': 'S3CRETVALUE', 'port': 1}",
        "api_key='S3CRETVALUE', port=1",
        "api_key=['S3CRETVALUE'], port=1",
        '"AWS_SECRET_ACCESS_KEY": "S3CRETVALUE"',
        "http://user:S3CRETVALUE@proxy:3128",
        "key sk-S3CRETVALUE12345 is used",
        "hf_S3CRETVALUEabcdef",
        "password: S3CRETVALUE",
        "GITLAB_TOKEN: 'S3CRETVALUE'",
        "vllm serve A --api-key abc S3CRETVALUE --port 1",
        "vllm serve A --api-key \\\n  S3CRETVALUE \\\n  --port 1",
        'CMD ["A", "--api-key", "S3CRETVALUE", "--port", "1"]',
        "args:\n- --api-key\n- abc\n- S3CRETVALUE\n- --port\n",
        '  - "--api-key"\n  - "S3CRETVALUE"\n  - name: x',
        "'api_key': ['abc', 'S3CRETVALUE'], 'port': 1",
        "api-key: [abc, S3CRETVALUE]",
        'os.environ["HF_TOKEN"] = "S3CRETVALUE"',
        "ENV HF_TOKEN S3CRETVALUE",
        "setenv HF_TOKEN S3CRETVALUE",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    shown = masked(text)
    assert "S3CRETVALUE" not in shown
    assert "****" in shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve A --max-num-batched-tokens 8192 --port 8000",
        "GPU KV cache size: 53,248 tokens",
        "--tokenizer-mode auto --tokenizer /models/a",
        "max_num_batched_tokens=2048, api_key=None, hf_token=None",
        "INFO: the api key is not set, token count 12",
        "-e HF_TOKEN=$HF_TOKEN",
        "KeyError: 'visual.blocks.0'",
        "limit: 1000 tokens per second",
        "image_token_id: 151655, vision_start_token_id=151652",
        "--api-key --port 1",
        '["--api-key", "--port", "1"]',
        "- --api-key\n- --port\n",
        "",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert masked(text) == text


def test_what_follows_a_key_stays() -> None:
    assert masked("vllm serve --api-key abc Qwen/Qwen2-VL-2B-Instruct") == (
        "vllm serve --api-key **** Qwen/Qwen2-VL-2B-Instruct"
    )
    assert masked("- --api-key\n- abc\n- name: sidecar\n") == "- --api-key\n- ****\n- name: sidecar\n"
    assert masked("vllm serve A --api-key abc > server.log 2>&1 &") == "vllm serve A --api-key **** > server.log 2>&1 &"
    assert masked("vllm serve A --api-key abc\ncurl localhost\n") == "vllm serve A --api-key ****\ncurl localhost\n"
