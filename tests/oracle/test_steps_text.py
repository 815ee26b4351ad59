"""The text steps against their reference libraries: tokenizers' ids, masks and offsets; unicodedata; re."""

import functools
import os
import shutil
import subprocess
import json
import pathlib
import re
import sys
import time
import unicodedata

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import bundle_run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import texts  # noqa: E402
from test_tokenizer import RULES, chain  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
OUTPUTS = ["input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "offsets", "offsets_bytes"]
TEXT = {"type": "string"}


def strings(n, seed):
    return texts.SAMPLES + texts.random_texts(n, seed=seed)


@functools.lru_cache(maxsize=None)
def vocabulary():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL, show_progress=False, limit_alphabet=900)
    t.train_from_iterator([s.lower() + s for s in texts.corpus()], trainer)
    return json.loads(t.to_str())["model"]["vocab"]


def bert(lowercase=True, strip_accents=None, clean_text=True, chinese=True, **model):
    """A tokenizer as bert-base-uncased's file has it, over a small vocabulary trained here."""
    t = Tokenizer(models.WordPiece(vocab=vocabulary(), unk_token="[UNK]", **model))
    t.normalizer = normalizers.BertNormalizer(clean_text, chinese, strip_accents, lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.add_special_tokens(SPECIAL)
    ids = {s: t.token_to_id(s) for s in SPECIAL}
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])])
    return t


@pytest.fixture(scope="module")
def small():
    return bert()


def ask(folder, t, records, keys=(), outputs=OUTPUTS, batch=True):
    folder.mkdir(parents=True, exist_ok=True)
    t if isinstance(t, str) else t.save(str(folder / "tokenizer.json"))
    inputs = {k: TEXT for k in records[0]}
    step = {"tokenize": {"field": "text", "file": "tokenizer.json", "outputs": {o: o for o in outputs}, **dict(keys)}}
    if "pair" in inputs:
        step["tokenize"]["pair"] = "pair"
    if not batch:
        bundle_run.write(folder, inputs, [step], outputs)
        return bundle_run.run(folder, records)
    return bundle_run.answers(folder, inputs, [step], outputs, records)


def wanted(e, text, pair=None, with_bytes=True):
    out = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids,
           "special_tokens_mask": e.special_tokens_mask, "offsets": [list(o) for o in e.offsets]}
    parts = [text, pair]
    out["offsets_bytes"] = [
        [len(parts[s][:a].encode()), len(parts[s][:b].encode())] if s is not None else [0, 0]
        for (a, b), s in zip(e.offsets, e.sequence_ids)]
    return out


def compare(got, records, encodings):
    bad = []
    for g, r, e in zip(got, records, encodings):
        w = wanted(e, r["text"], r.get("pair"))
        if g.get("ok") != w:
            names = [k for k in w if g.get("ok", {}).get(k) != w[k]]
            bad.append((r, names, g if "ok" not in g else [(g["ok"][k], w[k]) for k in names[:1]], e.tokens))
    assert not bad, f"{len(bad)} of {len(records)}: {bad[:2]}"


NORMALIZERS = [{}, {"lowercase": False}, {"lowercase": False, "strip_accents": True}, {"strip_accents": False},
               {"clean_text": False}, {"chinese": False}]


@pytest.mark.parametrize("options", NORMALIZERS)
def test_wordpiece(tmp_path, options):
    t = bert(**options)
    records = [{"text": s} for s in strings(4000, seed=str(options))]
    compare(ask(tmp_path, t, records), records, t.encode_batch([r["text"] for r in records]))


def test_every_character(tmp_path, small):
    step = lambda c: 1 if c < 0x3400 or 0xA4D0 <= c < 0xAC00 or 0xF900 <= c < 0x20000 else 997  # noqa: E731
    records = [{"text": f"a{chr(c)}b {chr(c)}A."} for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c % step(c) == 0]
    got = ask(tmp_path, small, records, outputs=["input_ids", "offsets"], batch=False)
    bad = [(r, g, e.ids) for r, g, e in zip(records, got, small.encode_batch([r["text"] for r in records]))
           if g["ok"]["input_ids"] != e.ids or g["ok"]["offsets"] != [list(o) for o in e.offsets]]
    assert not bad, (len(bad), bad[:5])


