/*
 * test_exec_rules.c - random statements over random tables mean the same whatever rules of the
 * planner are on, and the same as in sqlite3 where it is installed.
 *
 * Statements are written in what both dialects share: typed expressions, explicit NULLS FIRST, no
 * ties under LIMIT. LLM calls (to the hashing test model) are compared between rules alone.
 * Statements without ORDER BY compare as bags of rows, except over one table, whose order no rule
 * may change, and between rules that only choose how to read.
 *
 *   KVASIR_SEED=7 KVASIR_CASES=100 KVASIR_CASE=12 test_exec_rules     (KVASIR_CASE: this one alone,
 *                                                                     with its SQL)
 *   KVASIR_LONG=1: ten times as many
 */
#include "exec_answer_int.h"

enum {
    CASES = 1000,
    BATCH = 500,
    CASES_PER_DATA = 20,
    MAX_CTE_TABLES = 5,
    MAX_COLUMNS = 48,
    MAX_OUT = 3
};

typedef struct gen {
    uint64_t state;
    int aliases, prompts;
    bool llm;       /* calls may occur */
    bool one_table; /* so far the outermost FROM is one table alone */
    bool exists; /* the next SELECT is EXISTS's: sqlite3 forgets its DISTINCT, even under OFFSET */
    int cte;     /* columns of WITH w, all of them numbers; 0: none */
    int tables;  /* named so far, w counting for those in it: each may multiply the rows by ten */
    int cte_tables;
    bool big; /* t0 has many rows: it comes once in a statement */
    bool big_named;
} gen;

enum { BIG_ROWS = 300, BIG_COUNTS_AS = 4 };

static uint32_t pick(gen *g, uint32_t n) {
    g->state += 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash_mix(g->state, 11) >> 33) % n;
}

static bool chance(gen *g, uint32_t percent) {
    return pick(g, 100) < percent;
}

/* ---- expressions ----------------------------------------------------------------------------- */

typedef struct gen_column {
    char text[64];
    bool is_text, is_aggregate;
} gen_column;

typedef struct gen_scope gen_scope;
struct gen_scope {
    gen_column cols[MAX_COLUMNS];
    int n;
    const gen_scope *outer;
};

static void add_column(gen_scope *s, const char *table, const char *name, bool is_text) {
    if (s->n == MAX_COLUMNS)
        return;
    gen_column *c = &s->cols[s->n++];
    snprintf(c->text, sizeof c->text, "%s%s%s", table, *table ? "." : "", name);
    c->is_text = is_text;
    c->is_aggregate = false;
}

static const gen_column *column_in(gen *g, const gen_scope *s, bool is_text, bool aggregates) {
    int found[MAX_COLUMNS], n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->cols[i].is_text == is_text && (aggregates || !s->cols[i].is_aggregate))
            found[n++] = i;
    return n ? &s->cols[found[pick(g, (uint32_t)n)]] : NULL;
}

/* Mostly a column of this query, now and then one of a query around it. */
static const gen_column *any_column(gen *g, const gen_scope *s, bool is_text) {
    const gen_scope *from = s;
    while (from->outer && chance(g, from->n ? 30 : 90))
        from = from->outer;
    return column_in(g, from, is_text, from == s);
}

static void gen_value(gen *g, buf *out, const gen_scope *s, bool is_text, int depth);
static void gen_condition(gen *g, buf *out, const gen_scope *s, int depth);
static void gen_query(gen *g, buf *out, const gen_scope *outer, const bool *types, int ntypes,
                      int depth);
static void gen_from(gen *g, buf *out, gen_scope *s, int depth);

static void gen_leaf(gen *g, buf *out, const gen_scope *s, bool is_text) {
    static const char *const texts[] = {"'x'", "'y'", "'xy'", "''", "'z'"};
    const gen_column *c = chance(g, 90) ? any_column(g, s, is_text) : NULL;
    if (c)
        buf_append_c(out, c->text);
    else if (chance(g, 4))
        buf_append_c(out, is_text ? "CAST(NULL AS TEXT)" : "CAST(NULL AS INTEGER)");
    else if (is_text)
        buf_append_c(out, texts[pick(g, BASE_COUNT(texts))]);
    else
        buf_printf(out, "%d", (int)pick(g, 7) - 2);
}

/* One row, one value, by aggregation or as the first in a total order. */
static void gen_scalar(gen *g, buf *out, const gen_scope *s, bool is_text, int depth) {
    static const char *const aggregates[] = {"min", "max", "sum", "count"};
    gen_scope own = {.outer = s};
    buf from = {0};
    bool one = g->one_table;
    gen_from(g, &from, &own, depth - 1);
    g->one_table = one;
    const gen_column *c = column_in(g, &own, is_text, false);
    buf_append_c(out, "(SELECT ");
    if (!c)
        buf_append_c(out, is_text ? "max('x')" : "count(*)");
    else if (chance(g, 60))
        buf_printf(out, "%s(%s)", aggregates[pick(g, is_text ? 2 : 4)], c->text);
    else
        buf_append_c(out, c->text);
    bool limited = out->p[out->n - 1] != ')';
    buf_append_str(out, buf_str(&from));
    buf_free(&from);
    if (chance(g, 85)) {
        buf_append_c(out, " WHERE ");
        gen_condition(g, out, &own, depth - 1);
    }
    if (limited)
        buf_append_c(out, chance(g, 50) ? " ORDER BY 1 NULLS FIRST LIMIT 1"
                                        : " ORDER BY 1 DESC NULLS LAST LIMIT 1 OFFSET 1");
    buf_append_char(out, ')');
}

