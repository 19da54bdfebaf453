/*
 * bench_vectors.c - exact top-k by vector distance: statements one after the other on a table of
 * made unit vectors, beside a plain read of as many bytes.
 *
 *   bench_vectors [--rows N] [--dims D] [--clusters C] [--from FILE] [--index LISTS] [--threads T] [--dir DIR]
 *
 * Prints the median and the least milliseconds of a statement and its CPU time. --clusters: the vectors
 * are C centers with noise of .7 of their length; else all directions are alike, of which no index
 * knows more than a scan. --from: vectors of D f32, of which the last 100 are the queries. --index: the
 * scan by <=> beside an ivfflat index of so many lists (0: the default) with several numbers of probes; recall is the share of the exact
 * ten nearest that are found. --dir: also writes vectors.f32 and queries.f32 there, for bench_vectors.py.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/exec.h"

enum { QUERIES = 100, NEAREST = 10 };

typedef struct setup {
    int rows, dims, threads, clusters, index;
    const char *dir, *from;
    float *vectors; /* [rows × dims], then the queries */
} setup;

static void die(const char *what, const err *e) {
    fprintf(stderr, "bench_vectors: %s: %s\n", what, e ? e->message : "failed");
    exit(1);
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Runs a statement; the first NEAREST values of its first column go to `ids`, if it is not NULL. */
static void run_ids(db *d, str sql, int64_t *ids) {
    const batch *rows;
    err e = {0};
    stmt *s = db_submit(d, sql);
    stmt_status status;
    int n = 0;
    while ((status = stmt_next(s, -1, &rows, &e)) == STMT_ROWS)
        for (int r = 0; ids && r < rows->rows && n < NEAREST; r++)
            ids[n++] = rows->cols[0].i[r];
    if (status == STMT_ERROR)
        die("a statement", &e);
    stmt_free(s);
}

static void run(db *d, str sql) {
    run_ids(d, sql, NULL);
}

/* ---- the data -------------------------------------------------------------------------------- */

static float next_normal(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (double)(*state >> 33) / (double)(UINT64_C(1) << 31) - 0.5;
    }
    return (float)sum;
}

static void make_unit(float *v, int dims, const float *center, float noise, uint64_t *state) {
    double square = 0;
    for (int k = 0; k < dims; k++) {
        v[k] = noise * next_normal(state) + (center ? center[k] : 0);
        square += (double)v[k] * (double)v[k];
    }
    for (int k = 0; k < dims; k++)
        v[k] = (float)(v[k] / sqrt(square));
}

static void make_vectors(setup *b) {
    static const double noise_length = 0.7, normal_deviation = 0.577; /* of next_normal */
    size_t n = (size_t)(b->rows + QUERIES), dims = (size_t)b->dims;
    uint64_t state = 1;
    float *centers = mem_alloc(((size_t)b->clusters + 1) * dims * sizeof *centers);
    float noise = (float)(noise_length / (normal_deviation * sqrt((double)dims)));
    b->vectors = mem_alloc(n * dims * sizeof(float));
    for (int c = 0; c < b->clusters; c++)
        make_unit(centers + (size_t)c * dims, b->dims, NULL, 1, &state);
    for (size_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t c = b->clusters ? (size_t)(state >> 33) % (size_t)b->clusters : 0;
        make_unit(b->vectors + i * dims, b->dims, b->clusters ? centers + c * dims : NULL,
                  b->clusters ? noise : 1, &state);
    }
    free(centers);
}

static void read_vectors(setup *b) {
    size_t row = (size_t)b->dims * sizeof(float), n = (size_t)b->rows + QUERIES;
    FILE *f = fopen(b->from, "rb");
    b->vectors = mem_alloc(n * row);
    size_t got = f ? fread(b->vectors, row, n, f) : 0;
    if (got <= QUERIES || fclose(f) != 0)
        die(b->from, NULL);
    b->rows = (int)got - QUERIES;
}

static void write_floats(const char *dir, const char *name, const float *from, size_t n) {
    char *path = NULL;
    FILE *f = asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : fopen(path, "wb");
    if (!f || fwrite(from, sizeof *from, n, f) != n || fclose(f) != 0)
        die(name, NULL);
    free(path);
}

static str vector_of(const setup *b, size_t row) {
    return (str){(const char *)(b->vectors + row * (size_t)b->dims),
                 (size_t)b->dims * sizeof(float)};
}

