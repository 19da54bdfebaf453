/*
 * complete.c - chooses the words that completion offers at the cursor, best first.
 *
 * Names of keywords, settings, functions and commands come from the tables that parse them, so
 * every word offered exists. The result depends on the text, the cursor, the database's objects
 * and, for file names, the file system.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands_int.h"
#include "complete_int.h"
#include "storage/containers.h"

enum { MOST_CANDIDATES = 2000 };

/* Candidates with a higher score are listed first. */
enum {
    SCORE_RARE = 10,
    SCORE_KEYWORD = 40,
    SCORE_FUNCTION = 50,
    SCORE_TABLE = 60,
    SCORE_NEXT = 90,
    SCORE_COLUMN = 100
};

typedef struct finder {
    scope s;
    str prefix; /* the part of the word before the cursor */
    const db_object *objects;
    int nobjects;
    arena *a;
    completion *out;
    int cap;
} finder;

/* ---- collecting ------------------------------------------------------------------------------ */

static bool begins_with(const char *text, str prefix) {
    size_t n = strlen(text);
    return n >= prefix.n && str_equal_nocase((str){text, prefix.n}, prefix);
}

static void add(finder *f, const char *text, const char *note, candidate_kind kind, int score) {
    const char *bare = *text == '"' && (f->prefix.n == 0 || *f->prefix.p != '"') ? text + 1 : text;
    if (!begins_with(bare, f->prefix) || f->out->count == MOST_CANDIDATES)
        return;
    for (int i = 0; i < f->out->count; i++) {
        if (strcmp(f->out->items[i].text, text) == 0) {
            f->out->items[i].score = BASE_MAX(f->out->items[i].score, score);
            return;
        }
    }
    ARENA_PUSH(f->a, f->out->items, f->out->count, f->cap, ((candidate){text, note, kind, score}));
}

static const char *quoted(finder *f, const char *name) {
    buf text = {0};
    sql_print_name(&text, str_from(name));
    const char *copy = arena_strndup(f->a, text.p, text.n);
    buf_free(&text);
    return copy;
}

/* Adds a keyword, in lower case if the typed prefix has lower-case letters. */
static void add_keyword(finder *f, const char *word, int score) {
    if (!begins_with(word, f->prefix))
        return;
    bool lower = false;
    for (size_t i = 0; i < f->prefix.n; i++)
        lower = lower || islower((unsigned char)f->prefix.p[i]);
    char *copy = arena_strndup(f->a, word, strlen(word));
    for (char *p = copy; *p && lower; p++)
        *p = (char)tolower((unsigned char)*p);
    add(f, copy, "", CANDIDATE_KEYWORD, score);
}

/* Adds words separated by blanks; each word scores less than the word before it. */
static void add_words(finder *f, const char *words, int score) {
    for (str rest = str_from(words); rest.n;) {
        str word = str_split_next(&rest, ' ');
        add_keyword(f, arena_strndup(f->a, word.p, word.n), score--);
    }
}

/* Adds all keywords with the prefix if nothing else was found. */
static void add_all_keywords(finder *f, int score) {
    size_t n;
    const char *const *words = sql_keywords(&n);
    bool needed = f->prefix.n > 0 && f->out->count == 0;
    for (size_t i = 0; i < n && needed; i++)
        add_keyword(f, words[i], score);
}

/* Adds table functions if `from`, else all other functions. */
static void add_functions(finder *f, bool from) {
    size_t n;
    const function_info *table = sql_functions(&n);
    for (size_t i = 0; i < n && f->prefix.n; i++) {
        if ((table[i].class == FUNCTION_TABLE) == from && begins_with(table[i].name, f->prefix))
            add(f, arena_printf(f->a, "%s(", table[i].name), table[i].signature, CANDIDATE_FUNCTION,
                SCORE_FUNCTION);
    }
}