def test_pairs(tmp_path, small):
    all_texts = strings(2000, seed="pairs")
    records = [{"text": a, "pair": b} for a, b in zip(all_texts, reversed(all_texts))]
    compare(ask(tmp_path, small, records), records, small.encode_batch([(r["text"], r["pair"]) for r in records]))


LENGTHS = [(16, "right", "longest_first"), (16, "left", "longest_first"), (64, "right", "longest_first"), (15, "right", "only_first"),
           (33, "left", "only_second"), (3, "right", "longest_first"), (4, "left", "longest_first")]


@pytest.mark.parametrize("length,side,strategy", LENGTHS)
@pytest.mark.parametrize("pad", ["none", "max_length", "multiple", "left"])
def test_truncation_and_padding(tmp_path, length, side, strategy, pad):
    t = bert()
    texts_ = strings(60, seed="cut")
    keys = {"max_length": length, "truncation_side": side, "truncation_strategy": strategy}
    t.enable_truncation(length, strategy=strategy, direction=side)
    if pad == "max_length":
        t.enable_padding(length=length, pad_id=7, pad_type_id=3, pad_token="x")
        keys |= {"padding": "max_length", "pad_id": 7, "pad_type_id": 3}
    elif pad == "multiple":
        t.enable_padding(pad_to_multiple_of=8)
        keys |= {"pad_to_multiple": 8}
    elif pad == "left":
        t.enable_padding(direction="left", length=length)
        keys |= {"padding": "max_length", "pad_side": "left"}
    for pairs in (False, True):
        records = [{"text": a, "pair": b} if pairs else {"text": a} for a, b in zip(texts_, reversed(texts_))]
        if not pairs and strategy == "only_second":
            continue
        plain = bert()
        # what the step's keys say, and what the file says, are the same
        for name, file, k in (("keys", plain, keys), ("file", t, {})):
            got = ask(tmp_path / f"{name}{pairs}", file, records, k)
            expected, use = [], []
            for r, g in zip(records, got):
                try:
                    expected.append(t.encode(r["text"], r.get("pair")))
                    use.append((r, g))
                except Exception as e:  # the other text alone is too long
                    assert "error" in g, (r, g, e)
            compare([g for _, g in use], [r for r, _ in use], expected)


def test_no_special_tokens(tmp_path, small):
    records = [{"text": s} for s in strings(300, seed="plain")]
    compare(ask(tmp_path, small, records, {"add_special": False}), records,
            small.encode_batch([r["text"] for r in records], add_special_tokens=False))


def test_special_tokens_in_text(tmp_path):
    t = bert()
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True, normalized=False), AddedToken("<br>", rstrip=True, special=True, normalized=False),
                          AddedToken("wörd", single_word=True, special=True, normalized=False)])
    base = ["a [MASK] b", "a   [MASK][MASK] ,", "[SEP][CLS]x", "x<br>   y <br>", "wörd", "xwörd wörds wörd wörd.", "[MASK", " [MASK] <br> [MASK]"]
    rng = __import__("random").Random(5)
    parts = ["[MASK]", "<br>", "wörd", " ", "  ", "a", "[SEP]", "é", "\u3000", "1", "_", "-", "[", "[PAD]"]
    base += ["".join(rng.choice(parts) for _ in range(rng.randint(1, 12))) for _ in range(2000)]
    records = [{"text": s} for s in base]
    compare(ask(tmp_path / "a", t, records), records, t.encode_batch(base))
    t2 = bert()
    got = ask(tmp_path / "b", t2, [{"text": "a [SEP] b"}], {"special_in_text": False}, outputs=["input_ids"])
    assert t2.token_to_id("[SEP]") not in got[0]["ok"]["input_ids"][1:-1]


