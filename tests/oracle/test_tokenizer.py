"""Token ids against the `tokenizers` library: every pre-tokenizer rule as its published tokenizer.json defines
it, over a vocabulary trained here whose merges reach across any border that a rule could miss; the real SmolLM2
vocabulary; score-based BPE with byte fallback; special tokens; decoding whole and as a stream."""

import os
import pathlib
import struct
import subprocess
import sys

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))
import gguf_write as gw  # noqa: E402
import texts  # noqa: E402

TOOLS = pathlib.Path(os.environ.get("CHURON", "build/release/churon")).resolve().parent / "tools"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
N_RANDOM = 20_000

# ---- rules as published --------------------------------------------------------------------------------

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
    r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE
)
QWEN35 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACE
ALPHABETS = (
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+"
)
CJK_KOREAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
CJK_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + SPACE
)


def chain(*steps):
    """Regular expressions are isolated splits."""
    split = [pre_tokenizers.Split(Regex(s), "isolated") if isinstance(s, str) else s for s in steps]
    return pre_tokenizers.Sequence(split)


PLAIN_GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
LLAMA3, QWEN2 = chain(CL100K % "{1,3}", BYTES), chain(CL100K % "", BYTES)
O200K = chain(CASED % (CONTRACTION + "?", CONTRACTION + "?", "{1,3}"), BYTES)
# name: pre-tokenizer, composed first, whole pieces need no merges
RULES = {
    "gpt-2": (GPT2, False, False),
    "smollm": (chain(DIGITS, GPT2), False, False),
    "starcoder": (chain(DIGITS, GPT2), False, False),
    "refact": (chain(DIGITS, GPT2), False, False),
    "command-r": (chain(DIGITS, GPT2), True, False),
    "llama-bpe": (LLAMA3, False, True),
    "llama3": (LLAMA3, False, True),
    "llama-v3": (LLAMA3, False, True),
    "glm4": (LLAMA3, False, True),
    "chatglm-bpe": (LLAMA3, False, False),
    "dbrx": (LLAMA3, False, False),
    "smaug-bpe": (LLAMA3, False, False),
    "qwen2": (QWEN2, True, False),
    "deepseek-r1-qwen": (QWEN2, False, False),
    "qwen35": (chain(QWEN35, BYTES), False, False),
    "olmo": (GPT2, True, False),
    "mpt": (GPT2, True, False),
    "deepseek-llm": (
        chain("[\r\n]", ALPHABETS, "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK_KOREAN, DIGITS, BYTES),
        False,
        False,
    ),
    "deepseek-coder": (chain("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_KOREAN, DIGITS, BYTES), False, False),
    "deepseek-v3": (chain(r"\p{N}{1,3}", CJK_KANA, DEEPSEEK3, BYTES), False, False),
    "falcon": (
        chain(pre_tokenizers.Punctuation("contiguous"), GPT2, pre_tokenizers.Digits(False), "[0-9][0-9][0-9]"),
        False,
        False,
    ),
    "tekken": (chain(CASED % ("", "", ""), BYTES), False, True),
    "gpt-4o": (O200K, False, False),
    "llama4": (O200K, False, False),
    # No tokenizer.json says "default"; this is what readers of GGUF files do.
    "default": (chain(r"[\p{P}\$\+<=>\^~\|]+", PLAIN_GPT2, r"\p{N}+", "[0-9][0-9][0-9]", BYTES), False, False),
}

# ---- the program under test ----------------------------------------------------------------------------


def run_tool(path, blocks, *flags):
    data = b"".join(struct.pack("<I", len(b)) + b for b in blocks)
    run = subprocess.run([TOOLS / "tokenize", path, *flags], input=data, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def encode(path, strings, *flags):
    out = run_tool(path, [s if isinstance(s, bytes) else s.encode() for s in strings], *flags)
    ids, at = [], 0
    while at < len(out):
        (n,) = struct.unpack_from("<I", out, at)
        ids.append(list(struct.unpack_from(f"<{n}i", out, at + 4)))
        at += 4 + 4 * n
    assert len(ids) == len(strings)
    return ids


def decode(path, lists, how="decode", *flags):
    out = run_tool(path, [struct.pack(f"<{len(x)}i", *x) for x in lists], how, *flags)
    texts_out, at = [], 0
    while at < len(out):
        (n,) = struct.unpack_from("<I", out, at)
        texts_out.append(out[at + 4 : at + 4 + n])
        at += 4 + n
    return texts_out


def write_vocab(path, model, tokens, types, pre=None, merges=None, scores=None, more=()):
    g = gw.Gguf()
    g.add("general.architecture", gw.STRING, "llama")
    g.add("tokenizer.ggml.model", gw.STRING, model)
    if pre:
        g.add("tokenizer.ggml.pre", gw.STRING, pre)
    g.add("tokenizer.ggml.tokens", (gw.ARRAY, gw.STRING), tokens)
    g.add("tokenizer.ggml.token_type", (gw.ARRAY, gw.I32), types)
    if merges is not None:
        g.add("tokenizer.ggml.merges", (gw.ARRAY, gw.STRING), [" ".join(m) for m in merges])
    if scores is not None:
        g.add("tokenizer.ggml.scores", (gw.ARRAY, gw.F32), scores)
    for key, kind, value in more:
        g.add("tokenizer.ggml." + key, kind, value)
    g.write(path)
    return path


def differences(strings, ours, theirs):
    bad = [(s, a, b) for s, a, b in zip(strings, ours, theirs) if a != b]
    return [f"{len(bad)} of {len(strings)} differ"] + [f"{s!r}: {a} expected {b}" for s, a, b in bad[:5]] if bad else []


# ---- byte level ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vocabulary():
    """Trained without any rule, so that merges cross every border that a rule draws."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = BYTES
    trainer = trainers.BpeTrainer(
        vocab_size=6000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=16, show_progress=False
    )
    t.train_from_iterator(texts.corpus(), trainer)
    model = __import__("json").loads(t.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


@pytest.mark.parametrize("name", RULES)
def test_rule(name, vocabulary, tmp_path):
    vocab, merges = vocabulary
    pre, composed, whole = RULES[name]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole))
    t.pre_tokenizer = pre
    if composed:
        t.normalizer = normalizers.NFC()
    tokens = sorted(vocab, key=vocab.get)
    path = write_vocab(tmp_path / "v.gguf", "gpt2", tokens, [NORMAL] * len(tokens), name, merges)
    strings = texts.SAMPLES + texts.random_texts(N_RANDOM, seed=name)
    strings += ["".join(texts.random_texts(300, seed=name + "long"))]
    expected = [e.ids for e in t.encode_batch(strings)]
    assert not differences(strings, encode(path, strings), expected)


def test_every_character_by_itself(vocabulary, tmp_path):
    """Categories: each code point between letters, digits, spaces and signs, under rules that ask for all classes."""
    vocab, merges = vocabulary
    tokens = sorted(vocab, key=vocab.get)
    step = lambda c: 1 if c < 0x3400 or 0xA4D0 <= c < 0xAC00 or 0xF900 <= c < 0x10000 else 3 if 0x10000 <= c < 0x20000 else 997  # noqa: E731
    cps = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c % step(c) == 0]
    strings = [f"a{c}b {c}1{c}. {c}{c}\n" for c in map(chr, cps)]
    for name in ["smollm", "falcon", "deepseek-v3", "gpt-4o"]:
        pre, composed, whole = RULES[name]
        t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole))
        t.pre_tokenizer = pre
        if composed:
            t.normalizer = normalizers.NFC()
        path = write_vocab(tmp_path / "v.gguf", "gpt2", tokens, [NORMAL] * len(tokens), name, merges)
        assert not differences(strings, encode(path, strings), [e.ids for e in t.encode_batch(strings)]), name


def test_composition(vocabulary, tmp_path):
    """Marks of all combining classes in all orders, conjoining jamo, singletons: composed as the reference does."""
    import unicodedata

    vocab, merges = vocabulary
    rng = __import__("random").Random(4)
    marks = [chr(c) for c in range(0x300, 0x20000) if unicodedata.combining(chr(c)) or unicodedata.category(chr(c)) == "Mc"]
    bases = [chr(c) for c in range(0x20000) if unicodedata.decomposition(chr(c)) and "<" not in unicodedata.decomposition(chr(c))]
    strings = [unicodedata.normalize(form, c) for c in bases for form in ("NFC", "NFD")]
    pools = [marks, bases, list("aeouAEKs =<"), [chr(c) for c in range(0x1100, 0x1200)], list("가각한글"), marks[:100]]
    strings += ["".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(2, 12))) for _ in range(20_000)]
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer, t.normalizer = QWEN2, normalizers.NFC()
    tokens = sorted(vocab, key=vocab.get)
    path = write_vocab(tmp_path / "v.gguf", "gpt2", tokens, [NORMAL] * len(tokens), "qwen2", merges)
    assert not differences(strings, encode(path, strings), [e.ids for e in t.encode_batch(strings)])


def test_bytes_that_are_not_utf8(vocabulary, tmp_path):
    """No reference can hold them; they must come back as they went in."""
    vocab, merges = vocabulary
    tokens = sorted(vocab, key=vocab.get)
    rng = __import__("random").Random(3)
    strings = [bytes(rng.randrange(256) for _ in range(rng.randrange(40))) for _ in range(5000)]
    strings += [s.encode()[i:] for s in texts.SAMPLES for i in (1, 2)] + [s.encode()[:-1] for s in texts.SAMPLES]
    for name in RULES:
        if RULES[name][1]:
            continue  # composition changes what is valid around them
        path = write_vocab(tmp_path / "v.gguf", "gpt2", tokens, [NORMAL] * len(tokens), name, merges)
        assert decode(path, encode(path, strings)) == strings, name


# ---- the real vocabulary -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2_reference(smollm2):
    import gguf

    fields = gguf.GGUFReader(smollm2).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()  # noqa: E731
    tokens, types = get("tokens"), get("token_type")
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in get("merges")]))
    t.pre_tokenizer = chain(DIGITS, GPT2)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(tokens, types) if k == CONTROL])
    return t


def test_smollm2(smollm2, smollm2_reference):
    t = smollm2_reference
    strings = texts.SAMPLES + texts.random_texts(N_RANDOM, seed=11) + [texts.prose(200_000)]
    assert not differences(strings, encode(smollm2, strings), [e.ids for e in t.encode_batch(strings)])


def test_smollm2_special_tokens(smollm2, smollm2_reference):
    t = smollm2_reference
    marks = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "<|", "<", "|>", "user\n", "system", " ", "<repo_name>"]
    rng = __import__("random").Random(5)
    strings = ["".join(rng.choice(marks) for _ in range(rng.randint(0, 9))) for _ in range(2000)]
    strings += [rng.choice(marks) + s + rng.choice(marks) for s in texts.random_texts(2000, seed=12)]
    assert not differences(strings, encode(smollm2, strings, "parse"), [e.ids for e in t.encode_batch(strings)])
    t.encode_special_tokens = True
    plain = [e.ids for e in t.encode_batch(strings)]
    t.encode_special_tokens = False
    assert not differences(strings, encode(smollm2, strings), plain)


def test_smollm2_decoding(smollm2, smollm2_reference):
    t = smollm2_reference
    rng = __import__("random").Random(6)
    lists = [[rng.randrange(49152) for _ in range(rng.randrange(30))] for _ in range(3000)]
    lists += encode(smollm2, texts.SAMPLES + texts.random_texts(3000, seed=13))
    for special in (True, False):
        expected = [t.decode(x, skip_special_tokens=not special) for x in lists]
        flags = ["special"] if special else []
        assert [b.decode(errors="replace") for b in decode(smollm2, lists, "decode", *flags)] == expected
        assert [b.decode() for b in decode(smollm2, lists, "stream", *flags)] == expected


# ---- BPE by score --------------------------------------------------------------------------------------


def published_merges(vocab, scores):
    """How the merges in published tokenizer.json files were made from a SentencePiece model."""
    merges = []
    for piece, score in scores.items():
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        cuts = [c for c in cuts if c[0] in scores and c[1] in scores]
        merges += [(score, c) for c in sorted(cuts, key=lambda c: (vocab[c[0]], vocab[c[1]]))]
    return [m for _, m in sorted(merges, key=lambda m: m[0], reverse=True)]


def by_score(pre_tokenizer):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "▁")
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=4000, limit_alphabet=800, max_token_length=16, show_progress=False)
    t.train_from_iterator(texts.corpus(), trainer)
    vocab = __import__("json").loads(t.to_str())["model"]["vocab"]
    letters = sorted(p for p in vocab if len(p) == 1)
    pieces = [p for p in sorted(vocab, key=vocab.get) if len(p) > 1]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces + letters
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259)
    scores = [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)]
    return tokens, types, scores


SCORED = {
    "words": lambda: by_score(pre_tokenizers.Metaspace(prepend_scheme="never")),
    "across spaces": lambda: by_score(None),
}


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("kind", SCORED)
def test_by_score(kind, prefix, tmp_path):
    tokens, types, scores = SCORED[kind]()
    vocab = {s: i for i, s in enumerate(tokens)}
    merges = published_merges(vocab, {s: x for s, x, k in zip(tokens, scores, types) if k == NORMAL})
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    replace = normalizers.Replace(" ", "▁")
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    t.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if prefix else [])
    )
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ["<unk>", "<s>", "</s>"]])
    more = [("bos_token_id", gw.U32, 1), ("eos_token_id", gw.U32, 2), ("unknown_token_id", gw.U32, 0)]
    more += [("add_space_prefix", gw.BOOL, prefix)]
    path = write_vocab(tmp_path / "v.gguf", "llama", tokens, types, None, None, scores, more)
    strings = texts.SAMPLES + texts.random_texts(N_RANDOM, seed=kind) + [texts.prose(100_000)]
    strings += ["".join(texts.random_texts(300, seed=kind + "long"))]
    strings += [a + "<s>" + b + "</s>" + a for a, b in zip(strings[:200], strings[1:])]
    expected = [e.ids for e in t.encode_batch(strings)]
    assert not differences(strings, encode(path, strings, "parse"), expected)
    assert encode(path, ["x"], "special")[0][0] == 1
    for special in (True, False):
        flags = ["special"] if special else []
        got = [b.decode(errors="replace") for b in decode(path, expected, "decode", *flags)]
        assert got == [t.decode(x, skip_special_tokens=not special) for x in expected]
        assert [b.decode() for b in decode(path, expected, "stream", *flags)] == got
    bad = [b"\xff\xfe a\x80b", b"\xe2\x96", b"\xf0\x9f\x98"]
    assert decode(path, encode(path, bad)) == bad


# ---- time ----------------------------------------------------------------------------------------------


def test_time_is_linear(smollm2):
    """10 MB of one letter, of spaces and of other monotonous texts against 10 MB of prose, best of several, alternating,
    in one process. The bound leaves room for a noisy machine."""
    run = subprocess.run([TOOLS / "tokenize_time", smollm2], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    seconds = {name: float(s) for name, s in (line.split() for line in run.stdout.splitlines())}
    assert seconds["letter"] < 1.5 * seconds["prose"], seconds
    assert seconds["spaces"] < 1.5 * seconds["prose"], seconds
    slow = {name: s for name, s in seconds.items() if s > 25 * seconds["prose"]}
    assert not slow, seconds