static void add_tables(finder *f, int score) {
    for (int i = 0; i < f->nobjects; i++) {
        const db_object *o = &f->objects[i];
        bool system = strcmp(o->kind, "system") == 0;
        if (system ? f->prefix.n > 0
                   : strcmp(o->kind, "table") == 0 || strcmp(o->kind, "view") == 0)
            add(f, quoted(f, o->name), o->kind, CANDIDATE_TABLE, system ? SCORE_RARE : score);
    }
    for (int i = 0; i < f->s.ntables; i++) {
        const scope_table *t = &f->s.tables[i];
        if (t->group == GROUP_WITH)
            add(f, arena_strndup(f->a, t->name.p, t->name.n), "with", CANDIDATE_TABLE, score + 1);
    }
}

static void add_objects(finder *f, const char *kind, candidate_kind what) {
    for (int i = 0; i < f->nobjects; i++)
        if (strcmp(f->objects[i].kind, kind) == 0)
            add(f, quoted(f, f->objects[i].name), kind, what, SCORE_TABLE);
}

static void add_columns_of(finder *f, const db_object *o, int score, bool name_table) {
    for (int k = 0; k < o->ncolumns; k++) {
        if (!begins_with(o->columns[k], f->prefix) && !(f->prefix.n && *f->prefix.p == '"'))
            continue;
        const char *type = type_name(o->types[k]);
        const char *note = name_table ? arena_printf(f->a, "%s, %s", type, o->name) : type;
        add(f, quoted(f, o->columns[k]), note, CANDIDATE_COLUMN, score);
    }
}

static const db_object *find_object(const finder *f, str name) {
    for (int i = 0; i < f->nobjects; i++) {
        const db_object *o = &f->objects[i];
        bool readable = strcmp(o->kind, "index") != 0 && strcmp(o->kind, "model") != 0;
        if (readable && str_equal_nocase(str_from(o->name), name))
            return o;
    }
    return NULL;
}

static void visit_subquery_column(void *ctx, str name) {
    finder *f = ctx;
    add(f, quoted(f, arena_strndup(f->a, name.p, name.n)), "", CANDIDATE_COLUMN, SCORE_COLUMN);
}

static void add_columns_of_table(finder *f, const scope_table *t, bool name_table) {
    if (t->subquery >= 0) {
        scope_subquery_columns(&f->s, t->subquery, visit_subquery_column, f);
        return;
    }
    for (int i = 0; i < f->s.ntables; i++) {
        const scope_table *with = &f->s.tables[i];
        if (with->group == GROUP_WITH && str_equal_nocase(with->name, t->name)) {
            scope_subquery_columns(&f->s, with->subquery, visit_subquery_column, f);
            return;
        }
    }
    const db_object *o = find_object(f, t->name);
    if (o != NULL)
        add_columns_of(f, o, SCORE_COLUMN, name_table);
}

/* Adds the columns of the tables visible at the cursor, or of all tables if none is visible. */
static void add_scope_columns(finder *f) {
    int seen = 0;
    for (int i = 0; i < f->s.ntables; i++)
        seen += scope_sees(&f->s, f->s.group, f->s.tables[i].group);
    for (int i = 0; i < f->s.ntables; i++) {
        const scope_table *t = &f->s.tables[i];
        if (!scope_sees(&f->s, f->s.group, t->group))
            continue;
        add_columns_of_table(f, t, seen > 1);
        if (t->alias.n && f->prefix.n)
            add(f, arena_printf(f->a, "%.*s.", (int)t->alias.n, t->alias.p), "", CANDIDATE_TABLE,
                SCORE_TABLE);
    }
    for (int i = 0; i < f->nobjects && seen == 0; i++)
        if (strcmp(f->objects[i].kind, "table") == 0 || strcmp(f->objects[i].kind, "view") == 0)
            add_columns_of(f, &f->objects[i], SCORE_COLUMN - 20, true);
}

/* ---- context before the cursor ----------------------------------------------------------- */

/* After any of the words `after`, the words `next` are offered. */
typedef struct continuation {
    const char *after, *next;
} continuation;

