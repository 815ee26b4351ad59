"""The commands as people use them: answers, JSON shapes, exit statuses, messages."""

import json
import os
import subprocess

import pytest

PROMPT = "The first five primes are"


def churon_run(churon, *args, stdin=b"", env=None, timeout=120):
    return subprocess.run([churon, *args], input=stdin, capture_output=True, timeout=timeout,
                          env={**os.environ, **(env or {})})


def as_json(done):
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    assert text.endswith("\n") and text.count("\n") == 1, "exactly one line of JSON"
    return json.loads(text)


def refused(done, code, *parts):
    """One line on stderr, nothing on stdout, this exit status."""
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert done.stdout == b""
    assert message.startswith("churon: error: ") and message.count("\n") == 1, message
    for part in parts:
        assert part in message, message
    return message


@pytest.fixture(scope="module")
def greedy(churon, smollm2):
    return as_json(churon_run(churon, "run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "24",
                              "--json"))


# ---- run ------------------------------------------------------------------------------------------------


def test_run_json(churon, smollm2, greedy):
    assert list(greedy) == ["text", "ids", "finish_reason", "logprobs", "usage", "timing", "provenance"]
    assert greedy["finish_reason"] == "length" and greedy["logprobs"] is None
    assert len(greedy["ids"]) == 24
    assert greedy["usage"] == {"prompt_tokens": 6, "completion_tokens": 24}
    assert set(greedy["timing"]) == {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"}
    assert all(v > 0 for v in greedy["timing"].values())
    p = greedy["provenance"]
    assert p["digest"] == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert p["temperature"] == 0 and p["threads"] >= 1 and p["isa"] in ("ref", "avx2", "avx512")
    assert {"model", "version", "seed"} <= set(p)
    decoded = as_json(churon_run(churon, "tokenize", smollm2, "--decode", ",".join(map(str, greedy["ids"])), "--json"))
    assert decoded["text"] == greedy["text"]


def test_run_streams_the_same_text(churon, smollm2, greedy):
    done = churon_run(churon, "run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "24")
    assert done.returncode == 0
    assert done.stdout.decode().rstrip("\n") == greedy["text"].rstrip("\n")
    assert "tokens" in done.stderr.decode() and "per second" in done.stderr.decode() and "seed" in done.stderr.decode()
    quiet = churon_run(churon, "run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "24", "--quiet")
    assert quiet.stdout == done.stdout and quiet.stderr == b""


def test_first_text_comes_before_the_end(churon, smollm2):
    child = subprocess.Popen([churon, "run", smollm2, PROMPT, "--raw", "--ignore-eos", "--max-tokens", "200", "--quiet"],
                             stdout=subprocess.PIPE)
    first = os.read(child.stdout.fileno(), 4096)
    assert 0 < len(first) < 200 and child.poll() is None
    child.stdout.read()
    assert child.wait(60) == 0


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_threads_do_not_change_the_answer(churon, smollm2, greedy, threads):
    again = as_json(churon_run(churon, "run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "24",
                               "--json", "--threads", threads))
    assert again["ids"] == greedy["ids"] and again["provenance"]["threads"] == int(threads)


@pytest.mark.parametrize("isa", ["ref", "avx2", "avx512"])
def test_instruction_sets_do_not_change_the_answer(churon, smollm2, greedy, isa):
    features = as_json(churon_run(churon, "version", "--json"))["features"]
    command = ["run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "6", "--logprobs", "3", "--json"]
    if isa not in features:
        refused(churon_run(churon, *command, env={"CHURON_CPU": isa}), 1, "CHURON_CPU", isa)
        return
    one = as_json(churon_run(churon, *command, env={"CHURON_CPU": isa}))
    best = as_json(churon_run(churon, *command))
    assert one["provenance"]["isa"] == isa
    assert one["ids"] == greedy["ids"][:6] and one["logprobs"] == best["logprobs"]


@pytest.mark.parametrize("isa", ["ref", "avx2"])
def test_kv_in_8_bits_gives_the_same_bits_everywhere(churon, smollm2, isa):
    command = ["run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "6", "--logprobs", "3", "--json"]
    q8 = as_json(churon_run(churon, *command, "--kv-type", "q8"))
    f16 = as_json(churon_run(churon, *command, "--kv-type", "f16"))
    assert q8["provenance"]["kv_type"] == "q8" and f16["provenance"]["kv_type"] == "f16"
    assert q8["logprobs"] != f16["logprobs"]
    assert abs(q8["logprobs"][0]["logprob"] - f16["logprobs"][0]["logprob"]) < 0.3
    if isa in as_json(churon_run(churon, "version", "--json"))["features"]:
        one = as_json(churon_run(churon, *command, "--kv-type", "q8", env={"CHURON_CPU": isa}))
        assert one["provenance"]["isa"] == isa and one["logprobs"] == q8["logprobs"]


@pytest.mark.parametrize("command", ["run", "serve", "perplexity", "bench", "inspect"])
def test_unknown_kv_type(churon, smollm2, command):
    more = ["README.md"] if command == "perplexity" else []
    refused(churon_run(churon, command, smollm2, *more, "--kv-type", "q4"), 2, "--kv-type", "f16 or q8", "q4")


def test_guesses_do_not_change_the_answer(churon, smollm2):
    text = "one two three four five six seven eight nine ten eleven twelve " * 3
    command = ["run", smollm2, text, "--raw", "--max-tokens", "40", "--seed", "5", "--logprobs", "2", "--json"]
    for temperature in ("0", "0.7"):
        off = as_json(churon_run(churon, *command, "--temperature", temperature, "--speculate", "off"))
        for more in (["--speculate", "3"], [], ["--draft", smollm2]):
            on = as_json(churon_run(churon, *command, "--temperature", temperature, *more))
            assert on["ids"] == off["ids"] and on["logprobs"] == off["logprobs"] and on["text"] == off["text"]


def test_speculate_refuses(churon, smollm2, tmp_path):
    for wrong in ("0", "17", "on", "-1"):
        refused(churon_run(churon, "run", smollm2, "x", "--speculate", wrong), 2, "--speculate", "off or 1..16", wrong)
    refused(churon_run(churon, "serve", smollm2, "--speculate", "x"), 2, "--speculate", "off or 1..16", "x")
    refused(churon_run(churon, "run", smollm2, "x", "--draft", "nothing-like-it"), 1, "nothing-like-it")


def test_unknown_instruction_set(churon, smollm2):
    refused(churon_run(churon, "run", smollm2, "x", env={"CHURON_CPU": "mmx"}), 1, "CHURON_CPU", "mmx")


def test_template_is_used_unless_raw(churon, smollm2, greedy):
    chat = as_json(churon_run(churon, "run", smollm2, PROMPT, "--temperature", "0", "--max-tokens", "8", "--json"))
    assert chat["usage"]["prompt_tokens"] > greedy["usage"]["prompt_tokens"] + 5
    with_system = as_json(churon_run(churon, "run", smollm2, PROMPT, "--system", "Answer in French, please, always.",
                                     "--temperature", "0", "--max-tokens", "8", "--json"))
    assert with_system["usage"]["prompt_tokens"] != chat["usage"]["prompt_tokens"]
    text = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n")
    raw = as_json(churon_run(churon, "run", smollm2, text, "--raw", "--temperature", "0", "--max-tokens", "8", "--json"))
    assert raw["ids"] == chat["ids"] and raw["usage"] == chat["usage"]


def test_prompt_as_ids_and_from_stdin(churon, smollm2, greedy):
    ids = as_json(churon_run(churon, "tokenize", smollm2, PROMPT, "--json"))["ids"]
    options = ["--temperature", "0", "--max-tokens", "24", "--json"]
    by_ids = as_json(churon_run(churon, "run", smollm2, "--ids", ",".join(map(str, ids)), *options))
    piped = as_json(churon_run(churon, "run", smollm2, "--raw", *options, stdin=PROMPT.encode() + b"\n"))
    dash = as_json(churon_run(churon, "run", smollm2, "-", "--raw", *options, stdin=PROMPT.encode()))
    assert by_ids["ids"] == piped["ids"] == dash["ids"] == greedy["ids"]


def test_logprobs(churon, smollm2, greedy):
    options = ["--raw", "--temperature", "0", "--max-tokens", "4", "--json"]
    got = as_json(churon_run(churon, "run", smollm2, PROMPT, *options, "--logprobs", "5"))
    assert [t["id"] for t in got["logprobs"]] == got["ids"] == greedy["ids"][:4]
    for t in got["logprobs"]:
        tops = [x["logprob"] for x in t["top"]]
        assert len(tops) == 5 and tops == sorted(tops, reverse=True)
        assert t["top"][0] == {"id": t["id"], "logprob": t["logprob"]} and t["logprob"] < 0
    none = as_json(churon_run(churon, "run", smollm2, PROMPT, *options, "--logprobs", "0"))
    assert [t["top"] for t in none["logprobs"]] == [[]] * 4
    assert [t["logprob"] for t in none["logprobs"]] == [t["logprob"] for t in got["logprobs"]]


def test_logit_bias(churon, smollm2, greedy):
    options = ["--raw", "--temperature", "0", "--max-tokens", "8", "--json"]
    banned, wanted = greedy["ids"][0], 1000
    got = as_json(churon_run(churon, "run", smollm2, PROMPT, *options, "--logit-bias", f"{banned}=-1000",
                             "--logit-bias", f"{wanted}=1000"))
    assert got["ids"] == [wanted] * 8
    for bad, part in (("x", "ID=X"), ("1=", "ID=X"), ("=1", "ID=X"), ("1=nan", "ID=X"), ("49152=1", "49151")):
        refused(churon_run(churon, "run", smollm2, PROMPT, *options, "--logit-bias", bad), 2, part)


def test_stop_text_across_tokens(churon, smollm2, greedy):
    pieces = [as_json(churon_run(churon, "tokenize", smollm2, "--decode", str(i), "--json"))["text"]
              for i in greedy["ids"][:12]]
    assert "".join(pieces) == greedy["text"][:len("".join(pieces))]
    stops = {pieces[k][-1] + pieces[k + 1][:2] for k in range(3, 11)}
    for stop in stops:
        expected = greedy["text"][:greedy["text"].index(stop)]
        for as_text in (False, True):
            done = churon_run(churon, "run", smollm2, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "24",
                              "--stop", "not in the text", "--stop", stop, *([] if as_text else ["--json"]))
            if as_text:
                assert done.stdout.decode().rstrip("\n") == expected.rstrip("\n")
            else:
                got = as_json(done)
                assert got["text"] == expected and got["finish_reason"] == "stop"


def test_seeds(churon, smollm2):
    def answer(*options):
        return as_json(churon_run(churon, "run", smollm2, "Tell me a story.", "--temperature", "1.2", "--max-tokens",
                                  "16", "--json", *options))

    first = answer("--seed", "18446744073709551615")
    assert first["provenance"]["seed"] == 18446744073709551615
    assert answer("--seed", "18446744073709551615", "--threads", "1")["ids"] == first["ids"]
    assert any(answer("--seed", str(s))["ids"] != first["ids"] for s in (1, 2, 3))
    random = answer()
    assert answer("--seed", str(random["provenance"]["seed"]))["ids"] == random["ids"]
    assert any(answer()["provenance"]["seed"] != random["provenance"]["seed"] for _ in range(3))


def test_end_of_sequence(churon, smollm2):
    options = ["--temperature", "0", "--max-tokens", "60", "--json"]
    ended = as_json(churon_run(churon, "run", smollm2, "Say only: yes", *options))
    assert ended["finish_reason"] == "stop" and ended["usage"]["completion_tokens"] < 60
    assert "<|im_end|>" not in ended["text"]
    on = as_json(churon_run(churon, "run", smollm2, "Say only: yes", *options, "--ignore-eos"))
    assert on["finish_reason"] == "length" and on["usage"]["completion_tokens"] == 60
    assert on["ids"][:len(ended["ids"])] == ended["ids"]


def test_context_ends_an_answer(churon, smollm2):
    got = as_json(churon_run(churon, "run", smollm2, PROMPT, "--raw", "--ignore-eos", "--ctx", "32", "--json"))
    assert got["finish_reason"] == "length" and got["usage"]["completion_tokens"] == 32 - 6
    assert got["provenance"]["context"] == 32


def test_prompt_longer_than_the_context(churon, smollm2):
    words = "word " * 64
    n = len(as_json(churon_run(churon, "tokenize", smollm2, words, "--json"))["ids"])
    refused(churon_run(churon, "run", smollm2, words, "--raw", "--ctx", "32"), 1, "PROMPT", " 32 ", str(n), "--ctx")
    long = "word " * 9000
    refused(churon_run(churon, "run", smollm2, "--raw", "--json", stdin=long.encode()), 1, "8192", "9")
    refused(churon_run(churon, "run", smollm2, "x", "--ctx", "100000"), 1, "8192", "100000")


def test_invalid_utf8(churon, smollm2):
    refused(churon_run(churon, "run", smollm2, b"ab\xffcd"), 2, "PROMPT", "0xff", "offset 2")
    refused(churon_run(churon, "run", smollm2, "--raw", stdin=b"\xed\xa0\x80"), 2, "PROMPT", "0xed", "offset 0")
    refused(churon_run(churon, "run", smollm2, "x", "--system", b"\xc0"), 2, "--system")


def test_reader_that_leaves(churon, smollm2):
    shell = f'"{churon}" run "{smollm2}" "{PROMPT}" --raw --ignore-eos --max-tokens 4000 | head -c 20; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, timeout=60)
    assert done.stdout.splitlines()[-1].endswith(b"0")
    assert b"error" not in done.stderr


def test_full_disk(churon, smollm2):
    for flags in ([], ["--json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([churon, "run", smollm2, PROMPT, "--raw", "--max-tokens", "4", *flags], stdout=full,
                                  stderr=subprocess.PIPE, timeout=60)
        assert done.returncode == 1 and b"stdout: cannot write" in done.stderr


def test_interrupt_ends_an_answer(churon, smollm2):
    child = subprocess.Popen([churon, "run", smollm2, PROMPT, "--raw", "--ignore-eos", "--json"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    import signal
    import time
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    if out:
        assert json.loads(out)["finish_reason"] == "cancelled"


# ---- wrong usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("args, parts", [
    (["--temperature", "nan"], ["--temperature", "at least 0", "nan"]),
    (["--temperature", "-1"], ["--temperature", "-1"]),
    (["--top-p", "1.5"], ["--top-p", "from 0 to 1", "1.5"]),
    (["--min-p", "inf"], ["--min-p", "inf"]),
    (["--top-k", "-3"], ["--top-k", "-3"]),
    (["--seed", "18446744073709551616"], ["--seed", "18446744073709551616"]),
    (["--max-tokens", "0"], ["--max-tokens", "from 1", '"0"']),
    (["--max-tokens", "ten"], ["--max-tokens", "ten"]),
    (["--repetition-penalty", "0"], ["repe", "0"]),
    (["--logprobs", "5000"], ["--logprobs", "5000"]),
    (["--ids", "1,2"], ["--ids", "PROMPT"]),
    (["--stop", ""], ["--stop", "nothing"]),
    (["--raw", "--system", "x"], ["--raw", "--system"]),
    (["--tempreature", "1"], ["Did you mean --temperature?"]),
    (["more", "words"], ["arguments", "more", "quote"]),
    (["--threads", "0"], ["--threads", '"0"']),
    (["--json=yes"], ["--json", "no value"]),
])
def test_wrong_usage_of_run(churon, smollm2, args, parts):
    refused(churon_run(churon, "run", smollm2, "a prompt", *args), 2, *parts)


def test_ids_out_of_range(churon, smollm2):
    refused(churon_run(churon, "run", smollm2, "--ids", "1,49152"), 2, "--ids", "49151", "49152")
    refused(churon_run(churon, "tokenize", smollm2, "--decode", "-1"), 2, "--decode")
    refused(churon_run(churon, "run", smollm2, "--raw", stdin=b""), 2, "PROMPT", "none")


@pytest.mark.parametrize("command", ["compile", "quantize", "batch", "stream", "nonsense"])
def test_commands_that_are_not_there(churon, command):
    message = refused(churon_run(churon, command, "x"), 2, "does not have", command)
    assert "run" in message and "inspect" in message and "version" in message


def test_near_miss_of_a_command(churon):
    refused(churon_run(churon, "inspct", "x"), 2, "Did you mean 'inspect'?")


def test_no_command(churon):
    done = churon_run(churon)
    assert done.returncode == 2 and done.stdout == b"" and b"Usage: churon COMMAND" in done.stderr


@pytest.mark.parametrize("command", ["run", "serve", "inspect", "tokenize", "perplexity", "bench", "pull", "pack", "version"])
def test_help_of_every_command(churon, command, top):
    done = churon_run(churon, command, "--help")
    text = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    assert churon_run(churon, "help", command).stdout == done.stdout
    assert text.startswith(f"Usage: churon {command}") and f"\nExample:\n  churon {command}" in text
    assert all(len(line) <= 160 for line in text.splitlines())
    if command != "serve":  # docs/server.md
        options = [w for line in text.splitlines() if line.startswith("  ") for w in line.split()[:2] if w.startswith("--")]
        documents = (top / "docs/commands.md").read_text(), (top / "docs/man/churon.1").read_text().replace("\\-", "-")
        for option in options:
            for document in documents:
                assert option in document, f"{option} of {command}"


# ---- models that are not ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, smollm2):
    folder = tmp_path_factory.mktemp("hostile")
    head = open(smollm2, "rb").read(4 << 20)
    files = {"empty": b"", "short": b"GGUF", "zeros": bytes(4096), "text": b"not a model\n" * 100,
             "random": bytes((i * 2654435761 >> 7) & 255 for i in range(100000)), "truncated": head,
             "cut-in-header": head[:3000], "version": head[:4] + b"\x63\0\0\0" + head[8:3000],
             "many-tensors": head[:8] + b"\xff" * 8 + head[16:3000]}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize("name", ["empty", "short", "zeros", "text", "random", "truncated", "cut-in-header", "version",
                                  "many-tensors", "fifo", "folder", "there-is-none"])
def test_hostile_files(churon, hostile, name):
    path = str(hostile / name)
    for command in (["run", path, "x"], ["inspect", path], ["tokenize", path, "x"], ["run", path, "x", "--json"]):
        done = churon_run(churon, *command, timeout=20)
        refused(done, 1)


# ---- the other commands ----------------------------------------------------------------------------------


def test_inspect(churon, smollm2):
    got = as_json(churon_run(churon, "inspect", smollm2, "--json", "--ctx", "1024"))
    assert {"format", "architecture", "parameters", "inputs", "outputs", "operators", "opset", "weights_bytes", "types",
            "context_length", "memory", "digest", "metadata"} <= set(got)
    assert got["architecture"] == "llama" and got["parameters"] == 134515008 and got["context_length"] == 8192
    assert got["runs"] is True and got["chat_template"] is True
    assert sum(got["types"].values()) == 272
    assert got["tokenizer"] == {"model": "gpt2", "pre": "smollm", "tokens": 49152, "bos": 1, "eos": 2}
    assert got["metadata"]["tokenizer.ggml.tokens"]["count"] == 49152
    assert len(got["metadata"]["tokenizer.ggml.tokens"]["first"]) < 10
    memory = got["memory"]
    assert memory["kv_per_token"] == 30 * 3 * 64 * 2 * 2
    assert memory["total"] == memory["weights"] + 1024 * memory["kv_per_token"] + memory["scratch"]
    assert 80e6 < memory["weights"] < 160e6 and memory["kv_type"] == "f16"
    half = as_json(churon_run(churon, "inspect", smollm2, "--json", "--ctx", "1024", "--kv-type", "q8"))["memory"]
    assert half["kv_type"] == "q8" and half["kv_per_token"] == 30 * 3 * (64 + 4) * 2
    text = churon_run(churon, "inspect", smollm2).stdout.decode()
    for part in ("30 layers", "8192 tokens", "smollm", "134.5 million", "MiB"):
        assert part in text
    refused(churon_run(churon, "inspect", smollm2, "--ctx", "9000"), 1, "--ctx", "8192", "9000")


def test_inspect_says_why_a_file_does_not_run(churon, smollm2, tmp_path):
    """A tensor of another name: inspect and run give the same reason."""
    whole = open(smollm2, "rb").read()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(whole.replace(b"blk.7.ffn_down.weight", b"blk.7.ffn_dowm.weight"))
    got = as_json(churon_run(churon, "inspect", str(broken), "--json"))
    assert got["runs"] is False and "blk.7.ffn_down.weight" in got["why_not"]
    refused(churon_run(churon, "run", str(broken), "x"), 1, got["why_not"])


def test_help_to_a_full_disk(churon):
    for command in (["--help"], ["--version"], ["run", "--help"], ["inspect", "--help"], ["bench", "--help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([churon, *command], stdout=full, stderr=subprocess.PIPE, timeout=20)
        assert done.returncode == 1 and b"stdout" in done.stderr


def test_tokenize(churon, smollm2, tmp_path):
    text = "Hello, 세계!\n\tx = 1234  <|im_start|>"
    got = as_json(churon_run(churon, "tokenize", smollm2, text, "--json"))
    assert list(got) == ["ids", "pieces", "text"] and got["text"] == text and len(got["pieces"]) == len(got["ids"])
    assert got["ids"][-1] == 1
    plain = as_json(churon_run(churon, "tokenize", smollm2, text, "--json", "--no-special"))
    assert 1 not in plain["ids"] and plain["text"] == text
    file = tmp_path / "text"
    file.write_bytes(text.encode() + b"\x80\x00\xed\xa0")
    from_file = as_json(churon_run(churon, "tokenize", smollm2, "--file", str(file), "--json"))
    assert from_file["ids"][:len(got["ids"])] == got["ids"] and len(from_file["ids"]) > len(got["ids"])
    back = churon_run(churon, "tokenize", smollm2, "--decode", ",".join(map(str, from_file["ids"])))
    assert back.stdout == file.read_bytes() + b"\n"
    assert as_json(churon_run(churon, "tokenize", smollm2, "--file", "-", "--json", stdin=text.encode())) == got
    lines = churon_run(churon, "tokenize", smollm2, "Hello").stdout.decode().splitlines()
    assert lines == [f"{as_json(churon_run(churon, 'tokenize', smollm2, 'Hello', '--json'))['ids'][0]}\t\"Hello\""]
    refused(churon_run(churon, "tokenize", smollm2), 2, "TEXT", "none")
    refused(churon_run(churon, "tokenize", smollm2, "a", "--decode", "1"), 2, "TEXT", "more")
    refused(churon_run(churon, "tokenize", smollm2, "--file", str(tmp_path / "no")), 1, "no")


def test_perplexity_scores_the_second_half(churon, smollm2, tmp_path):
    """Against log-probabilities that `run` gives for the same tokens: windows of 8, three scores in each."""
    import math
    text = "1, 2, 3, 4, 5, 6, 7, 8"
    file = tmp_path / "text"
    file.write_text(text)
    ids = as_json(churon_run(churon, "tokenize", smollm2, text, "--json", "--no-special"))["ids"]
    assert 16 <= len(ids) < 24 and len(ids) % 8
    total = []
    for start in (0, 8):
        for j in (4, 5, 6):
            prompt = ",".join(map(str, ids[start:start + j + 1]))
            step = as_json(churon_run(churon, "run", smollm2, "--ids", prompt, "--temperature", "0", "--max-tokens", "1",
                                      "--logprobs", "1000", "--json"))
            tops = {t["id"]: t["logprob"] for t in step["logprobs"][0]["top"]}
            total.append(-tops[ids[start + j + 1]])
    got = as_json(churon_run(churon, "perplexity", smollm2, str(file), "--ctx", "8", "--json"))
    assert got["tokens"] == 6 and got["windows"] == len(ids) // 8 == 2
    assert got["nll"] == pytest.approx(sum(total) / 6, abs=2e-6)
    assert got["ppl"] == pytest.approx(math.exp(got["nll"]), rel=1e-9) and got["tokens_per_s"] > 0
    refused(churon_run(churon, "perplexity", smollm2, str(file), "--ctx", "512"), 1, "512", str(len(ids)))
    refused(churon_run(churon, "perplexity", smollm2, str(tmp_path / "no")), 1, "no")


def test_bench(churon, smollm2, tmp_path):
    peer = tmp_path / "peer"
    peer.write_text("#!/bin/sh\necho \"$@\" >> $0.calls\necho '[{\"avg_ts\": 100.0}]'\n")
    peer.chmod(0o755)
    got = as_json(churon_run(churon, "bench", smollm2, "--prompt", "16", "--gen", "4", "--depth", "0,32", "--parallel",
                             "1,2", "--reps", "2", "--json", "--vs", str(peer), "--threads", "1", "--text", __file__, timeout=300))
    rows = {r["test"]: r for r in got["rows"]}
    assert list(rows) == ["pp16", "tg4", "tg4@32", "tg4x2", "sampling", "tokenize"]
    for name in ("pp16", "tg4", "tg4@32", "tg4x2"):
        r = rows[name]
        assert set(r) == {"test", "threads", "per_s", "sd", "bound_fraction", "peer_per_s", "ratio"}
        assert r["per_s"] > 0 and 0 < r["bound_fraction"] < 1.5 and r["threads"] == 1
    assert rows["pp16"]["peer_per_s"] == 100 and rows["pp16"]["ratio"] == pytest.approx(rows["pp16"]["per_s"] / 100)
    assert rows["tg4x2"]["peer_per_s"] is None and rows["tg4x2"]["ratio"] is None
    assert 0 < rows["sampling"]["share"] < 0.5
    assert rows["tokenize"]["per_s"] > 1e5 and rows["tokenize"]["bound_fraction"] is None
    calls = (tmp_path / "peer.calls").read_text().splitlines()
    assert len(calls) == 2 * 3
    assert calls[0] == f"-m {smollm2} -p 16 -n 0 -d 0 -t 1 -r 1 -o json"
    machine = got["machine"]
    assert machine["threads"] == 1 and machine["int8_gop_per_s"] > 0 and machine["read"][0]["gb_per_s"] > 0
    peer.write_text("#!/bin/sh\nexit 3\n")
    refused(churon_run(churon, "bench", smollm2, "--prompt", "16", "--gen", "0", "--reps", "1", "--vs", str(peer),
                       timeout=300), 1, "peer", "exit status 0", "3")


def test_bench_of_an_edit(churon, smollm2):
    got = as_json(churon_run(churon, "bench", smollm2, "--prompt", "0", "--gen", "0", "--reps", "2", "--edit", "--json",
                             timeout=300))
    rows = {r["test"]: r for r in got["rows"]}
    assert list(rows) == ["edit plain", "edit"]
    assert rows["edit"]["per_s"] > 1.2 * rows["edit plain"]["per_s"] > 0


def test_bench_of_the_machine(churon):
    got = as_json(churon_run(churon, "bench", "--roofline", "--json", timeout=300))
    assert got["rows"] == [] and got["machine"]["isa"] in ("ref", "avx2", "avx512")
    refused(churon_run(churon, "bench"), 2, "MODEL", "none")
    refused(churon_run(churon, "bench", "model", "--roofline"), 2, "MODEL", "two")


def test_pull_and_names(churon, smollm2, tmp_path, greedy):
    home = {"CHURON_HOME": str(tmp_path / "store")}
    got = as_json(churon_run(churon, "pull", smollm2, "--as", "small:1", "--json", env=home))
    assert got["name"] == "small" and got["version"] == "1" and got["digest"] == greedy["provenance"]["digest"]
    assert as_json(churon_run(churon, "pull", smollm2, "--as", "small:1", "--json", env=home))["already"] is True
    for name in ("small", "small:1", "small@latest"):
        again = as_json(churon_run(churon, "run", name, PROMPT, "--raw", "--temperature", "0", "--max-tokens", "24",
                                   "--json", env=home))
        assert again["ids"] == greedy["ids"] and again["provenance"]["digest"] == greedy["provenance"]["digest"]
    refused(churon_run(churon, "run", "smal", "x", env=home), 1, "small")
    refused(churon_run(churon, "pull", smollm2, "--as", "other", "--sha256", "0" * 64, env=home), 1, "sha256")


def test_version(churon):
    got = as_json(churon_run(churon, "version", "--json"))
    assert set(got) == {"version", "compiler", "isa", "features", "cores"}
    assert got["isa"] in got["features"] and "ref" in got["features"]
    for flag in ("--version", "version"):
        assert churon_run(churon, flag).stdout.startswith(b"churon " + got["version"].encode())
    assert churon_run(churon, "run", "--version").stdout == b"churon " + got["version"].encode() + b"\n"
