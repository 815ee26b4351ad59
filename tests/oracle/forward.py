"""The decoder in numpy: a forward pass to hold the engine against. Slow, plain, and independent of it.

    model = Model("x.gguf")           # weights dequantized by the gguf package
    logits = model.logits([1, 2, 3])  # [n, n_vocab]

Conventions of GGUF files that decide whether the numbers come out right:

- Dimensions are written innermost first: attn_q.weight is [n_embd, n_head*head_dim] in the file and
  (n_head*head_dim, n_embd) here.
- llama and smollm3: the converter has permuted the rows of q and k, so rotary pairs are neighbours (2j, 2j+1).
  qwen2, qwen3 and the gemmas rotate (j, j + n_rot/2).
- rope_freqs.weight ("llama3" scaling) holds divisors of the frequencies. No key announces it.
- rope.scaling.type is "linear" when missing; without a factor that is no scaling at all.
- yarn: frequencies go from interpolated (angle/factor) to unchanged over a ramp between the dimensions that turn
  1 and 32 times in the original context; cos and sin are multiplied by 1 + 0.1 ln(factor), for q and for k.
- smollm3: every fourth layer (3, 7, ...) has no rotary embedding. No key says so.
- gemma: norm weights already contain the "+1"; embeddings are multiplied by sqrt(n_embd); the activation is
  GELU in its tanh form; the output matrix is the embedding.
- gemma2: layers 0, 2, ... see a window, the others everything. gemma3: every sixth sees everything. A window of W
  is W keys, the query's own position included. gemma3's window layers rotate with base 10000 and without scaling.
- gemma2 and gemma3: norms after attention and after the MLP, before the residual sum. qwen3 and gemma3: norms of
  each head of q and k, before the rotation.
- gemma2: scores are capped, after scaling and before the mask; logits too. The 27B models scale scores by
  1/sqrt(n_embd/n_head) instead of 1/sqrt(head_dim).
"""

import math

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