/* Keywords after which only their `next` words are offered. */
static const continuation pairs[] = {
    {"GROUP ORDER PARTITION", "BY"},
    {"WITH", "RECURSIVE"},
    {"INSERT", "INTO"},
    {"DELETE", "FROM"},
    {"CREATE", "TABLE VIEW INDEX MODEL UNIQUE OR"},
    {"DROP", "TABLE VIEW INDEX MODEL"},
    {"ALTER", "TABLE"},
    {"LEFT", "JOIN OUTER"},
    {"INNER CROSS OUTER", "JOIN"},
    {"NATURAL", "JOIN INNER LEFT"},
    {"IS", "NULL NOT DISTINCT TRUE FALSE"},
    {"NULLS", "FIRST LAST"},
    {"UNION", "ALL SELECT"},
    {"UNIQUE", "INDEX"},
    {"EXPLAIN", "SELECT ANALYZE UPDATE DELETE INSERT WITH"},
    {"CLEAR", "CACHE"},
    {"CACHE", "KV ANSWERS FOR"},
    {"KV ANSWERS", "FOR"},
    {"FOR", "MODEL"},
    {"RETURNS", "TEXT ENUM BOOLEAN INTEGER REAL STRUCT"},
    {"CONFLICT", "DO"},
    {"DO", "NOTHING UPDATE"},
    {"PRIMARY", "KEY"},
    {"IF", "EXISTS NOT"},
    {"ADD", "COLUMN"},
    {"RENAME", "TO COLUMN"},
    {"ROWS RANGE GROUPS", "BETWEEN UNBOUNDED CURRENT"},
    {"UNBOUNDED", "PRECEDING FOLLOWING"},
    {"CURRENT", "ROW"},
    {"EXCLUDE", "CURRENT GROUP TIES NO"},
};

/* Words that may follow a complete operand, by clause, likeliest first. */
static const continuation followers[] = {
    {"SELECT", "FROM AS RETURNS OVER FILTER IS IN LIKE AND OR ORDER"},
    {"FROM",
     "WHERE JOIN LEFT GROUP ORDER LIMIT ON AS USING INNER CROSS NATURAL UNION HAVING EXCEPT "
     "INTERSECT RETURNING QUALIFY WINDOW"},
    {"JOIN", "ON USING AS WHERE JOIN LEFT GROUP ORDER LIMIT"},
    {"ON", "AND OR WHERE JOIN LEFT GROUP ORDER LIMIT IS IN LIKE BETWEEN NOT RETURNS CONFLICT"},
    {"WHERE", "AND OR GROUP ORDER LIMIT IS IN LIKE BETWEEN NOT RETURNS UNION RETURNING QUALIFY "
              "WINDOW"},
    {"GROUP", "HAVING ORDER LIMIT QUALIFY WINDOW"},
    {"HAVING", "AND OR ORDER LIMIT IS IN BETWEEN QUALIFY WINDOW"},
    {"PARTITION", "ORDER ROWS RANGE GROUPS"},
    {"ORDER", "ASC DESC NULLS LIMIT OFFSET ROWS RANGE GROUPS"},
    {"ROWS RANGE GROUPS", "PRECEDING FOLLOWING AND EXCLUDE"},
    {"QUALIFY", "AND OR ORDER LIMIT IS IN BETWEEN OVER"},
    {"LIMIT", "OFFSET"},
    {"SET", "WHERE FROM RETURNING"},
    {"INTO", "VALUES SELECT"},
    {"UPDATE", "SET"},
    {"VALUES", "ON RETURNING"},
    {"RETURNING", "AS RETURNS IS IN LIKE AND OR"},
};

static const char statement_words[] =
    "SELECT WITH INSERT UPDATE DELETE CREATE EXPLAIN SET SHOW BEGIN COMMIT ROLLBACK "
    "COPY DROP ALTER ANALYZE VALUES RESET CLEAR WARM PIN UNPIN";

static const scope_token *before(const finder *f, int back) {
    return scope_token_at(&f->s, f->s.before - back);
}

static bool first_is(const finder *f, const char *word) {
    return f->s.before > 0 && token_is(&f->s.tokens[0], word);
}