static void gen_call(gen *g, buf *out, const gen_scope *s) {
    buf_printf(out, "LLM('Question %u of {f}', ", pick(g, 3));
    gen_leaf(g, out, s, chance(g, 50));
    buf_append_c(out, " AS f");
    if (chance(g, 40)) {
        buf_append_c(out, ", ");
        gen_leaf(g, out, s, true);
        buf_append_c(out, " AS h");
    }
    buf_append_c(out, ") RETURNS ENUM('x', 'y', 'z')");
}

static void gen_pair(gen *g, buf *out, const char *format, const gen_scope *s, bool is_text,
                     int depth) {
    for (const char *at = format; *at; at++)
        if (*at == '?')
            gen_value(g, out, s, is_text, depth - 1);
        else if (*at == '!')
            gen_condition(g, out, s, depth - 1);
        else
            buf_append_char(out, *at);
}

static void gen_value(gen *g, buf *out, const gen_scope *s, bool is_text, int depth) {
    static const char *const numbers[] = {"(? + ?)",
                                          "(? - ?)",
                                          "(? * ?)",
                                          "(? / ?)",
                                          "(? % ?)",
                                          "coalesce(?, ?)",
                                          "CASE WHEN ! THEN ? ELSE ? END",
                                          "abs(?)",
                                          "CAST((!) AS INTEGER)"};
    static const char *const texts[] = {"(? || ?)", "coalesce(?, ?)",
                                        "CASE WHEN ! THEN ? ELSE ? END", "upper(?)",
                                        "substr(?, 1, 1)"};
    if (depth <= 0 || chance(g, 50))
        gen_leaf(g, out, s, is_text);
    else if (chance(g, 25))
        gen_scalar(g, out, s, is_text, depth);
    else if (is_text && g->llm && chance(g, 40))
        gen_call(g, out, s);
    else if (is_text)
        gen_pair(g, out, texts[pick(g, BASE_COUNT(texts))], s, true, depth);
    else
        gen_pair(g, out, numbers[pick(g, BASE_COUNT(numbers))], s, false, depth);
}

/* Semi and anti joins to the large table, by its key. */
static void gen_big_membership(gen *g, buf *out, const gen_scope *s) {
    static const char *const formats[] = {
        "%s IN (SELECT s%d.a FROM t0 AS s%d WHERE s%d.b <= 60)",
        "EXISTS (SELECT 1 FROM t0 AS s%2$d WHERE %1$s = s%2$d.a)",
        "NOT EXISTS (SELECT 1 FROM t0 AS s%2$d WHERE %1$s = s%2$d.a AND s%2$d.d > 7)"};
    const gen_column *c = column_in(g, s, false, false);
    int alias = ++g->aliases;
    uint32_t which = pick(g, BASE_COUNT(formats));
    g->big_named = true;
    if (which == 0)
        buf_printf(out, formats[0], c ? c->text : "3", alias, alias, alias);
    else
        buf_printf(out, formats[which], c ? c->text : "3", alias);
}

static void gen_membership(gen *g, buf *out, const gen_scope *s, int depth) {
    bool is_text = chance(g, 40), one = g->one_table;
    if (g->big && !g->big_named && chance(g, 40)) {
        gen_big_membership(g, out, s);
        return;
    }
    if (chance(g, 50)) {
        buf_append_c(out, chance(g, 30) ? "NOT EXISTS (" : "EXISTS (");
        g->exists = true;
    } else {
        gen_value(g, out, s, is_text, depth - 2);
        buf_append_c(out, chance(g, 40) ? " NOT IN (" : " IN (");
    }
    gen_query(g, out, s, &is_text, 1, depth - 1);
    g->one_table = one;
    buf_append_char(out, ')');
}

