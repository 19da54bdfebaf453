/*
 * mixed_script.c - the endless script of a writer: definitions, changes of rows, files, calls of the
 * model and transactions in random order.
 *
 *   w0_a          rows by number, with a text to ask the model about
 *   w0_b          rows by a TEXT key;  w0_e  rows with a vector
 *   w0_c0 … c2    made by CREATE TABLE or CREATE TABLE AS, altered, renamed, dropped
 *   w0_i0 … i3    indexes on any of them;  w0_v0, v1  views
 *   shared        every writer's: INSERT takes the next number, so that a lost or doubled one shows
 *
 * Statements do not know what is there: a third of them fails, some of these halfway through a
 * table, and then must have changed nothing.
 */
#include <inttypes.h>

#include "mixed_int.h"

#include "crash_int.h"

/* A statement while it is written. */
typedef struct draft {
    const script *s;
    uint64_t random;
    buf *out;
} draft;

static uint32_t pick(draft *d, uint32_t n) {
    d->random = hash_mix(d->random, 0x5eed);
    return (uint32_t)(d->random >> 33) % n;
}

/* Mostly a few rows, now and then hundreds. */
static uint32_t pick_rows(draft *d) {
    return pick(d, 4) ? 1 + pick(d, 8) : 1 + pick(d, 600);
}

/* Appends SQL. In it, @ is the writer's prefix, # a random number below 10000. */
static void sql(draft *d, const char *text) {
    for (const char *p = text; *p; p++)
        if (*p == '@')
            buf_printf(d->out, "w%d_", d->s->writer);
        else if (*p == '#')
            buf_printf(d->out, "%" PRIu32, pick(d, 10000));
        else
            buf_append_char(d->out, *p);
}