static void add_setting_values(finder *f, str name) {
    size_t n;
    const setting_info *table = settings_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (!str_equal_nocase(str_from(table[i].name), name))
            continue;
        if (table[i].type == SETTING_BOOLEAN)
            add_words(f, "on off", SCORE_NEXT);
        for (str rest = str_from(table[i].words); strchr(table[i].words, '|') && rest.n;) {
            str word = str_split_next(&rest, '|');
            add(f, arena_printf(f->a, "'%.*s'", (int)word.n, word.p), "", CANDIDATE_VALUE,
                SCORE_NEXT);
        }
    }
}

static void add_settings(finder *f) {
    size_t n;
    const setting_info *table = settings_table(&n);
    for (size_t i = 0; i < n; i++)
        add(f, table[i].name, table[i].help, CANDIDATE_SETTING, SCORE_COLUMN);
}

/* Adds the columns of a table after `alias.`; the FROM that defines the alias may be right of the
 * cursor. */
static void find_qualified(finder *f) {
    str alias = scope_unquote(before(f, 2)->text);
    for (int i = 0; i < f->s.ntables; i++) {
        const scope_table *t = &f->s.tables[i];
        if (t->group != GROUP_WITH &&
            (str_equal_nocase(t->alias, alias) || str_equal_nocase(t->name, alias))) {
            add_columns_of_table(f, t, false);
            return;
        }
    }
    const db_object *o = find_object(f, alias);
    if (o != NULL)
        add_columns_of(f, o, SCORE_COLUMN, false);
}

/* Returns the table t if the cursor is in INSERT INTO t (…; else NULL. */
static const db_object *insert_target(const finder *f) {
    for (int i = f->s.before - 1; i >= 2; i--) {
        if (token_is(&f->s.tokens[i], "(") && f->s.tokens[i].group == f->s.parents[f->s.group])
            return token_is(&f->s.tokens[i - 2], "INTO")
                       ? find_object(f, scope_unquote(f->s.tokens[i - 1].text))
                       : NULL;
    }
    return NULL;
}

static bool ends_operand(const scope_token *t) {
    return t->class == TOKEN_NAME || t->class == TOKEN_NUMBER || t->class == TOKEN_STRING ||
           token_in(t, ") * END NULL TRUE FALSE");
}

/* Adds the words of the first entry for `word`. False: there is no entry. */
static bool add_continuation(finder *f, const continuation *table, size_t n, str word) {
    for (size_t i = 0; i < n; i++) {
        for (str rest = str_from(table[i].after); rest.n;) {
            if (str_equal_nocase(word, str_split_next(&rest, ' '))) {
                add_words(f, table[i].next, SCORE_NEXT);
                return true;
            }
        }
    }
    return false;
}

static bool find_after_keyword(finder *f) {
    const scope_token *last = before(f, 1);
    if (first_is(f, "ALTER") && token_is(last, "DROP")) {
        add_words(f, "COLUMN", SCORE_NEXT);
        return true;
    }
    return last->class == TOKEN_KEYWORD &&
           add_continuation(f, pairs, BASE_COUNT(pairs), last->text);
}

/* True if the cursor is at a table that is read, so that a table function may be there. */
static bool reads_table(const finder *f) {
    const scope_token *last = before(f, 1);
    return !first_is(f, "DELETE") && token_in(last, "FROM JOIN ,");
}

/* Whether the statement is CREATE [OR REPLACE] MODEL. */
static bool makes_model(finder *f) {
    bool found = false;
    for (int i = 1; i < f->s.before && i < 4; i++)
        found = found || token_is(&f->s.tokens[i], "MODEL");
    return found && first_is(f, "CREATE");
}

static void add_server_options(finder *f) {
    size_t n;
    const llm_remote_option *options = llm_remote_options(&n);
    for (size_t i = 0; i < n; i++)
        add(f, options[i].name, options[i].help, CANDIDATE_KEYWORD, SCORE_NEXT);
}

static bool wants_table(const finder *f) {
    const scope_token *last = before(f, 1);
    if (f->s.expects_table)
        return true;
    if (token_is(last, "=>"))
        return token_is(before(f, 2), "examples");
    if (first_is(f, "CREATE"))
        return token_is(last, "ON"); /* CREATE INDEX i ON */
    return last->class == TOKEN_KEYWORD && token_in(last, "TABLE VIEW ANALYZE COPY");
}