static void gen_condition(gen *g, buf *out, const gen_scope *s, int depth) {
    static const char *const numbers[] = {"? = ?",
                                          "? <> ?",
                                          "? <= ?",
                                          "? >= ?",
                                          "? = ?",
                                          "? IS NULL",
                                          "? IS NOT NULL",
                                          "? IN (1, 2, ?)",
                                          "? NOT IN (0, ?)",
                                          "? BETWEEN -1 AND ?",
                                          "? IS DISTINCT FROM ?",
                                          "? IS NOT DISTINCT FROM ?",
                                          "? IS NOT NULL",
                                          "? <= 4",
                                          "? IN (3, 0, 3, NULL)"};
    static const char *const texts[] = {"? = ?",       "? <> ?",          "? <= ?", "? IS NULL",
                                        "? LIKE 'x%'", "? IN ('x', 'y')", "? >= ?"};
    static const char *const links[] = {"(! AND !)", "(! OR !)", "NOT (!)", "(! OR !)"};
    if (depth > 0 && chance(g, 30)) {
        gen_pair(g, out, links[pick(g, BASE_COUNT(links))], s, false, depth);
    } else if (depth > 1 && chance(g, 30)) {
        gen_membership(g, out, s, depth);
    } else if (g->llm && chance(g, 25)) {
        gen_call(g, out, s);
        buf_append_c(out, chance(g, 60) ? " = 'x'" : " <> 'y'");
    } else {
        bool is_text = chance(g, 30);
        gen_pair(g, out,
                 is_text ? texts[pick(g, BASE_COUNT(texts))]
                         : numbers[pick(g, BASE_COUNT(numbers))],
                 s, is_text, depth);
    }
}

/* ---- queries --------------------------------------------------------------------------------- */

typedef struct gen_table {
    const char *name;
    const char *columns[5];
    bool is_text[5];
} gen_table;

static const gen_table tables[] = {
    {"t0", {"a", "b", "c", "d"}, {false, false, true, false}},
    {"t1", {"a", "b", "c"}, {false, false, true}},
    {"t2", {"b", "c", "e"}, {false, true, false}},
};

/* The columns v1, v2, … of a query; types NULL: numbers. */
static void add_outputs(gen_scope *s, const char *alias, const bool *types, int n) {
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i + 1);
        add_column(s, alias, name, types && types[i]);
    }
}

static void gen_source(gen *g, buf *out, gen_scope *s, int depth) {
    char alias[16];
    snprintf(alias, sizeof alias, "s%d", ++g->aliases);
    if (depth > 0 && chance(g, 20)) {
        bool types[MAX_OUT] = {false};
        int n = 1 + (int)pick(g, MAX_OUT);
        for (int i = 0; i < n; i++)
            types[i] = chance(g, 30);
        buf_append_char(out, '(');
        gen_query(g, out, NULL, types, n, depth - 1);
        buf_printf(out, ") AS %s", alias);
        add_outputs(s, alias, types, n);
        g->one_table = false;
        return;
    }
    if (g->cte && chance(g, 40) && g->tables + g->cte_tables <= MAX_CTE_TABLES) {
        g->tables += g->cte_tables;
        buf_printf(out, "w AS %s", alias);
        add_outputs(s, alias, NULL, g->cte);
        g->one_table = false;
        return;
    }
    const gen_table *t = &tables[pick(g, BASE_COUNT(tables))];
    bool big = g->big && t == &tables[0];
    if (big && g->big_named)
        t = &tables[1];
    g->tables += big && !g->big_named ? BIG_COUNTS_AS : 1;
    g->big_named |= big;
    buf_printf(out, "%s AS %s", t->name, alias);
    for (int i = 0; t->columns[i]; i++)
        add_column(s, alias, t->columns[i], t->is_text[i]);
}

/* A chain of inner joins by equal numbers, long enough for the joins' order to matter. */
static void gen_chain(gen *g, buf *out, gen_scope *s, int depth) {
    int n = 3 + (int)pick(g, 3);
    g->one_table = false;
    for (int i = 0; i < n; i++) {
        gen_scope fresh = {.n = 0};
        buf_append_c(out, i ? " JOIN " : "");
        gen_source(g, out, &fresh, depth - 1);
        const gen_column *old = column_in(g, s, false, false),
                         *new = column_in(g, &fresh, false, false);
        if (i > 0 && old && new)
            buf_printf(out, " ON %s = %s", old->text, new->text);
        else if (i > 0)
            buf_append_c(out, " ON 1 = 0");
        for (int k = 0; k < fresh.n && s->n < MAX_COLUMNS; k++)
            s->cols[s->n++] = fresh.cols[k];
    }
}

/* The columns from `at` on are the new table's. */
static void gen_on(gen *g, buf *out, const gen_scope *s, int at) {
    gen_scope old = *s, new = {.n = s->n - at};
    old.n = at;
    memcpy(new.cols, s->cols + at, sizeof *new.cols *(size_t) new.n);
    const gen_column *a = column_in(g, &old, false, false), *b = column_in(g, &new, false, false);
    buf_append_c(out, " ON ");
    if (a && b && chance(g, 50)) {
        buf_printf(out, "%s = %s%s", a->text, b->text, chance(g, 30) ? " AND " : "");
        if (out->p[out->n - 1] == ' ')
            gen_condition(g, out, s, 1);
        return;
    }
    gen_condition(g, out, s, 1);
}

