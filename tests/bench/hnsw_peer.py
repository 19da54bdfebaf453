"""hnswlib and usearch on the vectors that bench_vectors --dir wrote: build time, size, and at several
widths of search the time of a query and recall@10, beside an exact search.

    python3 hnsw_peer.py DIR [--threads T]

Needs numpy, hnswlib and usearch from PyPI."""

import os
import statistics
import sys
import time

import hnswlib
import numpy
import usearch.index

K = 10


def floats(path, dims):
    return numpy.fromfile(path, dtype=numpy.float32).reshape(-1, dims)


def exact(vectors, queries):
    best = []
    for q in queries:
        near = vectors @ q
        top = numpy.argpartition(-near, K)[:K]
        best.append(set(top.tolist()))
    return best


def measure(name, width, queries, search, truth):
    search(queries[0])
    ms, found = [], 0
    for q, want in zip(queries, truth):
        start = time.perf_counter()
        got = search(q)
        ms.append((time.perf_counter() - start) * 1e3)
        found += len(want & set(int(i) for i in got))
    median = statistics.median(ms)
    print(f"{name} ef {width:4}: {median:7.2f} ms median, {1e3 / median:8.1f} queries/s, "
          f"recall@10 {found / K / len(queries):.3f}", flush=True)


def main():
    folder = sys.argv[1]
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else os.cpu_count()
    dims = os.path.getsize(f"{folder}/queries.f32") // 4 // 100
    vectors, queries = floats(f"{folder}/vectors.f32", dims), floats(f"{folder}/queries.f32", dims)
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    truth = exact(vectors, queries)

    start = time.perf_counter()
    h = hnswlib.Index(space="ip", dim=dims)
    h.init_index(max_elements=len(vectors), M=16, ef_construction=200)
    h.add_items(vectors, num_threads=threads)
    built = time.perf_counter() - start
    h.save_index(f"{folder}/hnsw.bin")
    print(f"hnswlib M 16, ef_construction 200: built in {built:.1f} s, "
          f"{os.path.getsize(f'{folder}/hnsw.bin') / 1e6:.0f} MB, also in memory")
    for width in (10, 20, 40, 80, 160, 320):
        h.set_ef(width)
        measure("hnswlib", width, queries, lambda q: h.knn_query(q, k=K, num_threads=1)[0][0], truth)
    del h

    for kind in ("f32", "i8"):
        start = time.perf_counter()
        u = usearch.index.Index(ndim=dims, metric="cos", dtype=kind, connectivity=16,
                                expansion_add=128)
        u.add(numpy.arange(len(vectors)), vectors, threads=threads)
        built = time.perf_counter() - start
        u.save(f"{folder}/usearch.bin")
        print(f"usearch {kind}: built in {built:.1f} s, "
              f"{os.path.getsize(f'{folder}/usearch.bin') / 1e6:.0f} MB, also in memory")
        for width in (16, 64, 256):
            u.expansion_search = width
            measure(f"usearch {kind}", width, queries, lambda q: u.search(q, K).keys, truth)


main()
