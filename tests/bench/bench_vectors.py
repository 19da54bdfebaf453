"""Exact top-10 by faiss (IndexFlat) and sqlite-vec, on the vectors that bench_vectors --dir wrote,
in rounds with bench_vectors itself: all three see the same load of the machine.

    python3 bench_vectors.py BENCH_VECTORS DIR [--rounds N]

Needs numpy, faiss-cpu, sqlite-vec and apsw from PyPI. Checks that all three find the same rows."""

import statistics
import subprocess
import sys
import time

import apsw
import faiss
import numpy
import sqlite_vec


def floats(path, dims):
    return numpy.fromfile(path, dtype=numpy.float32).reshape(-1, dims)


def timed(name, queries, search):
    search(queries[0])
    cpu, ms = time.process_time(), []
    for q in queries:
        start = time.perf_counter()
        search(q)
        ms.append((time.perf_counter() - start) * 1e3)
    cpu = (time.process_time() - cpu) * 1e3 / len(queries)
    print(f"{name:34} {statistics.median(ms):8.2f} ms median, {min(ms):8.2f} least, {cpu:8.2f} CPU; "
          f"{1e3 / statistics.median(ms):7.1f} queries/s", flush=True)


def faiss_rounds(name, index, vectors, queries):
    index.add(vectors)
    one = lambda q: index.search(q[None], 10)[1][0]

    def run():
        for threads in (1, 2):
            faiss.omp_set_num_threads(threads)
            timed(f"faiss {name}, {threads} threads", queries, one)
            start, cpu = time.perf_counter(), time.process_time()
            index.search(queries, 10)
            ms = (time.perf_counter() - start) * 1e3 / len(queries)
            cpu = (time.process_time() - cpu) * 1e3 / len(queries)
            print(f"{'    in one batch of 100':34} {ms:8.2f} ms, {cpu:24.2f} CPU; "
                  f"{1e3 / ms:21.1f} queries/s", flush=True)
        return one

    return run


def sqlite_rounds(vectors, queries):
    db = apsw.Connection(":memory:")
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    db.execute(f"create virtual table v using vec0(e float[{vectors.shape[1]}] distance_metric=cosine)")
    with db:
        db.executemany("insert into v(rowid, e) values (?, ?)",
                       ((i + 1, row.tobytes()) for i, row in enumerate(vectors)))
    sql = "select rowid from v where e match ? and k = 10 order by distance"
    one = lambda q: [row[0] - 1 for row in db.execute(sql, (q.tobytes(),))]

    def run():
        timed("sqlite-vec, cosine", queries, one)
        return one

    return run


def main():
    bench, folder = sys.argv[1:3]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    subprocess.run([bench, "--dir", folder], check=True)
    size = len(numpy.fromfile(f"{folder}/queries.f32", dtype=numpy.float32)) // 100
    vectors, queries = floats(f"{folder}/vectors.f32", size), floats(f"{folder}/queries.f32", size)
    runs = [faiss_rounds("L2", faiss.IndexFlatL2(size), vectors, queries),
            faiss_rounds("IP", faiss.IndexFlatIP(size), vectors, queries),
            sqlite_rounds(vectors, queries)]
    for i in range(rounds):
        found = [list(run()(queries[0])) for run in runs]
        if len({tuple(map(int, ids)) for ids in found}) != 1:
            sys.exit(f"different rows: {found}")
        if i < rounds - 1:
            subprocess.run([bench, "--dir", folder], check=True)


main()