static void load(const setup *b, db *d, const char *csv) {
    FILE *f = fopen(csv, "w");
    buf line = {0};
    for (int i = 0; f && i < b->rows; i++) {
        buf_clear(&line);
        buf_printf(&line, "%d,\"", i + 1);
        vector_print(&line, vector_of(b, (size_t)i));
        buf_append_c(&line, "\"\n");
        fwrite(line.p, 1, line.n, f);
    }
    if (!f || fclose(f) != 0)
        die(csv, NULL);
    buf_clear(&line);
    buf_printf(&line, "CREATE TABLE items (id INTEGER PRIMARY KEY, v VECTOR(%d))", b->dims);
    run(d, buf_str(&line));
    buf_clear(&line);
    buf_printf(&line, "COPY items FROM '%s' (HEADER off)", csv);
    run(d, buf_str(&line));
    buf_free(&line);
    unlink(csv);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int compare_ms(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *ms, double cpu, double bytes) {
    qsort(ms, QUERIES, sizeof *ms, compare_ms);
    double median = ms[QUERIES / 2];
    printf("%-34s %8.2f ms median, %8.2f least, %8.2f CPU; %7.1f queries/s, %5.1f GB/s\n", name,
           median, ms[0], cpu / QUERIES, 1e3 / median, bytes / median / 1e6);
    fflush(stdout);
}

static void measure(const setup *b, db *d, const char *name, const char *before,
                    const char *after) {
    double ms[QUERIES], cpu = 0;
    buf sql = {0};
    for (int pass = 0; pass < 2; pass++) { /* the first warms up */
        cpu = cpu_ms();
        for (int i = 0; i < (pass ? QUERIES : 3); i++) {
            buf_clear(&sql);
            buf_append_c(&sql, before);
            vector_print(&sql, vector_of(b, (size_t)(b->rows + i)));
            buf_append_c(&sql, after);
            double start = clock_ms();
            run(d, buf_str(&sql));
            ms[i] = clock_ms() - start;
        }
        cpu = cpu_ms() - cpu;
    }
    report(name, ms, cpu, (double)b->rows * b->dims * sizeof(float));
    buf_free(&sql);
}

/* Searches for all queries in one statement, and prints the time of one query. */
static void measure_batch(const setup *b, db *d) {
    enum { ROUNDS = 5 };
    double ms[ROUNDS];
    buf sql = {0};
    buf_printf(&sql, "CREATE TABLE queries (v VECTOR(%d))", b->dims);
    run(d, buf_str(&sql));
    buf_clear(&sql);
    buf_append_c(&sql, "INSERT INTO queries VALUES ");
    for (int i = 0; i < QUERIES; i++) {
        buf_append_c(&sql, i ? ",('" : "('");
        vector_print(&sql, vector_of(b, (size_t)(b->rows + i)));
        buf_append_c(&sql, "')");
    }
    run(d, buf_str(&sql));
    buf_free(&sql);
    double cpu = cpu_ms();
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_ms();
        run(d, STR("SELECT count(*) FROM queries AS q JOIN LATERAL (SELECT id FROM items "
                   "ORDER BY items.v <=> q.v LIMIT 10) AS x ON true"));
        ms[i] = (clock_ms() - start) / QUERIES;
    }
    cpu = (cpu_ms() - cpu) / (ROUNDS * QUERIES);
    qsort(ms, ROUNDS, sizeof *ms, compare_ms);
    printf("%-34s %8.2f ms median, %8.2f least, %8.2f CPU; %7.1f queries/s\n",
           "<=> LIMIT 10, 100 in a statement", ms[ROUNDS / 2], ms[0], cpu, 1e3 / ms[ROUNDS / 2]);
    fflush(stdout);
}

/* ---- the index ------------------------------------------------------------------------------- */

static void query_sql(const setup *b, int query, buf *sql) {
    buf_clear(sql);
    buf_append_c(sql, "SELECT id FROM items ORDER BY v <=> '");
    vector_print(sql, vector_of(b, (size_t)(b->rows + query)));
    buf_printf(sql, "' LIMIT %d", NEAREST);
}

static double share_found(const int64_t *exact, const int64_t *got) {
    int n = 0;
    for (int i = 0; i < NEAREST; i++)
        for (int k = 0; k < NEAREST; k++)
            n += exact[i] == got[k];
    return (double)n / NEAREST;
}

/* Returns the median ms of the queries; their results go to ids[QUERIES][NEAREST]. */
static double ask_all(const setup *b, db *d, int64_t *ids) {
    double ms[QUERIES];
    buf sql = {0};
    for (int pass = 0; pass < 2; pass++) /* the first warms up */
        for (int i = 0; i < (pass ? QUERIES : 10); i++) {
            query_sql(b, i, &sql);
            double start = clock_ms();
            run_ids(d, buf_str(&sql), ids + (size_t)i * NEAREST);
            ms[i] = clock_ms() - start;
        }
    qsort(ms, QUERIES, sizeof *ms, compare_ms);
    buf_free(&sql);
    return ms[QUERIES / 2];
}