class Model:
    def __init__(self, path, dtype=np.float64, cache=None):
        """cache: the type in which keys and values are kept, e.g. np.float16 as the engine does; None: dtype."""
        self.dtype, self.cache = dtype, cache or dtype
        reader = GGUFReader(path)
        self.keys = {k: f for k, f in reader.fields.items()}
        self.arch = self.key("general.architecture", full=True)
        self.weights = {}
        for t in reader.tensors:
            shape = tuple(int(d) for d in reversed(t.shape))
            self.weights[t.name] = dequantize(t.data, t.tensor_type).reshape(shape).astype(dtype)
        self.read_config()

    def key(self, name, default=None, full=False):
        field = self.keys.get(name if full else f"{self.arch}.{name}")
        return default if field is None else field.contents()

    def read_config(self):
        arch = self.arch
        self.n_embd, self.n_layer = self.key("embedding_length"), self.key("block_count")
        self.n_head = self.key("attention.head_count")
        self.n_head_kv = self.key("attention.head_count_kv", self.n_head)
        self.head_dim = self.key("attention.key_length", self.n_embd // self.n_head)
        self.n_rot = self.key("rope.dimension_count", self.head_dim)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.gemma = arch.startswith("gemma")
        self.interleaved = arch in ("llama", "smollm3")
        self.rope_base = self.key("rope.freq_base", 10000.0)
        self.factor = self.key("rope.scaling.factor", 0.0) or self.key("rope.scale_linear", 0.0) or 1.0
        self.scaling = self.key("rope.scaling.type", "linear")
        if self.scaling == "none":
            self.factor = 1.0
        self.window, self.pattern = 0, 0
        if arch == "gemma2":
            self.window, self.pattern = self.key("attention.sliding_window", 4096), 2
        if arch == "gemma3":
            self.window, self.pattern = self.key("attention.sliding_window", 0), 6
        self.pattern = self.key("attention.sliding_window_pattern", self.pattern)
        self.attn_cap = self.key("attn_logit_softcapping", 50.0) if arch == "gemma2" else 0.0
        default_cap = {"gemma2": 30.0}.get(arch, 0.0)
        self.final_cap = self.key("final_logit_softcapping", default_cap) if self.gemma else 0.0
        big = (arch, self.n_layer) in (("gemma2", 46), ("gemma3", 62))
        self.scale = 1 / math.sqrt(self.n_embd / self.n_head if big else self.head_dim)

    # ---- pieces ------------------------------------------------------------------------------------------

    def has_window(self, layer):
        return self.window > 0 and (self.pattern == 0 or layer % self.pattern < self.pattern - 1)

    def has_rope(self, layer):
        return self.arch != "smollm3" or (layer + 1) % 4 != 0

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * weight

    def angles(self, n, local):
        """cos and sin, each [n, n_rot/2], with yarn's magnitude in them."""
        base, factor, scaling = self.rope_base, self.factor, self.scaling
        if local and self.arch == "gemma3":
            base, factor, scaling = self.key("rope.freq_base_swa", 10000.0), 1.0, "none"
        j = np.arange(self.n_rot // 2)
        freq = base ** (-2.0 * j / self.n_rot)
        if "rope_freqs.weight" in self.weights:
            freq = freq / self.weights["rope_freqs.weight"].astype(np.float64)
        magnitude = self.key("rope.scaling.attn_factor", 1.0)
        if scaling == "yarn":
            original = self.key("rope.scaling.original_context_length", self.key("context_length"))

            def dimension(turns):
                return self.n_rot * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

            low, high = max(0, math.floor(dimension(32))), min(self.n_rot - 1, math.ceil(dimension(1)))
            keep = 1 - np.clip((j - low) / max(0.001, high - low), 0, 1)
            freq = freq / factor * (1 - keep) + freq * keep
            magnitude *= 1 + 0.1 * math.log(factor)
        else:
            freq = freq / factor
        theta = np.arange(n)[:, None] * freq
        return (np.cos(theta) * magnitude).astype(self.dtype), (np.sin(theta) * magnitude).astype(self.dtype)

    def rotate(self, x, cos, sin):
        """x [n, heads, head_dim]"""
        cos, sin = cos[:, None], sin[:, None]
        out = x.copy()
        if self.interleaved:
            a, b = slice(0, self.n_rot, 2), slice(1, self.n_rot, 2)
        else:
            a, b = slice(0, self.n_rot // 2), slice(self.n_rot // 2, self.n_rot)
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def attention(self, h, layer):
        n, b = len(h), f"blk.{layer}."
        q = self.linear(h, b + "attn_q").reshape(n, self.n_head, -1)
        k = self.linear(h, b + "attn_k").reshape(n, self.n_head_kv, -1)
        v = self.linear(h, b + "attn_v").reshape(n, self.n_head_kv, -1)
        if b + "attn_q_norm.weight" in self.weights:
            q = self.norm(q, self.weights[b + "attn_q_norm.weight"])
            k = self.norm(k, self.weights[b + "attn_k_norm.weight"])
        if self.has_rope(layer):
            cos, sin = self.angles(n, self.has_window(layer))
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = (x.astype(self.cache).astype(self.dtype) for x in (k, v))
        at = np.arange(n)
        visible = at[None, :] <= at[:, None]
        if self.has_window(layer):
            visible &= at[:, None] - at[None, :] < self.window
        out = np.empty((n, self.n_head, v.shape[-1]), self.dtype)
        for head in range(self.n_head):
            kv = head // (self.n_head // self.n_head_kv)
            s = (q[:, head] @ k[:, kv].T) * self.dtype(self.scale)
            if self.attn_cap:
                s = self.dtype(self.attn_cap) * np.tanh(s / self.dtype(self.attn_cap))
            s = np.where(visible, s, -np.inf)
            p = np.exp(s - s.max(axis=1, keepdims=True))
            out[:, head] = p / p.sum(axis=1, keepdims=True) @ v[:, kv]
        return self.linear(out.reshape(n, -1), b + "attn_output")

    def mlp(self, h, layer):
        b = f"blk.{layer}."
        gate, up = self.linear(h, b + "ffn_gate"), self.linear(h, b + "ffn_up")
        if self.gemma:
            inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
            act = gate / 2 * (1 + np.tanh(inner.astype(self.dtype)))
        else:
            act = gate / (1 + np.exp(-gate))
        return self.linear(act * up, b + "ffn_down")

    # ---- the pass ----------------------------------------------------------------------------------------

    def logits(self, ids):
        w = self.weights
        x = w["token_embd.weight"][np.asarray(ids)]
        if self.gemma:
            x = x * self.dtype(np.float32(math.sqrt(self.n_embd)))
        for layer in range(self.n_layer):
            b = f"blk.{layer}."
            post = b + "post_attention_norm.weight" in w
            y = self.attention(self.norm(x, w[b + "attn_norm.weight"]), layer)
            x = x + (self.norm(y, w[b + "post_attention_norm.weight"]) if post else y)
            y = self.mlp(self.norm(x, w[b + "ffn_norm.weight"]), layer)
            x = x + (self.norm(y, w[b + "post_ffw_norm.weight"]) if post else y)
        x = self.norm(x, w["output_norm.weight"])
        y = x @ w["output.weight" if "output.weight" in w else "token_embd.weight"].T
        return self.final_cap * np.tanh(y / self.final_cap) if self.final_cap else y


def log_softmax(logits):
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl(p, q):
    """KL(p || q) per position, of log-probabilities."""
    return (np.exp(p) * (p - q)).sum(axis=-1)