static void find_operand(finder *f) {
    add_scope_columns(f);
    add_functions(f, false);
    if (f->prefix.n == 0)
        return;
    add_words(f, "CASE NOT NULL TRUE FALSE EXISTS CAST DISTINCT SELECT", SCORE_KEYWORD);
    size_t n;
    const llm_option_info *options = sql_llm_options(&n);
    for (size_t i = 0; i < n; i++)
        add_words(f, options[i].name, SCORE_RARE);
    add_all_keywords(f, SCORE_RARE);
}

static void find_sql(finder *f) {
    const scope_token *last = before(f, 1);
    const db_object *target;
    bool setting = f->s.before > 0 && token_in(&f->s.tokens[0], "SET SHOW RESET");
    if (token_is(last, ".")) {
        find_qualified(f);
    } else if (f->s.before == 0) {
        add_words(f, statement_words, SCORE_NEXT);
        add_all_keywords(f, SCORE_RARE);
    } else if (setting && f->s.before == 1) {
        add_settings(f);
        if (first_is(f, "SHOW"))
            add_words(f, "CACHE TABLES INDEXES MODELS STATEMENTS PREFIXES RULES", SCORE_KEYWORD);
    } else if (setting && f->s.before == 2) {
        if (first_is(f, "SET"))
            add_words(f, "=", SCORE_NEXT);
    } else if (setting && f->s.before >= 3) {
        add_setting_values(f, f->s.tokens[1].text);
    } else if (token_is(last, "(") && token_is(before(f, 2), "OVER")) {
        add_words(f, "PARTITION ORDER ROWS RANGE GROUPS", SCORE_NEXT);
    } else if (token_is(last, "(") && token_is(before(f, 2), "EXPLAIN")) {
        add_words(f, "TOKENS PROMPT TREE ANALYZE RULES FORMAT", SCORE_NEXT);
    } else if (f->s.group && makes_model(f)) {
        add_server_options(f);
    } else if (token_is(last, "=>") && token_is(before(f, 2), "model")) {
        add_objects(f, "model", CANDIDATE_MODEL);
    } else if (last->class == TOKEN_KEYWORD && token_in(last, "MODEL INDEX") &&
               token_in(&f->s.tokens[0], "DROP CLEAR")) {
        add_objects(f, token_is(last, "MODEL") ? "model" : "index", CANDIDATE_MODEL);
    } else if (wants_table(f)) {
        add_tables(f, SCORE_COLUMN);
        if (reads_table(f))
            add_functions(f, true);
        if (f->prefix.n)
            add_words(f, "SELECT IF", SCORE_RARE);
    } else if (find_after_keyword(f)) {
        return;
    } else if ((target = f->s.group ? insert_target(f) : NULL) != NULL) {
        add_columns_of(f, target, SCORE_COLUMN, false);
    } else if (ends_operand(last)) {
        add_continuation(f, followers, BASE_COUNT(followers), str_from(f->s.clause));
        add_all_keywords(f, SCORE_RARE);
    } else {
        find_operand(f);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Adds the files that complete `path`. In a command, ~ is the home directory and a name with blanks
 * is quoted. In an SQL literal (in_sql), ~ is an ordinary character and nothing is quoted. */
static void find_files(finder *f, str path, bool in_sql) {
    bool quoted = !in_sql && path.n && *path.p == '"';
    if (quoted)
        path = (str){path.p + 1, path.n - 1};
    size_t slash = path.n;
    while (slash && path.p[slash - 1] != '/')
        slash--;
    char *dir = slash ? arena_strndup(f->a, path.p, slash) : arena_strndup(f->a, ".", 1);
    if (!in_sql && dir[0] == '~' && dir[1] == '/' && getenv("HOME"))
        dir = arena_printf(f->a, "%s%s", getenv("HOME"), dir + 1);
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        bool hidden = e->d_name[0] == '.';
        if (hidden && (path.n == slash || path.p[slash] != '.' || !strcmp(e->d_name, ".") ||
                       !strcmp(e->d_name, "..")))
            continue;
        struct stat facts;
        const char *full = arena_printf(f->a, "%s/%s", dir, e->d_name);
        bool is_dir = stat(full, &facts) == 0 && S_ISDIR(facts.st_mode);
        const char *text = arena_printf(f->a, "%.*s%s%s", (int)slash, path.p, e->d_name,
                                        is_dir   ? "/"
                                        : in_sql ? "'"
                                                 : "");
        if (!in_sql && (quoted || strpbrk(text, " \t'") != NULL))
            text = arena_printf(f->a, "\"%s%s", text, is_dir ? "" : "\"");
        bool data = strstr(e->d_name, ".csv") || strstr(e->d_name, ".tsv") ||
                    strstr(e->d_name, ".json") || strstr(e->d_name, ".ndjson");
        add(f, text, "", CANDIDATE_FILE,
            is_dir ? SCORE_KEYWORD
            : data ? SCORE_COLUMN
                   : SCORE_TABLE);
    }
    closedir(d);
}

/* Adds words inside a literal: a field after `{`, a SET value, or a file after FROM, JOIN, TO. */
static void find_in_string(finder *f) {
    str inside = {f->s.text.p + f->s.string_start, f->s.cursor - f->s.string_start};
    size_t brace = inside.n;
    while (brace && inside.p[brace - 1] != '{' && inside.p[brace - 1] != '}')
        brace--;
    if (brace && inside.p[brace - 1] == '{') {
        f->out->start = f->s.string_start + brace;
        f->prefix = (str){inside.p + brace, inside.n - brace};
        add_scope_columns(f);
        for (int i = 0; i < f->out->count; i++)
            f->out->items[i].text = arena_printf(f->a, "%s}", f->out->items[i].text);
        return;
    }
    int back = 1;
    const scope_token *last = before(f, 1);
    if (last->text.p && last->text.p == f->s.text.p + f->s.string_start - 1)
        last = before(f, back = 2);
    if (first_is(f, "SET") && f->s.before - back == 2) { /* SET name = '… */
        f->out->start = f->s.string_start - 1;
        f->prefix = (str){f->s.text.p + f->out->start, f->s.cursor - f->out->start};
        add_setting_values(f, f->s.tokens[1].text);
        return;
    }
    if (token_in(last, "FROM JOIN TO ,")) {
        f->out->start = f->s.string_start;
        f->prefix = inside;
        find_files(f, inside, true);
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Adds command names. Aliases are added only after a backslash, or if no command's own name has the
 * prefix. */
static void find_command_names(finder *f, char sign) {
    size_t n;
    const command *table = commands_table(&n);
    for (size_t i = 0; i < n && sign == '.'; i++)
        add(f, arena_printf(f->a, ".%s", table[i].name), table[i].help, CANDIDATE_COMMAND,
            SCORE_TABLE);
    for (size_t i = 0; i < n && (sign == '\\' || f->out->count == 0); i++) {
        for (str rest = str_from(table[i].aliases); rest.n;) {
            str alias = str_split_next(&rest, ' ');
            if (alias.p[0] == sign)
                add(f, arena_strndup(f->a, alias.p, alias.n), table[i].help, CANDIDATE_COMMAND,
                    SCORE_RARE);
        }
    }
}

static void find_command_argument(finder *f, const command *c) {
    size_t n;
    switch (c->arg) {
    case ARG_TABLE:
        add_tables(f, SCORE_TABLE);
        break;
    case ARG_FILE:
        find_files(f, f->prefix, false);
        break;
    case ARG_ONOFF:
        add_words(f, "on off", SCORE_TABLE);
        break;
    case ARG_COMMAND: {
        const command *table = commands_table(&n);
        find_command_names(f, '.');
        for (size_t i = 0; i < n && f->prefix.n; i++)
            add(f, table[i].name, table[i].help, CANDIDATE_COMMAND, SCORE_TABLE);
        const help_page *pages = help_pages(&n);
        for (size_t i = 0; i < n; i++)
            add(f, pages[i].name, pages[i].title, CANDIDATE_COMMAND, SCORE_COLUMN);
        if (f->prefix.n)
            add_settings(f);
        break;
    }
    case ARG_SETTING:
        add_settings(f);
        break;
    case ARG_MODE: {
        const format_mode *modes = format_modes(&n);
        for (size_t i = 0; i < n; i++)
            add(f, modes[i].name, modes[i].help, CANDIDATE_VALUE, SCORE_TABLE);
        add(f, "--wrap", "long texts over several lines", CANDIDATE_VALUE, SCORE_TABLE);
        add(f, "--no-wrap", "long texts in one line", CANDIDATE_VALUE, SCORE_TABLE);
        break;
    }
    case ARG_SQL:
    case ARG_SELECT:
    case ARG_NONE:
    case ARG_TEXT:
    case ARG_ANY:
        break;
    }
}

static void find_in_command(finder *f, str text, size_t cursor) {
    size_t name = 0, start = 0;
    bool quoted = false;
    while (name < text.n && !isspace((unsigned char)text.p[name]))
        name++;
    for (size_t i = 0; i < cursor; i++) {
        quoted = quoted != (text.p[i] == '"');
        if (!quoted && isspace((unsigned char)text.p[i]))
            start = i + 1;
    }
    f->out->start = start;
    f->prefix = (str){text.p + start, cursor - start};
    if (start == 0) {
        find_command_names(f, text.p[0]);
        return;
    }
    const command *c = command_find((str){text.p, name});
    if (c == NULL)
        return;
    bool options = c->arg == ARG_SELECT ||
                   (name + 3 <= text.n && memcmp(text.p + name, " --", strlen(" --")) == 0);
    if (options) { /* to the lexer, options such as --rows 50 begin a comment */
        str select = command_select((str){text.p + name, text.n - name});
        if (select.n == 0 || cursor < (size_t)(select.p - text.p))
            return;
        name = (size_t)(select.p - text.p);
    }
    if (c->arg == ARG_SQL || c->arg == ARG_SELECT) {
        scope_read((str){text.p + name, text.n - name}, cursor - name, f->a, &f->s);
        f->out->start = name + f->s.start;
        f->prefix = (str){text.p + f->out->start, cursor - f->out->start};
        find_sql(f);
        return;
    }
    str words_before = str_trim((str){text.p + name, start - name}, STR_SPACES);
    if (strcmp(c->name, "import") == 0 && words_before.n > 0)
        add_tables(f, SCORE_TABLE);
    else
        find_command_argument(f, c);
}

/* ---- entry point ----------------------------------------------------------------------------- */

static int by_score(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->score != y->score ? y->score - x->score : strcmp(x->text, y->text);
}

void complete_find(str text, size_t cursor, const db_object *objects, int nobjects, arena *a,
                   completion *out) {
    *out = (completion){.start = cursor};
    finder f = {.objects = objects, .nobjects = nobjects, .a = a, .out = out};
    if (text.n && (text.p[0] == '.' || text.p[0] == '\\')) {
        find_in_command(&f, text, cursor);
    } else {
        scope_read(text, cursor, a, &f.s);
        if (f.s.in_comment)
            return;
        out->start = f.s.start;
        f.prefix = (str){text.p + f.s.start, cursor - f.s.start};
        if (f.s.in_string)
            find_in_string(&f);
        else
            find_sql(&f);
    }
    if (out->count == 0)
        return;
    qsort(out->items, (size_t)out->count, sizeof(candidate), by_score);
    out->common = strlen(out->items[0].text);
    for (int i = 1; i < out->count; i++) {
        size_t k = 0;
        while (k < out->common && tolower((unsigned char)out->items[i].text[k]) ==
                                      tolower((unsigned char)out->items[0].text[k]))
            k++;
        out->common = k;
    }
    while (out->common &&
           (out->items[0].text[out->common] & 0xc0) == 0x80) /* do not split a character */
        out->common--;
}