static void measure_index(const setup *b, db *d) {
    static const int probes[] = {0, 5, 10, 20, 40, 80, 160};
    int64_t *exact = mem_zalloc(2 * sizeof *exact * QUERIES * NEAREST);
    int64_t *got = exact + QUERIES * NEAREST;
    double scan = ask_all(b, d, exact), start = clock_ms();
    printf("exact scan %34.2f ms\n", scan);
    buf create = {0};
    buf_append_c(&create, "CREATE INDEX items_v ON items USING ivfflat (v vector_cosine_ops)");
    if (b->index > 0)
        buf_printf(&create, " WITH (lists = %d)", b->index);
    run(d, buf_str(&create));
    buf_free(&create);
    printf("CREATE INDEX %32.1f s\n", (clock_ms() - start) / 1e3);
    for (size_t i = 0; i < BASE_COUNT(probes); i++) {
        double recall = 0;
        buf sql = {0};
        buf_printf(&sql, "SET vector_probes = %d", probes[i]);
        run(d, buf_str(&sql));
        double ms = ask_all(b, d, got);
        for (size_t k = 0; k < QUERIES; k++)
            recall += share_found(exact + k * NEAREST, got + k * NEAREST) / QUERIES;
        printf("vector_probes = %-4d %24.2f ms, %5.1f times the scan's queries/s, recall@10 %.3f\n",
               probes[i], ms, scan / ms, recall);
        fflush(stdout);
        buf_free(&sql);
    }
    free(exact);
}

/* Reads the vectors by one thread, without computing: what the memory allows. */
static void measure_read(const setup *b) {
    double ms[QUERIES], cpu = cpu_ms();
    const uint64_t *words = (const uint64_t *)b->vectors;
    size_t n = (size_t)b->rows * (size_t)b->dims * sizeof(float) / sizeof *words;
    volatile uint64_t sink = 0;
    for (int i = 0; i < QUERIES; i++) {
        double start = clock_ms();
        uint64_t sums[4] = {0};
        for (size_t k = 0; k + 4 <= n; k += 4)
            for (int j = 0; j < 4; j++)
                sums[j] ^= words[k + (size_t)j];
        sink = sink ^ sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
        ms[i] = clock_ms() - start;
    }
    report("plain read, one thread", ms, cpu_ms() - cpu, (double)n * sizeof *words);
}

static void measure_scans(const setup *b, db *d) {
    measure_read(b);
    measure(b, d, "<=> LIMIT 10", "SELECT id FROM items ORDER BY v <=> '", "' LIMIT 10");
    measure(b, d, "<-> LIMIT 10", "SELECT id FROM items ORDER BY v <-> '", "' LIMIT 10");
    measure(b, d, "<#> LIMIT 10", "SELECT id FROM items ORDER BY v <#> '", "' LIMIT 10");
    measure(b, d, "<=> LIMIT 10 of half of the rows",
            "SELECT id FROM items WHERE id % 2 = 0 ORDER BY v <=> '", "' LIMIT 10");
    measure(b, d, "<=> LIMIT 1000", "SELECT id FROM items ORDER BY v <=> '", "' LIMIT 1000");
    measure_batch(b, d);
}

int main(int argc, char **argv) {
    setup b = {.rows = 100000, .dims = 384, .index = -1};
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--rows") == 0)
            b.rows = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--dims") == 0)
            b.dims = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--threads") == 0)
            b.threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--clusters") == 0)
            b.clusters = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--index") == 0)
            b.index = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--from") == 0)
            b.from = argv[i + 1];
        else if (strcmp(argv[i], "--dir") == 0)
            b.dir = argv[i + 1];
        else
            die(argv[i], NULL);
    char own[] = "/tmp/bench-vectors-XXXXXX";
    const char *dir = b.dir ? b.dir : mkdtemp(own);
    char *csv = NULL;
    db *d = NULL;
    err e = {0};
    if (!dir || asprintf(&csv, "%s/items.csv", dir) < 0 ||
        db_open(&(db_options){.path = NULL}, &d, &e))
        die("open", &e);
    if (b.from)
        read_vectors(&b);
    else
        make_vectors(&b);
    size_t values = (size_t)b.rows * (size_t)b.dims;
    if (b.dir) {
        write_floats(dir, "vectors.f32", b.vectors, values);
        write_floats(dir, "queries.f32", b.vectors + values, (size_t)QUERIES * (size_t)b.dims);
    }
    load(&b, d, csv);
    buf sql = {0};
    buf_printf(&sql, "SET threads = %d", b.threads);
    if (b.threads)
        run(d, buf_str(&sql));
    if (b.index >= 0)
        measure_index(&b, d);
    else
        measure_scans(&b, d);
    db_close(d);
    buf_free(&sql);
    free(b.vectors);
    free(csv);
    if (!b.dir)
        rmdir(dir);
    return 0;
}
