"""Writes tiny.txt: the logits of tiny models of every architecture (rows as in tests/unit/gpu_tiny.h), computed in
numpy's float64 after the papers and the models' published code, independently of ours. A line: the model's name,
then vocab numbers for each of the last two positions; of an embedding model, the numbers of the text's vector.

    pip install numpy gguf
    python tests/vectors/make_tiny.py > tests/vectors/tiny.txt
"""
import math
import re
import numpy as np
import gguf

EMBD, HEADS, KV_HEADS, FFN, VOCAB, TOKENS, CONTEXT = 32, 4, 2, 64, 40, 12, 64
EPS, BASE, FACTOR, TRAINED = float(np.float32(1e-5)), 500.0, 4.0, 16.0
MODELS = [  # name, arch, layers, head_dim, traits, window, scaling
    ("llama", "llama", 2, 8, "", 0, None),
    ("llama-head", "llama", 2, 8, "head", 0, None),
    ("llama-bias", "llama", 2, 8, "bias outbias", 0, None),
    ("llama3", "llama", 2, 8, "divisors", 0, None),
    ("llama-linear", "llama", 2, 8, "", 0, "linear"),
    ("llama-yarn", "llama", 2, 8, "", 0, "yarn"),
    ("smollm3", "smollm3", 4, 8, "", 0, None),
    ("qwen2", "qwen2", 2, 8, "bias", 0, None),
    ("qwen3", "qwen3", 2, 16, "qknorm", 0, None),
    ("phi3", "phi3", 2, 8, "fused head", 5, None),
    ("gemma", "gemma", 2, 16, "", 0, None),
    ("gemma2", "gemma2", 3, 16, "postnorm caps", 5, None),
    ("gemma3", "gemma3", 7, 16, "postnorm qknorm", 5, "linear"),
]
BERT = "after ungated learned bias outbias"
ENCODERS = [  # and the pooling
    ("bert", "bert", 2, 8, BERT, 0, None, "mean"),
    ("bert-first", "bert", 2, 8, BERT, 0, None, "first"),
    ("nomic-bert", "nomic-bert", 2, 8, "after fused", 0, None, "mean"),
    ("qwen3-embedding", "qwen3", 2, 16, "qknorm", 0, None, "last"),
    ("gemma-embedding", "gemma-embedding", 7, 16, "postnorm qknorm dense", 5, None, "mean"),
]
ARCHS = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
MASK = (1 << 64) - 1


def known_names(arch):
    """The tensor names that the gguf package gives this architecture."""
    return {gguf.TENSOR_NAMES[t] for t in gguf.MODEL_TENSORS[ARCHS[arch]]}