def test_word_lengths_and_prefix(tmp_path):
    for n in (1, 5, 100, 3000):
        t = bert(max_input_chars_per_word=n)
        records = [{"text": s} for s in ["a" * k for k in (1, 4, 5, 6, 99, 100, 101, 2999, 3000, 3001)] + ["é" * 5, "日本 abcde abcdef"]]
        compare(ask(tmp_path / str(n), t, records), records, t.encode_batch([r["text"] for r in records]))


def test_ten_megabytes_in_linear_time(tmp_path, small):
    """Reading the record and the vocabulary is part of it: about a second on a good day."""
    prose = texts.prose(10_000_000)
    hostile = {"prose": prose, "one word": "a" * 10_000_000, "marks": "e" + "\u0301" * 5_000_000,
               "marks that stay": "\u1b44\u0301" * 1_500_000, "brackets": "[MASK" * 2_000_000, "unknown": "\u2603x" * 2_000_000}
    cut = Tokenizer.from_str(small.to_str())
    cut.enable_truncation(128)
    for name, text in hostile.items():
        began = time.monotonic()
        got = ask(tmp_path, small, [{"text": text}], {"max_length": 128}, outputs=["input_ids"], batch=False)
        spent = time.monotonic() - began
        assert len(got[0]["ok"]["input_ids"]) <= 128 and spent < 15, (name, spent)
        if name == "prose":
            assert got[0]["ok"]["input_ids"] == cut.encode(text[:100_000]).ids


# ---- byte-level BPE ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def merges():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.train_from_iterator(texts.corpus(), trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                             max_token_length=16, show_progress=False))
    model = json.loads(t.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


@pytest.mark.parametrize("rule", ["gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o", "qwen35", "dbrx", "olmo", "command-r", "deepseek-r1-qwen"])
def test_byte_level(tmp_path, merges, rule):
    vocab, pairs = merges
    pre, composed, whole = RULES[rule]
    t = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=whole))
    t.pre_tokenizer = pre
    if composed:
        t.normalizer = normalizers.NFC()
    t.add_special_tokens(["<|end|>"])
    t.add_tokens([AddedToken("<tool>", normalized=False)])
    end = t.token_to_id("<|end|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            processors.TemplateProcessing(single="<|end|> $A", pair="<|end|> $A $B:1", special_tokens=[("<|end|>", end)])])
    records = [{"text": s} for s in strings(1500, seed=rule) + ["a<|end|>b<tool>c <tool><|end|>"]]
    got = ask(tmp_path, t, records, outputs=["input_ids", "token_type_ids"])
    bad = [(r, g, e.ids) for r, g, e in zip(records, got, t.encode_batch([r["text"] for r in records])) if g["ok"]["input_ids"] != e.ids]
    assert not bad, (len(bad), bad[:2])


def test_roberta_ends(tmp_path, merges):
    vocab, pairs = merges
    t = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.add_special_tokens(["<s>", "</s>"])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), add_prefix_space=False)
    records = [{"text": a, "pair": b} for a, b in zip(strings(100, seed=1), strings(100, seed=2))]
    got = ask(tmp_path, t, records, outputs=["input_ids", "token_type_ids"])
    for g, e in zip(got, t.encode_batch([(r["text"], r["pair"]) for r in records])):
        assert g["ok"] == {"input_ids": e.ids, "token_type_ids": e.type_ids}


# ---- what is refused -----------------------------------------------------------------------------------


def edit(t, change):
    j = json.loads(t.to_str())
    change(j)
    return json.dumps(j)