static void gen_from(gen *g, buf *out, gen_scope *s, int depth) {
    static const char *const joins[] = {" JOIN ", " LEFT JOIN ", " JOIN ", " CROSS JOIN "};
    int n = chance(g, 50) ? 1 : 2 + (int)pick(g, depth > 1 ? 2 : 1);
    bool commas = chance(g, 40);
    buf_append_c(out, " FROM ");
    if (depth > 1 && chance(g, 15)) {
        gen_chain(g, out, s, depth);
        return;
    }
    g->one_table = g->one_table && n == 1;
    for (int i = 0; i < n; i++) {
        uint32_t join = pick(g, BASE_COUNT(joins));
        if (i > 0)
            buf_append_c(out, commas ? ", " : joins[join]);
        int before = s->n;
        gen_source(g, out, s, depth);
        if (i > 0 && !commas && join != 3)
            gen_on(g, out, s, before);
    }
}

static void gen_order(gen *g, buf *out, int ntypes) {
    for (int i = 1; i <= ntypes; i++)
        buf_printf(out, "%s %d%s", i == 1 ? " ORDER BY" : ",", i,
                   chance(g, 50) ? " NULLS FIRST" : " DESC NULLS LAST");
    if (chance(g, 40))
        buf_printf(out, " LIMIT %u OFFSET %u", 1 + pick(g, 6), pick(g, 3));
}