class Model:
    def __init__(self, row):
        self.name, self.arch, self.layers, self.dim, traits, self.window, self.scaling = row
        self.traits = set(traits.split())
        self.kv_heads = HEADS if "after" in self.traits else KV_HEADS
        self.names = known_names(self.arch)

    def tensor(self, name, columns, rows=1, centre=0.0, scale=1.0):
        stem = re.sub(r"^blk\.\d+\.", "blk.{bid}.", name).rsplit(".", 1)[0]
        assert stem in self.names, f"{self.arch} has no {stem}"
        state = 0xCBF29CE484222325
        for byte in name.encode():
            state = (state ^ byte) * 0x100000001B3 & MASK
        out = []
        for _ in range(columns * rows):
            state = (state * 6364136223846793005 + 1442695040888963407) & MASK
            out.append(centre + scale * ((state >> 40) * 2.0**-24 - 0.5))
        out = np.array(out, np.float32).astype(np.float64)
        return out.reshape(rows, columns) if rows > 1 else out

    def gain(self, name, width):
        return self.tensor(name, width, 1, 1.0, 0.5)

    def is_windowed(self, layer):
        return bool(self.window) and {"phi3": True, "gemma2": layer % 2 == 0, "gemma3": (layer + 1) % 6 != 0,
                                      "gemma-embedding": (layer + 1) % 6 != 0}[self.arch]

    def rotation(self, layer):
        """Complex factors [TOKENS, dim/2]."""
        local = self.arch in ("gemma3", "gemma-embedding") and self.is_windowed(layer)
        base = 10000.0 if local else BASE
        inv = 1.0 / base ** (np.arange(0, self.dim, 2) / self.dim)
        magnitude = 1.0
        if "divisors" in self.traits:
            inv = inv / self.tensor("rope_freqs.weight", self.dim // 2, 1, 4.0, 4.0)
        if self.scaling == "linear" and not local:
            inv = inv / FACTOR
        if self.scaling == "yarn":
            def dim_of(turns):
                return self.dim * math.log(TRAINED / (turns * 2 * math.pi)) / (2 * math.log(base))
            low, high = max(math.floor(dim_of(32)), 0), min(math.ceil(dim_of(1)), self.dim - 1)
            high = high + 0.001 if low == high else high
            keep = 1 - np.clip((np.arange(self.dim // 2) - low) / (high - low), 0, 1)
            inv = inv / FACTOR * (1 - keep) + inv * keep
            magnitude = 0.1 * math.log(FACTOR) + 1
        return magnitude * np.exp(1j * np.outer(np.arange(TOKENS), inv))

    def rope(self, x, layer):
        """x: [TOKENS, heads, dim]"""
        turn = self.rotation(layer)[:, None, :]
        half = self.dim // 2
        if self.arch in ("llama", "smollm3"):
            z = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
            return np.stack([z.real, z.imag], -1).reshape(x.shape)
        z = (x[..., :half] + 1j * x[..., half:]) * turn
        return np.concatenate([z.real, z.imag], -1)

    def qkv(self, h, at):
        q, kv = HEADS * self.dim, self.kv_heads * self.dim
        if "fused" in self.traits:
            parts = np.split(h @ self.tensor(at + "attn_qkv.weight", EMBD, q + 2 * kv).T, [q, q + kv], axis=1)
        else:
            parts = [h @ self.tensor(f"{at}attn_{p}.weight", EMBD, n).T for p, n in zip("qkv", (q, kv, kv))]
        if "bias" in self.traits:
            parts = [x + self.tensor(f"{at}attn_{p}.bias", x.shape[1]) for p, x in zip("qkv", parts)]
        return [x.reshape(TOKENS, -1, self.dim) for x in parts]

    def attention(self, h, layer):
        at = f"blk.{layer}."
        q, k, v = self.qkv(h, at)
        if "qknorm" in self.traits:
            q = norm(q, self.gain(at + "attn_q_norm.weight", self.dim))
            k = norm(k, self.gain(at + "attn_k_norm.weight", self.dim))
        if not (self.arch == "smollm3" and layer % 4 == 3) and "learned" not in self.traits:
            q, k = self.rope(q, layer), self.rope(k, layer)
        k, v = (np.repeat(x, HEADS // self.kv_heads, axis=1) for x in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(self.dim)
        if "caps" in self.traits:
            scores = 5 * np.tanh(scores / 5)
        back = np.arange(TOKENS)[:, None] - np.arange(TOKENS)[None, :]
        if self.arch in ("bert", "nomic-bert", "gemma-embedding"):
            hidden = self.is_windowed(layer) & (abs(back) > self.window // 2)
        else:
            hidden = (back < 0) | (self.is_windowed(layer) & (back >= self.window))
        weights = np.exp(np.where(hidden, -np.inf, scores))
        weights /= weights.sum(-1, keepdims=True)
        out = np.einsum("hij,jhd->ihd", weights, v).reshape(TOKENS, -1)
        out = out @ self.tensor(at + "attn_output.weight", HEADS * self.dim, EMBD).T
        return out + self.tensor(at + "attn_output.bias", EMBD) if "outbias" in self.traits else out

    def feed_forward(self, h, layer):
        at = f"blk.{layer}."
        if "ungated" in self.traits:
            up = h @ self.tensor(at + "ffn_up.weight", EMBD, FFN).T + self.tensor(at + "ffn_up.bias", FFN)
            up = 0.5 * up * (1 + np.vectorize(math.erf)(up / math.sqrt(2)))
            return up @ self.tensor(at + "ffn_down.weight", FFN, EMBD).T + self.tensor(at + "ffn_down.bias", EMBD)
        if "fused" in self.traits and "after" not in self.traits:
            gate, up = np.split(h @ self.tensor(at + "ffn_up.weight", EMBD, 2 * FFN).T, 2, axis=1)
        else:
            gate = h @ self.tensor(at + "ffn_gate.weight", EMBD, FFN).T
            up = h @ self.tensor(at + "ffn_up.weight", EMBD, FFN).T
        if self.arch.startswith("gemma"):
            gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return (gate * up) @ self.tensor(at + "ffn_down.weight", FFN, EMBD).T

    def after(self, x, name):
        """A layer norm."""
        x = x - x.mean(-1, keepdims=True)
        return norm(x, self.gain(name + ".weight", EMBD)) + self.tensor(name + ".bias", EMBD)

    def encoded(self):
        """States of an encoder whose norms come after each sum (Devlin et al., arXiv 1810.04805)."""
        x = self.tensor("token_embd.weight", EMBD, VOCAB, 0.0, 4.0)[[i * i * 7 % VOCAB for i in range(TOKENS)]]
        x = x + self.tensor("token_types.weight", EMBD, 2)[0]
        if "learned" in self.traits:
            x = x + self.tensor("position_embd.weight", EMBD, CONTEXT)[:TOKENS]
        x = self.after(x, "token_embd_norm")
        for layer in range(self.layers):
            x = self.after(x + self.attention(x, layer), f"blk.{layer}.attn_output_norm")
            x = self.after(x + self.feed_forward(x, layer), f"blk.{layer}.layer_output_norm")
        return x

    def vector(self, pooling):
        x = self.encoded() if "after" in self.traits else norm(self.states(), self.gain("output_norm.weight", EMBD))
        x = {"mean": x.mean(0), "first": x[0], "last": x[-1]}[pooling]
        if "dense" in self.traits:
            x = self.tensor("dense_3.weight", FFN, EMBD) @ (self.tensor("dense_2.weight", EMBD, FFN) @ x)
        return x / np.sqrt(x @ x)

    def states(self):
        table = self.tensor("token_embd.weight", EMBD, VOCAB, 0.0, 4.0)
        x = table[[i * i * 7 % VOCAB for i in range(TOKENS)]]
        if self.arch.startswith("gemma"):
            x = x * math.sqrt(EMBD)
        for layer in range(self.layers):
            at = f"blk.{layer}."
            for step, before, after in ((self.attention, "attn_norm", "post_attention_norm"),
                                        (self.feed_forward, "ffn_norm", "post_ffw_norm")):
                branch = step(norm(x, self.gain(f"{at}{before}.weight", EMBD)), layer)
                if "postnorm" in self.traits:
                    branch = norm(branch, self.gain(f"{at}{after}.weight", EMBD))
                x = x + branch
        return x

    def logits(self):
        x = self.states()
        table = self.tensor("token_embd.weight", EMBD, VOCAB, 0.0, 4.0)
        head = self.tensor("output.weight", EMBD, VOCAB, 0.0, 4.0) if "head" in self.traits else table
        out = norm(x, self.gain("output_norm.weight", EMBD)) @ head.T
        return 3 * np.tanh(out / 3) if "caps" in self.traits else out


def norm(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * gain


if __name__ == "__main__":
    for row in MODELS:
        print(row[0], *(f"{v:.7g}" for v in Model(row).logits()[-2:].reshape(-1)))
    for row in ENCODERS:
        print(row[0], *(f"{v:.7g}" for v in Model(row[:7]).vector(row[7])))