FILES = [
    (lambda j: j["model"].update(type="Unigram"), "model.type: expected WordPiece or BPE, got 'Unigram'"),
    (lambda j: j.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer: expected BertPreTokenizer with WordPiece, got 'Whitespace'"),
    (lambda j: j.update(normalizer={"type": "Lowercase"}), "normalizer: expected BertNormalizer with WordPiece, got 'Lowercase'"),
    (lambda j: j["model"]["vocab"].update(a=-1), "model.vocab: expected the id of a token"),
    (lambda j: j["model"]["vocab"].update(a=1 << 40), "model.vocab: expected the id of a token"),
    (lambda j: j["model"]["vocab"].update(newtoken=5), "model.vocab: expected one token with the id 5"),
    (lambda j: j["model"].update(unk_token="[NONE]"), "model.unk_token: expected a token of the vocabulary, got '[NONE]'"),
    (lambda j: j["model"].update(max_input_chars_per_word=0), "max_input_chars_per_word: expected 1 to 10000, got 0"),
    (lambda j: j["post_processor"].update(type="Strange"), "post_processor: expected TemplateProcessing"),
    (lambda j: j["post_processor"]["special_tokens"].clear(), "post_processor: expected ids of '[CLS]'"),
    (lambda j: j["added_tokens"][0].update(normalized=True), "added_tokens: expected normalized: false with WordPiece"),
    (lambda j: j["model"].pop("vocab"), "model.vocab: expected a map from token to id"),
    (lambda j: j.pop("model"), "model.type: expected WordPiece or BPE, got ''"),
]


@pytest.mark.parametrize("change,message", FILES)
def test_files_that_are_refused(tmp_path, small, change, message):
    tmp_path.joinpath("tokenizer.json").write_text(edit(small, change))
    bundle_run.write(tmp_path, {"text": TEXT}, [{"tokenize": {"field": "text", "file": "tokenizer.json"}}], ["input_ids"])
    got = bundle_run.run(tmp_path, [])
    assert message in got[0]["open"], got


def test_broken_json(tmp_path, small):
    whole = small.to_str()
    for text in ("", "[]", "{", whole[: len(whole) // 2], whole.replace("{", "[", 1), '{"model": 3}', "\x00", '{"model": {"type": "WordPiece", "vocab": {}}}'):
        tmp_path.joinpath("tokenizer.json").write_text(text)
        bundle_run.write(tmp_path, {"text": TEXT}, [{"tokenize": {"field": "text", "file": "tokenizer.json"}}], ["input_ids"])
        got = bundle_run.run(tmp_path, [])
        assert "tokenizer.json" in got[0]["open"], got


STEPS = [
    ({"tokenize": {"field": "text"}}, "expected either the key 'file' or the key 'model'"),
    ({"tokenize": {"field": "text", "model": "x"}}, "tokenize.model: expected the name of a language model, got 'x'"),
    ({"tokenize": {"field": "text", "file": "none.json"}}, "expected a file of the bundle, got 'none.json'"),
    ({"tokenize": {"field": "i", "file": "tokenizer.json"}}, "tokenize.field: expected text, got 'i', which is int64"),
    ({"tokenize": {"field": "text", "file": "tokenizer.json", "max_length": 1}}, "expected at least 2, the special tokens, got 1"),
    ({"tokenize": {"field": "text", "file": "tokenizer.json", "padding": "max_length"}}, "expected a max_length with it"),
    ({"tokenize": {"field": "text", "file": "tokenizer.json", "outputs": {"input_idz": "x"}}}, "expected an output such as 'input_ids', got 'input_idz'"),
    ({"tokenize": {"field": "text", "file": "tokenizer.json", "pad_id": 100000}}, "tokenize.pad_id: expected less than"),
    ({"normalize": {"field": "text"}}, "expected at least one of form, strip_accents, lower, collapse, trim"),
    ({"normalize": {"field": "i", "lower": True}}, "normalize.field: expected text, got 'i'"),
    ({"regex_replace": {"field": "text", "pattern": "(", "replacement": ""}}, "regex_replace.pattern: expected a regular expression, got:"),
    ({"regex_replace": {"field": "text", "pattern": "a", "replacement": "$1"}}, "expected a group of the pattern behind $, got '$1'"),
    ({"split": {"field": "text", "separator": ""}}, "split.separator: expected a text that is not empty"),
    ({"join": {"field": "text"}}, "join.field: expected list, got 'text', which is text"),
]


@pytest.mark.parametrize("step,message", STEPS)
def test_steps_that_are_refused(tmp_path, small, step, message):
    small.save(str(tmp_path / "tokenizer.json"))
    bundle_run.write(tmp_path, {"text": TEXT, "i": {"type": "int"}}, [step], ["text"])
    got = bundle_run.run(tmp_path, [])
    assert message in got[0]["open"], got
    assert "bundle.yaml: line " in got[0]["open"]


# ---- normalize, regex_replace, split, join -------------------------------------------------------------


def in_both(c):
    """Characters that Python's Unicode and utf8proc's know alike: assigned in Python's."""
    return unicodedata.category(c) != "Cn"


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_forms(tmp_path, form):
    all_texts = ["".join(c for c in s if in_both(c)) for s in strings(3000, seed=form)]
    all_texts += [chr(c) + "\u0301" for c in range(0x30000) if not 0xD800 <= c < 0xE000 and in_both(chr(c))]
    all_texts += ["\uac00\u11a7\u11a8", "a" + "\u0323\u0301" * 3000, "\ufdfa" * 3000, "x" * 9000 + "é" * 9000 + "e\u0301" * 5000]
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"normalize": {"field": "text", "form": form.lower()}}], ["text"],
                             [{"text": s} for s in all_texts])
    bad = [(s, g) for s, g in zip(all_texts, got) if g["ok"]["text"] != unicodedata.normalize(form, s)]
    assert not bad, (len(bad), [(ascii(s), ascii(g)) for s, g in bad[:3]])