/* After GROUP BY: the keys and some aggregates are what expressions are made of. */
static void gen_groups(gen *g, const gen_scope *s, gen_scope *groups, buf *keys) {
    static const char *const aggregates[] = {"count(%s)",
                                             "sum(%s)",
                                             "min(%s)",
                                             "max(%s)",
                                             "count(DISTINCT %s)",
                                             "sum(%s) FILTER (WHERE %s > 1)"};
    groups->outer = s->outer;
    int nkeys = (int)pick(g, 3);
    for (int i = 0; i < nkeys; i++) {
        const gen_column *c = &s->cols[pick(g, (uint32_t)s->n)];
        buf_printf(keys, "%s%s", keys->n ? ", " : " GROUP BY ", c->text);
        groups->cols[groups->n++] = *c;
    }
    for (int i = 0; i < 3; i++) {
        const gen_column *c = column_in(g, s, false, false);
        gen_column *made = &groups->cols[groups->n++];
        *made = (gen_column){.is_aggregate = true};
        snprintf(made->text, sizeof made->text, "count(*)");
        if (c) {
            char text[160];
            snprintf(text, sizeof text, aggregates[pick(g, BASE_COUNT(aggregates))], c->text,
                     c->text);
            if (strlen(text) < sizeof made->text)
                memcpy(made->text, text, strlen(text) + 1);
        }
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static void gen_key(gen *g, buf *out, const char *between, const gen_column *c) {
    buf_printf(out, "%s%s%s NULLS %s", between, c->text, chance(g, 40) ? " DESC" : "",
               chance(g, 50) ? "FIRST" : "LAST");
}

/* Keys of an order in which rows are equal only where all columns are: then it does not matter
 * which of them comes first. */
static void gen_total_order(gen *g, buf *out, const gen_scope *s) {
    if (s->n == 0)
        return;
    gen_key(g, out, " ORDER BY ", &s->cols[pick(g, (uint32_t)s->n)]);
    for (int i = 0; i < s->n; i++)
        gen_key(g, out, ", ", &s->cols[i]);
}

static void gen_bound(gen *g, buf *out, uint32_t kind) {
    static const char *const kinds[] = {"UNBOUNDED PRECEDING", "PRECEDING", "CURRENT ROW",
                                        "FOLLOWING", "UNBOUNDED FOLLOWING"};
    if (kind == 1 || kind == 3)
        buf_printf(out, "%u ", pick(g, 4));
    buf_append_c(out, kinds[kind]);
}

/* offsets: RANGE may have them. */
static void gen_frame(gen *g, buf *out, bool rows, bool offsets) {
    static const char *const excludes[] = {
        "", "", " EXCLUDE NO OTHERS", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"};
    static const uint32_t plain[] = {0, 2, 4};
    uint32_t unit = pick(g, rows ? 3 : 2), start, end;
    if (chance(g, 30))
        return;
    buf_append_c(out, unit == 0 ? " RANGE " : unit == 1 ? " GROUPS " : " ROWS ");
    bool any = unit > 0 || offsets;
    start = any ? pick(g, 4) : plain[pick(g, 2)];
    end = any ? BASE_MAX(start, 1) + pick(g, 5 - BASE_MAX(start, 1)) : plain[1 + pick(g, 2)];
    if (start < 3 && chance(g, 25)) { /* one bound: the other is the current row */
        gen_bound(g, out, start);
    } else {
        buf_append_c(out, "BETWEEN ");
        gen_bound(g, out, start);
        buf_append_c(out, " AND ");
        gen_bound(g, out, end);
    }
    buf_append_c(out, excludes[pick(g, BASE_COUNT(excludes))]);
}

/* (PARTITION BY … ORDER BY … frame); total: rows count, not only their values. */
static void gen_over(gen *g, buf *out, const gen_scope *s, bool total) {
    uint32_t partition = pick(g, 3), order = pick(g, 3);
    const gen_column *key = column_in(g, s, false, true);
    bool offsets = !total && key && chance(g, 40);
    buf_append_c(out, " OVER (");
    for (uint32_t i = 0; i < partition && s->n; i++)
        buf_printf(out, "%s%s", i ? ", " : "PARTITION BY ", s->cols[pick(g, (uint32_t)s->n)].text);
    if (total)
        gen_total_order(g, out, s);
    else if (offsets)
        gen_key(g, out, " ORDER BY ", key);
    for (uint32_t i = 0; !total && !offsets && i < order && s->n; i++)
        gen_key(g, out, i ? ", " : " ORDER BY ", &s->cols[pick(g, (uint32_t)s->n)]);
    gen_frame(g, out, total, offsets);
    buf_append_char(out, ')');
}

static void gen_argument(gen *g, buf *out, const gen_scope *s, bool is_text) {
    gen_value(g, out, s, is_text, chance(g, 15));
}

/* One function by rows in a select: which of two equal rows comes first, each may say otherwise. */
static void gen_window(gen *g, buf *out, const gen_scope *s, bool is_text, bool *by_rows) {
    static const char *const ranks[] = {"rank()", "dense_rank()",
                                        "CAST(round(percent_rank()%s * 1000) AS INTEGER)",
                                        "CAST(round(cume_dist()%s * 1000) AS INTEGER)"};
    static const char *const aggregates[] = {"min", "max", "sum", "count"};
    static const char *const shifts[] = {"lag(?)",          "lead(?)",        "lag(?, 2, ?)",
                                         "lead(?, 0, ?)",   "first_value(?)", "last_value(?)",
                                         "nth_value(?, 2)", "nth_value(?, 3)"};
    bool total = !*by_rows && chance(g, 50);
    buf over = {0};
    gen_over(g, &over, s, total);
    *by_rows = *by_rows || total;
    if (total && chance(g, 50)) {
        for (const char *at = shifts[pick(g, BASE_COUNT(shifts))]; *at; at++)
            if (*at == '?')
                gen_argument(g, out, s, is_text);
            else
                buf_append_char(out, *at);
    } else if (!is_text && chance(g, 30)) {
        uint32_t which = pick(g, BASE_COUNT(ranks));
        if (total)
            buf_printf(out, which < 2 ? "row_number()" : "ntile(%u)", which);
        else
            buf_printf(out, which < 2 ? "%s" : ranks[which], which < 2 ? ranks[which] : over.p);
        if (!total && which >= 2)
            buf_clear(&over);
    } else {
        uint32_t which = pick(g, is_text ? 2 : 4);
        buf_printf(out, "%s(", aggregates[which]);
        gen_argument(g, out, s, is_text);
        buf_append_char(out, ')');
        if (which >= 2 && chance(g, 20)) { /* of min and max sqlite3 3.40 forgets it */
            buf_append_c(out, " FILTER (WHERE ");
            gen_condition(g, out, s, 0);
            buf_append_char(out, ')');
        }
    }
    buf_append_str(out, buf_str(&over));
    buf_free(&over);
}

/* The first few of each partition, of those rows for which the model says so: by rows where these
 * have an order, or all columns make one. */
static void gen_first(gen *g, buf *out, const gen_scope *s, bool filtered) {
    bool by_rows = chance(g, 60), total = by_rows && (!g->one_table || chance(g, 30));
    buf_append_c(out, filtered ? " AND " : " WHERE ");
    gen_call(g, out, s);
    buf_printf(out, " <> 'x' QUALIFY %s()", by_rows ? "row_number" : "rank");
    gen_over(g, out, s, total);
    buf_printf(out, " <= %u", 1 + pick(g, 3));
}

static void gen_select(gen *g, buf *out, const gen_scope *outer, const bool *types, int ntypes,
                       int depth) {
    gen_scope own = {.outer = outer}, groups = {.n = 0};
    const gen_scope *s = &own;
    buf from = {0}, keys = {0};
    bool is_distinct = chance(g, 15) && !g->exists, windowed = chance(g, 20), by_rows = false;
    g->exists = false;
    gen_from(g, &from, &own, depth);
    bool grouped = chance(g, 25), filtered = chance(g, 60);
    if (grouped) {
        gen_groups(g, &own, &groups, &keys);
        s = &groups;
    }
    buf_append_c(out, is_distinct ? "SELECT DISTINCT " : "SELECT ");
    for (int i = 0; i < ntypes; i++) {
        buf_append_c(out, i ? ", " : "");
        if (windowed && chance(g, 70))
            gen_window(g, out, s, types[i], &by_rows);
        else
            gen_value(g, out, s, types[i], depth);
        buf_printf(out, " AS v%d", i + 1);
    }
    buf_append_str(out, buf_str(&from));
    if (filtered) {
        buf_append_c(out, " WHERE ");
        gen_condition(g, out, &own, depth);
    }
    if (g->llm && !grouped && !windowed && chance(g, 40))
        gen_first(g, out, &own, filtered);
    if (keys.n)
        buf_append_str(out, buf_str(&keys));
    if (grouped && (!keys.n || chance(g, 40))) {
        buf_append_c(out, " HAVING ");
        if (keys.n)
            gen_condition(g, out, s, depth - 1);
        else
            buf_append_c(out, "count(*) >= 0");
    }
    buf_free(&from);
    buf_free(&keys);
}

static void gen_query(gen *g, buf *out, const gen_scope *outer, const bool *types, int ntypes,
                      int depth) {
    static const char *const setops[] = {" UNION ALL ", " UNION ", " EXCEPT ", " INTERSECT "};
    if (depth > 1 && chance(g, 12)) {
        bool exists = g->exists;
        for (int i = 0; i < 2; i++) {
            g->exists = exists;
            buf_append_c(out, i ? setops[pick(g, BASE_COUNT(setops))] : "");
            gen_select(g, out, outer, types, ntypes, depth - 1);
        }
        g->one_table = false;
    } else {
        gen_select(g, out, outer, types, ntypes, depth);
    }
    if (chance(g, 30))
        gen_order(g, out, ntypes);
}

static void gen_numbers(gen *g, buf *out, const gen_scope *s, int n, int depth) {
    for (int i = 1; i < n; i++) {
        buf_append_c(out, ", ");
        gen_value(g, out, s, false, depth);
    }
}

/* v1 counts the rounds, so that they end; what is joined multiplies the rows, for fewer of them. */
static void gen_recursive(gen *g, buf *out, int n) {
    static const char *const joins[] = {" JOIN ", " LEFT JOIN ", ", "};
    gen_scope first = {.n = 0}, next = {.n = 0};
    buf from = {0};
    bool llm = g->llm, joined = chance(g, 60), turned = joined && chance(g, 40);
    uint32_t join = turned ? 2 : pick(g, 3);
    g->llm = false;
    buf_append_c(out, "WITH RECURSIVE w (v1");
    for (int i = 1; i < n; i++)
        buf_printf(out, ", v%d", i + 1);
    gen_source(g, &from, &first, 0);
    buf_append_c(out, ") AS (SELECT 0");
    gen_numbers(g, out, &first, n, 1);
    buf_printf(out, " FROM %s UNION %sSELECT w.v1 + 1", from.p, chance(g, 50) ? "ALL " : "");
    buf_clear(&from);
    add_outputs(&next, "w", NULL, n);
    int before = next.n;
    buf_append_c(&from, turned ? "" : "w");
    if (joined) {
        buf_append_c(&from, turned ? "" : joins[join]);
        gen_source(g, &from, &next, 0);
        buf_append_c(&from, turned ? ", w" : "");
        if (join < 2)
            gen_on(g, &from, &next, before);
    }
    gen_numbers(g, out, &next, n, 1);
    buf_printf(out, " FROM %s WHERE w.v1 < %u", from.p, joined ? 2 : 1 + pick(g, 4));
    if (chance(g, 60)) {
        buf_append_c(out, " AND ");
        gen_condition(g, out, &next, 2);
    }
    buf_append_c(out, ") ");
    buf_free(&from);
    g->llm = llm;
}

static void gen_with(gen *g, buf *out) {
    const bool numbers[MAX_OUT] = {false};
    if (!chance(g, 25))
        return;
    int n = 1 + (int)pick(g, MAX_OUT);
    if (chance(g, 40)) {
        gen_recursive(g, out, n);
        g->tables += BIG_COUNTS_AS;
        g->cte = n;
        g->cte_tables = g->tables;
        g->tables = 0;
        g->one_table = true;
        return;
    }
    buf_append_c(out, "WITH w AS (");
    gen_query(g, out, NULL, numbers, n, 2);
    buf_append_c(out, ") ");
    g->cte = n;
    g->cte_tables = g->tables;
    g->tables = 0;
    g->one_table = true;
}

/* ---- data ------------------------------------------------------------------------------------ */

static void gen_cell(gen *g, buf *out, bool is_text, bool big) {
    static const char *const texts[] = {"'x'", "'y'", "'xy'", "''", "'xx'"};
    if (chance(g, 12))
        buf_append_c(out, "NULL");
    else if (is_text)
        buf_append_c(out, texts[pick(g, BASE_COUNT(texts))]);
    else
        buf_printf(out, "%d", (int)pick(g, big ? 90 : 6) - 1);
}

/* Statements that make the tables, one a line. */
static void gen_data(gen *g, buf *out) {
    static const char *const create[] = {
        "CREATE TABLE t0 (a INTEGER PRIMARY KEY, b INTEGER, c TEXT, d INTEGER)",
        "CREATE TABLE t1 (a INTEGER, b INTEGER, c TEXT)",
        "CREATE TABLE t2 (b INTEGER, c TEXT, e INTEGER)"};
    static const char *const indexes[] = {
        "CREATE INDEX i0 ON t0 (b)", "CREATE INDEX i1 ON t1 (c, a)", "CREATE INDEX i2 ON t2 (e)"};
    for (size_t t = 0; t < BASE_COUNT(tables); t++) {
        bool big = g->big && t == 0;
        uint32_t rows = chance(g, 10) ? 0 : 2 + pick(g, g->big ? 4 : 9);
        rows += big ? BIG_ROWS : 0;
        buf_printf(out, "DROP TABLE IF EXISTS %s\n%s\n", tables[t].name, create[t]);
        if (chance(g, 50))
            buf_printf(out, "%s\n", indexes[t]);
        for (uint32_t r = 0; r < rows; r++) {
            buf_printf(out, "INSERT INTO %s VALUES (", tables[t].name);
            for (int i = 0; tables[t].columns[i]; i++) {
                buf_append_c(out, i ? ", " : "");
                if (t == 0 && i == 0)
                    buf_printf(out, "%u", r);
                else
                    gen_cell(g, out, tables[t].is_text[i], big);
            }
            buf_append_c(out, ")\n");
        }
    }
    if (chance(g, 50))
        buf_append_c(out, "ANALYZE\n");
}

/* ---- running --------------------------------------------------------------------------------- */

static void report(const char *what, int number, str data, str sql, const answer *a,
                   const answer *b) {
    printf("case %d differs: %s\n%.*s%.*s\n", number, what, (int)data.n, data.p ? data.p : "",
           (int)sql.n, sql.p);
    print_answer("all rules", a);
    print_answer(what, b);
}

/* ---- the cases ------------------------------------------------------------------------------- */

typedef struct test_case {
    int number;
    bool llm, ordered; /* ordered: its rows compare in their order */
    buf sql, data;     /* data: new tables from this case on */
    answer all;        /* with all rules on */
    answer oracle;
    bool judged; /* the oracle understood it */
} test_case;

static void make_case(uint64_t seed, int number, test_case *c) {
    gen g = {.state = hash_mix(seed, (uint64_t)number + 1), .one_table = true};
    bool types[MAX_OUT];
    int n = 1 + (int)pick(&g, MAX_OUT);
    *c = (test_case){.number = number, .llm = number % 4 == 3};
    gen d = {.state = hash_mix(seed, (uint64_t)(number - number % CASES_PER_DATA) + 1) + 77};
    g.llm = c->llm;
    g.big = d.big = chance(&d, 30);
    for (int i = 0; i < n; i++)
        types[i] = chance(&g, 35);
    gen_with(&g, &c->sql);
    gen_query(&g, &c->sql, NULL, types, n, 3);
    c->ordered = g.one_table;
    if (c->ordered && c->llm && !strstr(c->sql.p, "ORDER BY"))
        buf_printf(&c->sql, " LIMIT %u", pick(&g, 5)); /* whichever come first: answered in waves */
    if (number % CASES_PER_DATA == 0)
        gen_data(&d, &c->data);
}

static void free_case(test_case *c) {
    buf_free(&c->sql);
    buf_free(&c->data);
    answer_free(&c->all);
    answer_free(&c->oracle);
}

static void set_rules_off(db *d, const char *names) {
    char sql[512];
    snprintf(sql, sizeof sql, "SET rules_off = '%s'", names);
    run_c(d, sql);
}

/* unnest alone may not be missed: without it there is no plan for a correlated subquery. */
static bool must_work(const char *off) {
    return strstr(off, "unnest") == NULL;
}

/* ordered: the rows in their order. */
static int check_rules(db *d, test_case *c, const char *off, bool ordered, str data) {
    answer a;
    int bad = 0;
    set_rules_off(d, off);
    run(d, buf_str(&c->sql), &a);
    if (!ordered)
        answer_sort(&a);
    if (!answer_equal(&c->all, &a) && (must_work(off) || !a.failed)) {
        char what[600];
        snprintf(what, sizeof what, "without %s", off);
        report(what, c->number, data, buf_str(&c->sql), &c->all, &a);
        bad = 1;
    }
    answer_free(&a);
    return bad;
}

static int check_case(db *d, test_case *c, str data) {
    const plan_rule_info *rule;
    int bad = 0;
    buf off = {0};
    set_rules_off(d, "");
    run(d, buf_str(&c->sql), &c->all);
    if (c->all.failed &&
        strstr(c->all.e.message, "not one of the answers")) /* the statement's own fault */
        return 0;
    if (c->all.failed) {
        printf("case %d fails: %s\n%.*s%.*s\n", c->number, c->all.e.message, (int)data.n, data.p,
               (int)c->sql.n, c->sql.p);
        return 1;
    }
    for (size_t i = 0; (rule = plan_rule(i)) != NULL && !bad; i++)
        if (rule->chooses)
            bad += check_rules(d, c, rule->name, true, data);
    if (!c->ordered)
        answer_sort(&c->all);
    for (size_t i = 0; (rule = plan_rule(i)) != NULL && !bad; i++) {
        if (!rule->chooses)
            bad += check_rules(d, c, rule->name, c->ordered, data);
        if (strcmp(rule->name, "unnest") != 0)
            buf_printf(&off, "%s%s", off.n ? ", " : "", rule->name);
    }
    if (off.n && !bad)
        bad += check_rules(d, c, off.p, c->ordered, data);
    buf_free(&off);
    return bad;
}

/* ---- sqlite3 --------------------------------------------------------------------------------- */

/* The tables alone: with indexes and statistics sqlite3 3.40
 * has been seen to lose rows of IN under ORDER BY … LIMIT. */
static void append_tables(FILE *f, str text) {
    while (text.n) {
        size_t n = (size_t)((const char *)memchr(text.p, '\n', text.n) - text.p);
        if (strncmp(text.p, "CREATE INDEX", 12) != 0 && strncmp(text.p, "ANALYZE", 7) != 0)
            fprintf(f, "%.*s;\n", (int)n, text.p);
        text = (str){text.p + n + 1, text.n - n - 1};
    }
}

static void write_script(FILE *f, const test_case *cases, int n) {
    fputs(".mode list\n.nullvalue NULL\n.bail off\nPRAGMA case_sensitive_like = on;\n", f);
    for (int i = 0; i < n; i++) {
        append_tables(f, buf_str(&cases[i].data));
        if (!cases[i].llm)
            fprintf(f, "SELECT '#%d';\n%s;\n", i, cases[i].sql.p);
    }
}

static void read_answers(FILE *f, test_case *cases) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    test_case *at = NULL;
    while ((n = getline(&line, &room, f)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = 0;
        if (line[0] == '#') {
            at = &cases[atoi(line + 1)];
            at->judged = true;
        } else if (at && strstr(line, " error near line ")) {
            at->judged = false;
        } else if (at && at->judged) {
            answer_add(&at->oracle, (str){line, (size_t)n});
        }
    }
    free(line);
}

/* false: there is no sqlite3 here. */
static bool ask_sqlite(test_case *cases, int n) {
    char path[] = "/tmp/kvasir-rules-XXXXXX", command[128];
    if (system("command -v sqlite3 >/dev/null 2>&1") != 0)
        return false;
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert_non_null(f);
    write_script(f, cases, n);
    fclose(f);
    snprintf(command, sizeof command, "sqlite3 -batch :memory: <%s 2>&1", path);
    f = popen(command, "r");
    assert_non_null(f);
    read_answers(f, cases);
    pclose(f);
    unlink(path);
    return true;
}

static int check_sqlite(test_case *cases, int n, int *judged) {
    int bad = 0;
    for (int i = 0; i < n; i++) {
        test_case *c = &cases[i];
        if (!c->judged || c->llm || c->all.failed)
            continue;
        ++*judged;
        answer_sort(&c->all);
        answer_sort(&c->oracle);
        if (!answer_equal(&c->all, &c->oracle)) {
            str data = {NULL, 0};
            for (int k = i; k >= 0 && !data.n; k--)
                data = buf_str(&cases[k].data);
            report("sqlite3", c->number, data, buf_str(&c->sql), &c->all, &c->oracle);
            bad++;
        }
    }
    return bad;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static db *open_db(void) {
    db_options options = {.path = NULL};
    db *d;
    err e;
    if (db_open(&options, &d, &e))
        fail_msg("%s", e.message);
    run_c(d, "CREATE MODEL hashing FROM 'test:hash'");
    run_c(d, "SET model = 'hashing'");
    run_c(d, "SET cost_rates = 'nominal'");
    run_c(d,
          /* auto follows the rows that reach a call, and rules change which do */
          "SET llm_layout = 'instruction'");
    return d;
}

/* Cases first … first + n - 1, then sqlite3's judgement of them; returns how many are wrong. A
 * multiple of CASES_PER_DATA comes first, so that a batch has its own tables; answers are kept for
 * one batch at a time. */
static int run_batch(db *d, uint64_t seed, int first, int n, int only, int *judged) {
    test_case *cases = mem_zalloc(sizeof *cases * (size_t)n);
    str data = {NULL, 0};
    int bad = 0;
    for (int i = 0; i < n && bad < 10; i++) {
        test_case *c = &cases[i];
        make_case(seed, first + i, c);
        if (c->data.n) {
            data = buf_str(&c->data);
            set_rules_off(d, "");
            run_lines(d, data);
        }
        if (only < 0 || only == c->number)
            bad += check_case(d, c, data);
        if (only == c->number)
            printf("%s\n", c->sql.p);
        if (only >= 0 && only != c->number)
            c->all.failed = true; /* not run: not compared */
    }
    if (bad == 0 && ask_sqlite(cases, n))
        bad += check_sqlite(cases, n, judged);
    for (int i = 0; i < n; i++)
        free_case(&cases[i]);
    free(cases);
    return bad;
}

static void test_rules_change_no_answer(void **state) {
    (void)state;
    uint64_t seed = (uint64_t)number_from("KVASIR_SEED", 1);
    int n = (int)number_from("KVASIR_CASES", getenv("KVASIR_LONG") ? 10 * CASES : CASES);
    int only = (int)number_from("KVASIR_CASE", -1), bad = 0, judged = 0;
    db *d = open_db();
    for (int first = 0; first < n && bad < 10; first += BATCH)
        bad += run_batch(d, seed, first, BASE_MIN(BATCH, n - first), only, &judged);
    db_close(d);
    printf("seed %llu: %d statements, %d of them compared with sqlite3\n", (unsigned long long)seed,
           n, judged);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules_change_no_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
