"""Makes golden.jsonl with llama.cpp: its server answers greedily, by the model's own chat template.

    LLAMA_SERVER=path/of/llama-server python make_golden.py MODEL.gguf

Programs round the products of 4-bit weights differently, so two tokens that are nearly as likely may change places. Questions are kept
whose answers have no such place: the first token is everywhere at least LEAD (in log-probability) before the second.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402

SYSTEM = "You are a helpful assistant. Answer in one short sentence."
QUESTIONS = ["What is the capital of France?", "What is 2 + 2?", "Name a colour.", "Why is the sky blue?", "What do bees make?",
             "Which animal barks?", "How many days has a week?", "What is water made of?", "What is the opposite of hot?", "Who wrote Hamlet?",
             "What is the largest planet?", "Say hello.", "What colour is grass?", "In which country is Berlin?", "Spell the word cat.",
             "What do we call frozen water?", "What is the first month of the year?", "Is fire cold?"]
LEAD = 0.25
PORT = 18099


def ask(question):
    body = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}], "temperature": 0, "top_k": 1,
            "max_tokens": 24, "cache_prompt": False, "logprobs": True, "top_logprobs": 2}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as got:
        choice = json.load(got)["choices"][0]
    tops = [t["top_logprobs"] for t in choice["logprobs"]["content"]]
    clear = all(len(t) < 2 or t[0]["logprob"] - t[1]["logprob"] >= LEAD for t in tops)
    return clear, {"answer": choice["message"]["content"], "finish_reason": choice["finish_reason"]}


def main():
    server = subprocess.Popen([os.environ["LLAMA_SERVER"], "-m", sys.argv[1], "--port", str(PORT), "-np", "1", "-c", "2024", "--jinja"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1)
                break
            except OSError:
                time.sleep(0.3)
        answers = [(q, *ask(q)) for q in QUESTIONS]
        golden.write(HERE, [{"name": q, "in": {"question": q}, "out": out, "trace": {"generate answer": out}} for q, clear, out in answers if clear])
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