def test_lower(tmp_path):
    all_texts = ["".join(c for c in s if in_both(c)) for s in strings(2000, seed="lower")]
    all_texts += ["ΣΑΣ ΑΣ. Α.Σ Σ Σ' 'Σ ΑΣ'Α Α\u0301Σ\u0301", *(f"a{chr(c)}Σ" for c in range(0x20000) if not 0xD800 <= c < 0xE000 and in_both(chr(c)))]
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"normalize": {"field": "text", "lower": True}}], ["text"], [{"text": s} for s in all_texts])
    bad = [(s, g["ok"]["text"], s.lower()) for s, g in zip(all_texts, got) if g["ok"]["text"] != s.lower()]
    assert not bad, (len(bad), ascii(bad[:5]))


def test_strip_collapse_and_trim(tmp_path):
    spaces = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    all_texts = ["".join(c for c in s if in_both(c)) for s in strings(2000, seed="strip")] + [f" {spaces} a{spaces}b {spaces}", spaces, ""]
    def expected(s):
        s = "".join(c for c in unicodedata.normalize("NFKD", s) if unicodedata.category(c) != "Mn")
        s = unicodedata.normalize("NFKC", s).lower()
        return re.sub(f"[{spaces}]+", " ", s).strip(spaces)
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"normalize": {"field": "text", "form": "nfkc", "strip_accents": True, "lower": True, "collapse": True, "trim": True}}],
                             ["text"], [{"text": s} for s in all_texts])
    bad = []
    for s, g in zip(all_texts, got):
        stripped = "".join(c for c in unicodedata.normalize("NFKD", s) if unicodedata.category(c) != "Mn")
        # composing what is left is not decomposing it anew
        wanted_ = re.sub(f"[{spaces}]+", " ", unicodedata.normalize("NFC", stripped).lower()).strip(spaces)
        if g["ok"]["text"] != wanted_:
            bad.append((s, g["ok"]["text"], wanted_))
    assert not bad, (len(bad), ascii(bad[:3]))


@pytest.mark.parametrize("pattern,replacement,python", [
    (r"\s+", " ", None), (r"(\w+)@(\w+)", "$2 at ${1}", r"\2 at \1"), (r"[0-9]", "#", None), (r"x*", "-", None), (r"(?P<y>[0-9]{4})", "<${y}>", r"<\g<y>>"), (r"\$", "$$$$", "$$"),
    (r"(a)|b", "[$1]", None)])