static void number(draft *d, uint32_t n) {
    buf_printf(d->out, "%" PRIu32, n);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void from_series(draft *d) {
    sql(d, " FROM generate_series(1, ");
    number(d, pick_rows(d));
    sql(d, ") AS g(x)");
}

static void insert(draft *d) {
    switch (pick(d, 8)) {
    case 0:
        sql(d, "INSERT INTO @a (k, s, r) VALUES (#, 'one #', 0.5), (NULL, NULL, # / 7.0)");
        return;
    case 1: /* some texts are longer than a page */
        sql(d, "INSERT INTO @a (k, s) SELECT x * # % 97, "
               "x || repeat(' abcdefghi', (x * #) % 20 * (x * #) % 60)");
        from_series(d);
        return;
    case 2:
        sql(d, "INSERT INTO @b SELECT 'c' || (x * # % 700), x, repeat('body ', x % 50)");
        from_series(d);
        sql(d, " WHERE true ON CONFLICT (code) DO UPDATE SET n = n + excluded.n");
        return;
    case 3: /* fails at a key that is there, if there is one */
        sql(d, "INSERT INTO @b SELECT 'c' || (x + #), x, NULL");
        from_series(d);
        return;
    case 4:
        sql(d, "INSERT INTO @c");
        number(d, pick(d, 3));
        sql(d, " (id, k, s) SELECT id, k, s FROM @a ORDER BY k, id LIMIT ");
        number(d, pick_rows(d));
        return;
    case 5:
        sql(d,
            "INSERT INTO @e (v) SELECT ('[' || (x * # % 97) || ',' || (x % 11) || ']')::VECTOR(2)");
        from_series(d);
        return;
    default:
        sql(d, "INSERT INTO @a (k, s, r) SELECT x + #, 'row # ' || x, x / 7.0");
        from_series(d);
    }
}

static void update(draft *d) {
    static const char *const texts[] = {
        "UPDATE @a SET k = k + 1, s = s || 'x' WHERE id % 7 = # % 7",
        "UPDATE @a SET s = repeat('new #', k % 30) WHERE k < # % 90",
        "UPDATE @a SET id = id + 3000 WHERE id % 5 = # % 5 AND id < 2000",
        "UPDATE @b SET n = n + 1, body = body || n",
        "UPDATE @b SET code = code || '-' WHERE n % 9 = # % 9",
        "UPDATE @e SET v = ('[' || (id % 13) || ',' || # || ']')::VECTOR(2) WHERE id % 5 = # % 5",
        "DELETE FROM @e WHERE id % 6 = # % 6",
        "UPDATE @c0 SET id = id + 1",
        "DELETE FROM @a WHERE id % 7 = # % 7",
        "DELETE FROM @a WHERE id NOT IN (SELECT id FROM @a ORDER BY id DESC LIMIT 1500)",
        "DELETE FROM @b WHERE n % 6 = # % 6",
        "DELETE FROM @c1",
        "DELETE FROM @c2 WHERE k = (SELECT max(k) FROM @c2)",
    };
    sql(d, texts[pick(d, BASE_COUNT(texts))]);
}

static void ask(draft *d) {
    static const char *const texts[] = {
        "UPDATE @a SET s = LLM('Red?', s AS t) RETURNS ENUM('red', 'green') WHERE id % 17 = # % 17",
        "UPDATE @a SET k = LLM('How many?', s AS t, k) RETURNS INTEGER BETWEEN 1 AND 99 "
        "WHERE id % 19 = # % 19",
        "DELETE FROM @a WHERE id % 13 = # % 13 AND LLM('Bad?', s AS t) RETURNS BOOLEAN",
        "INSERT INTO @a (k, s) SELECT id, LLM('Say it', s AS t) FROM @a WHERE id % 31 = # % 31",
        "CREATE TABLE @c1 AS SELECT id, k, LLM('Say it', s AS t) AS s FROM @a WHERE id % 11 = # % "
        "11",
    };
    sql(d, texts[pick(d, BASE_COUNT(texts))]);
}

/* ---- definitions ----------------------------------------------------------------------------- */

static void create(draft *d) {
    static const char *const bodies[] = {
        " (id INTEGER PRIMARY KEY, k INTEGER, s TEXT, UNIQUE (k, s))",
        " (id INTEGER, k TEXT, s TEXT)",
        " AS SELECT id, k, s FROM @a WHERE id % 3 = # % 3",
        " AS SELECT code AS id, n AS k, body AS s FROM @b",
        " AS SELECT x AS id, x * # % 50 AS k, repeat('cell', x % 40) AS s FROM "
        "generate_series(1, #) AS g(x)",
        /* fails in the third batch */
        " AS SELECT x AS id, 9223372036854770807 + x AS k, 'x' AS s FROM "
        "generate_series(1, 9999) AS g(x)",
        " AS SELECT a.id, b.n AS k, a.s FROM @a AS a JOIN @b AS b ON a.k = b.n",
    };
    sql(d, "CREATE TABLE @c");
    number(d, pick(d, 3));
    sql(d, bodies[pick(d, BASE_COUNT(bodies))]);
}

static void make_index(draft *d) {
    static const char *const on[] = {"a (k)",  "a (s, k)", "a (r)",  "b (n)",     "b (body)",
                                     "c0 (k)", "c0 (id)",  "c1 (s)", "c2 (k, id)"};
    bool lists = pick(d, 3) == 0;
    sql(d, lists || pick(d, 5) ? "CREATE INDEX @i" : "CREATE UNIQUE INDEX @i");
    number(d, pick(d, 4));
    if (lists) {
        sql(d, pick(d, 2) ? " ON @e USING ivfflat (v) WITH (lists = 7)"
                          : " ON @e USING ivfflat (v vector_cosine_ops)");
        return;
    }
    sql(d, " ON @");
    sql(d, on[pick(d, BASE_COUNT(on))]);
}

static void drop(draft *d) {
    static const char *const texts[] = {
        "DROP TABLE IF EXISTS @c0",
        "DROP TABLE @c0",
        "DROP TABLE @c1",
        "DROP TABLE IF EXISTS @c2",
        "DROP INDEX IF EXISTS @i0",
        "DROP INDEX @i1",
        "DROP INDEX @i2",
        "DROP INDEX @i3",
        "DROP VIEW @v1",
        "DROP MODEL @m",
    };
    sql(d, texts[pick(d, BASE_COUNT(texts))]);
}

static void define(draft *d) {
    static const char *const texts[] = {
        "CREATE OR REPLACE VIEW @v0 AS SELECT id, k + # AS k, s FROM @a WHERE id % 3 = 0",
        "CREATE OR REPLACE VIEW @v1 AS SELECT * FROM @c2", /* @c2 cannot be dropped then */
        "DROP VIEW IF EXISTS @v0",
        "ALTER TABLE @c0 ADD COLUMN extra INTEGER DEFAULT #",
        "ALTER TABLE @c0 DROP COLUMN extra",
        "ALTER TABLE @c1 DROP COLUMN s",
        "ALTER TABLE @c1 RENAME COLUMN k TO other",
        "ALTER TABLE @c1 RENAME COLUMN other TO k",
        "ALTER TABLE @c0 RENAME TO @c1",
        "ALTER TABLE @c1 RENAME TO @c2",
        "ALTER TABLE @a ADD COLUMN late TEXT DEFAULT 'added #'",
        "ALTER TABLE @a DROP COLUMN late",
        "CREATE OR REPLACE MODEL @m FROM 'test:hash'",
        "ANALYZE @a",
        "ANALYZE @c0",
    };
    sql(d, texts[pick(d, BASE_COUNT(texts))]);
}

/* ---- files ----------------------------------------------------------------------------------- */

enum { INPUTS = 3 };

void script_file(const script *s, int i, buf *out) {
    buf_printf(out, "%s/%s%d%s", s->dir, s->files, i, i ? ".csv" : ".csv.gz");
}

static void copy(draft *d) {
    uint32_t kind = pick(d, 4);
    if (kind == 0) {
        sql(d, "COPY @a TO '");
        script_file(d->s, 0, d->out);
    } else if (kind == 1) {
        sql(d, "COPY (SELECT id, k, s FROM @a WHERE k % 2 = # % 2) TO '");
        script_file(d->s, 1, d->out);
    } else {
        sql(d, "COPY @c");
        number(d, pick(d, 3));
        sql(d, " (id, k, s) FROM '");
        if (kind == 2)
            script_file(d->s, 1, d->out);
        else
            buf_printf(d->out, "%s/in%" PRIu32 ".csv", d->s->dir, pick(d, INPUTS));
    }
    sql(d, "'");
}

void script_make_inputs(const char *dir) {
    static const int rows[INPUTS] = {40, 3000, 5000};
    for (int i = 0; i < INPUTS; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/in%d.csv", dir, i);
        FILE *f = fopen(path, "w");
        CHECK(f, "cannot write %s", path);
        fprintf(f, "id,k,s\n");
        for (int k = 1; k <= rows[i]; k++)
            fprintf(f, "%d,%d,cell %d\n", k * 3, k * 7919 % 1000, k % 100);
        if (i == INPUTS - 1)
            fprintf(f, "0,none,the only k that is no number\n");
        CHECK(fclose(f) == 0, "cannot write %s", path);
    }
}

/* ---- the script ------------------------------------------------------------------------------ */

static void share(draft *d) {
    sql(d, "INSERT INTO shared SELECT coalesce(max(id), 0) + 1, ");
    number(d, (uint32_t)d->s->writer);
    sql(d, " FROM shared");
    if (pick(d, 2))
        sql(d, " RETURNING id");
}

static void any(draft *d) {
    static const struct {
        uint32_t weight;
        void (*draw)(draft *d);
    } kinds[] = {{9, insert},     {6, update}, {5, ask},  {8, create}, {8, drop},
                 {4, make_index}, {5, define}, {6, copy}, {2, share}};
    uint32_t sum = 0;
    for (size_t k = 0; k < BASE_COUNT(kinds); k++)
        sum += kinds[k].weight;
    uint32_t at = pick(d, sum);
    size_t k = 0;
    while (at >= kinds[k].weight)
        at -= kinds[k++].weight;
    kinds[k].draw(d);
}

static const char *const setup[] = {
    "CREATE TABLE @a (id INTEGER PRIMARY KEY, k INTEGER, s TEXT, r REAL)",
    "CREATE TABLE @b (code TEXT PRIMARY KEY, n INTEGER, body TEXT)",
    "CREATE TABLE IF NOT EXISTS shared (id INTEGER PRIMARY KEY, writer INTEGER NOT NULL)",
    "CREATE INDEX @i0 ON @a (k)",
    "INSERT INTO @a (k, s) SELECT x % 10, 'first ' || x FROM generate_series(1, 300) AS g(x)",
    "CREATE TABLE @c0 AS SELECT id, k, s FROM @a",
    "CREATE TABLE @e (id INTEGER PRIMARY KEY, v VECTOR(2))",
    "COPY (SELECT id, k, s FROM @a) TO '",
};
_Static_assert(BASE_COUNT(setup) == BLOCK, "the first block");

/* A generator whose state is that of the block or the statement. */
static draft draft_new(const script *s, int64_t n, uint64_t salt, buf *out) {
    uint64_t state = hash_mix(s->seed + salt, (uint64_t)(n * 16 + s->writer));
    return (draft){.s = s, .random = state, .out = out};
}

static bool is_transaction(const script *s, int64_t n) {
    draft block = draft_new(s, n / BLOCK, 1, NULL);
    return n >= BLOCK && pick(&block, 5) < 2;
}

void script_statement(const script *s, int64_t n, buf *out) {
    draft d = draft_new(s, n, 0, out);
    int64_t in_block = n % BLOCK;
    bool transaction = is_transaction(s, n);
    if (n < BLOCK) {
        sql(&d, setup[n]);
        if (n == BLOCK - 1) {
            script_file(s, 1, out);
            sql(&d, "'");
        }
    } else if (transaction && in_block == 0) {
        sql(&d, "BEGIN");
    } else if (transaction && in_block == 1) {
        /* a write: it takes the lock, after which no other writer can make the transaction fail */
        sql(&d, "INSERT INTO @a (k, s) VALUES (#, 'begun')");
    } else if (transaction && in_block == BLOCK - 1) {
        sql(&d, pick(&d, 4) ? "COMMIT" : "ROLLBACK");
    } else {
        any(&d);
    }
}
