"""The tiny models of make_tiny.py in llama.cpp: a reference of our own repeats our misreadings, this one does not.

    LLAMA_BIN=dir python3 tests/vectors/compare_llama.py build/release/tests/vectors/check_vectors

Each model is written by the gguf package (seeds fixed, one of them in shards) and read by llama-server, whose
log-probabilities must be numpy's, and then by check_vectors: the engine from file to answer. Skipped (77) without
LLAMA_BIN, gguf or numpy. llama.cpp does not know phi3's window, so its file has none here.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

BIN = os.environ.get("LLAMA_BIN")
if not BIN:
    sys.exit(print("compare_llama: LLAMA_BIN is not set: skipped") or 77)
try:
    import numpy as np
    import gguf
    import make_tiny as tiny
except ImportError as missing:
    sys.exit(print(f"compare_llama: {missing}: skipped") or 77)

CONTEXT = 512
NEAR, NEAR_GELU, KL = 1e-4, 1e-2, 1e-5  # its GELU is a table of halves
# Beside the rows that tiny.txt has: positions as some files give them.
MODELS = [(*row[:5], 0 if row[1] == "phi3" else row[5], row[6]) for row in tiny.MODELS] + [
    ("llama-untyped", "llama", 2, 8, "", 0, "untyped"),     # a factor and no type: linear
    ("phi3-longrope", "phi3", 2, 8, "fused head", 0, "longrope"),
]


class Model(tiny.Model):
    """As in numpy, with its tensors kept as they are asked for."""

    def __init__(self, row):
        self.kept = {}
        super().__init__(row)

    def tensor(self, name, columns, rows=1, centre=0.0, scale=1.0):
        self.kept[name] = super().tensor(name, columns, rows, centre, scale)
        return self.kept[name]

    def rotation(self, layer):
        if self.scaling == "untyped":
            self.scaling = "linear"
            out = super().rotation(layer)
            self.scaling = "untyped"
            return out
        if self.scaling == "longrope":
            short = self.tensor("rope_factors_short.weight", self.dim // 2, 1, 4.0, 4.0)
            self.tensor("rope_factors_long.weight", self.dim // 2, 1, 8.0, 4.0)
            inv = 1.0 / tiny.BASE ** (np.arange(0, self.dim, 2) / self.dim) / short
            return 1.25 * np.exp(1j * np.outer(np.arange(tiny.TOKENS), inv))
        return super().rotation(layer)

    def keys(self, w):
        w.add_block_count(self.layers)
        w.add_embedding_length(tiny.EMBD)
        w.add_feed_forward_length(tiny.FFN)
        w.add_head_count(tiny.HEADS)
        w.add_head_count_kv(tiny.KV_HEADS)
        w.add_key_length(self.dim)
        w.add_value_length(self.dim)
        w.add_rope_dimension_count(self.dim)
        w.add_context_length(2 * CONTEXT)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_freq_base(tiny.BASE)
        w.add_vocab_size(tiny.VOCAB)
        if self.window:
            w.add_sliding_window(self.window)
        if "caps" in self.traits:
            w.add_attn_logit_softcapping(5.0)
            w.add_final_logit_softcapping(3.0)
        if self.scaling == "longrope":  # as the converter writes phi3: its kind of scaling is not named
            w.add_rope_scaling_orig_ctx_len(CONTEXT)
            w.add_rope_scaling_attn_factors(1.25)
        elif self.scaling:
            if self.scaling != "untyped":
                w.add_rope_scaling_type(gguf.RopeScalingType(self.scaling))
            w.add_rope_scaling_factor(tiny.FACTOR)
            w.add_rope_scaling_orig_ctx_len(int(tiny.TRAINED))

    def write(self, path, shards):
        w = gguf.GGUFWriter(path, self.arch, split_max_tensors=6 if shards else 0)
        self.keys(w)
        w.add_tokenizer_model("llama")
        w.add_token_list(["<unk>", "<s>", "</s>", "\u2581"] + [chr(97 + i % 26) + str(i) for i in range(4, tiny.VOCAB)])
        w.add_token_scores([-float(i) for i in range(tiny.VOCAB)])
        w.add_token_types([2, 3, 3] + [1] * (tiny.VOCAB - 3))
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        for name, values in self.kept.items():
            w.add_tensor(name, values.astype(np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def asked(model, ids, log):
    """llama.cpp's log-probabilities of every token behind `ids`."""
    port = free_port()
    server = subprocess.Popen(
        [os.path.join(BIN, "llama-server"), "-m", model, "-c", str(CONTEXT), "-np", "1", "-ctk", "f32", "-ctv", "f32",
         "-fa", "off", "--no-warmup", "--host", "127.0.0.1", "--port", str(port)],
        stdout=log, stderr=log, env={**os.environ, "LD_LIBRARY_PATH": BIN})
    body = json.dumps({"prompt": ids, "n_predict": 1, "n_probs": tiny.VOCAB, "temperature": 0}).encode()
    try:
        for _ in range(600):
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body,
                                                 {"Content-Type": "application/json"})
                answer = json.load(urllib.request.urlopen(request, timeout=60))
                break
            except (urllib.error.URLError, ConnectionError):
                if server.poll() is not None:
                    return None
                time.sleep(0.1)
        else:
            return None
    finally:
        server.terminate()
        server.wait()
    out = np.full(tiny.VOCAB, -np.inf)
    for token in answer["completion_probabilities"][0]["top_logprobs"]:
        out[token["id"]] = token["logprob"]
    return out


def engine_agrees(check, model, ids, theirs, where):
    best = [int(i) for i in np.argsort(-theirs)[:10]]
    step = {"id": best[0], "top": [[i, float(theirs[i])] for i in best]}
    with open(f"{where}/greedy.jsonl", "w", encoding="utf-8") as f:
        print(json.dumps({"ids": ids, "steps": [step]}), file=f)
    open(f"{where}/tokens.jsonl", "w", encoding="utf-8").close()
    run = subprocess.run([check, f"{where}/tokens.jsonl", f"{where}/greedy.jsonl", "f32", "kv-f32", "cpu"],
                         env={**os.environ, "KVASIR_MODEL": model}, capture_output=True, text=True, check=False)
    found = re.search(r"kl_mean=([0-9.]+)", run.stdout)
    if run.returncode > 1 or not found:
        return False, run.stderr.strip()
    return float(found[1]) < (KL), f"KL {found[1]}"


def compare(row, check, where, log):
    model = Model(row)
    logits = model.logits()[-1]
    ours = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    shards = row[0] == "llama-head"
    model.write(f"{where}/{row[0]}.gguf", shards)
    path = f"{where}/{row[0]}" + ("-00001-of-%05d" % -(-len(model.kept) // 6) if shards else "") + ".gguf"
    ids = [i * i * 7 % tiny.VOCAB for i in range(tiny.TOKENS)]
    theirs = asked(path, ids, log)
    if theirs is None:
        print(f"{row[0]:16} llama-server did not answer")
        return False
    seen = np.isfinite(theirs)
    apart = float(np.abs(ours - theirs)[seen].max())
    agrees, said = engine_agrees(check, path, ids, theirs, where)
    near = NEAR_GELU if row[1].startswith("gemma") else NEAR
    good = apart < near and seen.sum() == tiny.VOCAB and agrees
    print(f"{row[0]:16} {'ok' if good else 'DIFFERS'}: numpy by {apart:.1e} over {seen.sum()} tokens; engine: {said}")
    return good


with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w", encoding="utf-8") as server_log:
    results = [compare(row, sys.argv[1], folder, server_log) for row in MODELS]
sys.exit(0 if all(results) else 1)