def test_regex_replace(tmp_path, pattern, replacement, python):
    all_texts = ["", "a  b", "me@you", "1999-12-31", "xxaxx", "cost $5", "abab", *("".join(c for c in s if ord(c) < 0x80) for s in texts.random_texts(300, seed=3))]
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"regex_replace": {"field": "text", "pattern": pattern, "replacement": replacement}}], ["text"],
                             [{"text": s} for s in all_texts])
    how = python or (lambda m: f"[{m[1] or ''}]") if "$1]" in replacement or python else replacement
    for s, g in zip(all_texts, got):
        if pattern == r"\s+" and any(c in s for c in "\x1c\x1d\x1e\x1f"):
            continue  # Python's idea of white space
        assert g["ok"]["text"] == re.sub(pattern, how, s), s


def test_regex_replace_once_and_whatever_the_case(tmp_path):
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"regex_replace": {"field": "text", "pattern": "ä", "replacement": "_", "ignore_case": True, "first_only": True}}],
                             ["text"], [{"text": "xÄä"}])
    assert got[0]["ok"]["text"] == "x_ä"


def test_regex_that_runs_away(tmp_path):
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"regex_replace": {"field": "text", "pattern": "(a|a)*(b|b)*(a|a)*c", "replacement": ""}}], ["text"],
                             [{"text": "a" * 60 + "xc"}, {"text": "ac"}])
    assert "within its limit of steps" in got[0]["error"] and got[1]["ok"]["text"] == ""


def test_split_and_join(tmp_path):
    all_texts = ["", " ", "a", "a, b", ", ", "a,  b, ,", " a  b\u3000c ", *texts.random_texts(200, seed=9)]
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [{"split": {"field": "text", "into": "a", "separator": ", "}}, {"split": {"field": "text", "into": "b"}},
                                                        {"join": {"field": "a", "into": "c", "separator": ", "}}, {"join": {"field": "b", "into": "d", "separator": "|"}}],
                             ["a", "b", "c", "d"], [{"text": s} for s in all_texts])
    for s, g in zip(all_texts, got):
        words = re.split("[\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+", s)
        words = [w for w in words if w]
        assert g["ok"] == {"a": s.split(", "), "b": words, "c": s, "d": "|".join(words)}


# ---- chat templates and language models ----------------------------------------------------------------



@pytest.mark.parametrize("name", ["chatml", "command_r", "dbrx", "deepseek_v3"])
def test_chat_template(tmp_path, name):
    import template_reference
    source = (pathlib.Path(__file__).resolve().parent / "templates" / f"{name}.jinja").read_text()
    (tmp_path / "chat.jinja").write_text(source)
    step = {"chat_template": {"prompt": "text", "system": "Be brief.", "file": "chat.jinja", "into": "chat", "bos_token": "<s>", "eos_token": "</s>",
                              "time": "2024-07-26T13:00:00Z"}}
    all_texts = [s for s in strings(100, seed=name) if s]
    got = bundle_run.answers(tmp_path, {"text": TEXT}, [step], ["chat"], [{"text": s} for s in all_texts])
    t = template_reference.environment(1721998800).from_string(source)
    for s, g in zip(all_texts, got):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": s}]
        assert g["ok"]["chat"] == t.render(messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"), s


@pytest.fixture(scope="module")
def smol(smollm2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("smol")
    os.link(smollm2, folder / "smol.gguf") if os.stat(smollm2).st_dev == os.stat(folder).st_dev else shutil.copy(smollm2, folder / "smol.gguf")
    return folder


def test_generate(smol, smollm2, churon):
    """What the program itself says, token by token; the same again with a seed; other stops and lengths."""
    records = [{"text": "What is the capital of France?"}, {"text": "Say hello in Korean."}]
    head = "model: {file: smol.gguf}\n"
    steps = [{"generate": {"prompt": "text", "into": "a", "ids": "ids", "finish_reason": "why", "max_tokens": 16}},
             {"generate": {"prompt": "text", "into": "b", "max_tokens": 16, "temperature": 1.0, "seed": 5, "top_k": 40, "top_p": 0.9}},
             {"generate": {"prompt": "text", "into": "c", "max_tokens": 16, "stop": [" of"]}},
             {"generate": {"prompt": "text", "into": "d", "max_tokens": 4, "raw": True}}]
    got = bundle_run.answers(smol, {"text": TEXT}, steps, ["a", "ids", "why", "b", "c", "d"], records, head=head, task="generation")
    for r, g in zip(records, got):
        g = g["ok"]
        common = [churon, "run", str(smollm2), r["text"], "--json"]
        def program(*flags):
            done = subprocess.run([*common, *flags], capture_output=True, check=True, timeout=100)
            return json.loads(done.stdout)
        greedy = program("--temperature", "0", "--max-tokens", "16")
        assert (g["a"], g["ids"], g["why"]) == (greedy["text"], greedy["ids"], greedy["finish_reason"])
        assert g["b"] == program("--temperature", "1", "--max-tokens", "16", "--seed", "5", "--top-k", "40", "--top-p", "0.9")["text"]
        assert g["c"] == g["a"].split(" of")[0]
        assert g["d"] == program("--raw", "--temperature", "0", "--max-tokens", "4")["text"]


def test_a_language_models_own_tokenizer_and_template(smol, smollm2):
    from test_tokenizer import smollm2_reference
    reference = smollm2_reference.__wrapped__(smollm2) if hasattr(smollm2_reference, "__wrapped__") else smollm2_reference.__pytest_wrapped__.obj(smollm2)
    reference.save(str(smol / "tokenizer.json"))
    all_texts = strings(1000, seed="own")
    steps = [{"tokenize": {"field": "text", "file": "tokenizer.json", "outputs": {"input_ids": "a"}}},
             {"tokenize": {"field": "text", "model": "main", "outputs": {"input_ids": "b"}}},
             {"chat_template": {"prompt": "text", "system": "S", "model": "main", "into": "c"}}]
    got = bundle_run.answers(smol, {"text": TEXT}, steps, ["a", "b", "c"], [{"text": s} for s in all_texts], head="model: {file: smol.gguf}\n", task="generation")
    for s, g, e in zip(all_texts, got, reference.encode_batch(all_texts)):
        assert g["ok"]["a"] == e.ids and g["ok"]["b"] == e.ids
        assert g["ok"]["c"] == f"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n{s}<|im_end|>\n<|im_start|>assistant\n"


def test_a_bare_language_model_answers(smollm2):
    got = bundle_run.run(smollm2, [{"prompt": "Hi"}])
    assert got[0]["ok"]["text"]


def test_generate_from_messages(smol):
    """A list of messages is the prompt that its parts are."""
    inputs = {"text": TEXT, "roles": {"type": "list", "of": TEXT}, "contents": {"type": "list", "of": TEXT}}
    steps = [{"record": {"members": {"role": "roles", "content": "contents"}, "each": True, "into": "m"}},
             {"generate": {"messages": "m", "into": "a", "max_tokens": 12}}, {"chat_template": {"messages": "m", "model": "main", "into": "c"}},
             {"generate": {"prompt": "text", "system": "Be brief.", "into": "b", "max_tokens": 12}}]
    record = {"text": "Name a fruit.", "roles": ["system", "user"], "contents": ["Be brief.", "Name a fruit."]}
    got = bundle_run.answers(smol, inputs, steps, ["a", "b", "c"], [record, {**record, "roles": [], "contents": []}], head="model: {file: smol.gguf}\n", task="generation")
    assert got[0]["ok"]["a"] == got[0]["ok"]["b"] != ""
    assert got[0]["ok"]["c"].endswith("<|im_start|>user\nName a fruit.<|im_end|>\n<|im_start|>assistant\n")
    assert "expected at least one message, got none" in got[1]["error"]
