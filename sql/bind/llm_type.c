/*
 * llm_type.c - the type of an LLM call's answer: declared by RETURNS, or inferred from its uses.
 *
 * The texts that a call without RETURNS is compared with, anywhere in the statement, are its
 * answers (ENUM). A call compared with numbers is REAL, a call used as a condition is BOOLEAN.
 * Until its uses are known the call is bound as TEXT, which is also the result type of an ENUM; the
 * answers of an ENUM are filled in after binding. If a REAL or BOOLEAN call was bound as TEXT, the
 * statement is bound again.
 */
#include <string.h>

#include "bind_int.h"
#include "storage/containers.h"

enum { MAX_LITERALS = 1000 };

/* ---- complements ----------------------------------------------------------------------------- */

/* Pairs of opposite answers, the affirmative first. If the only text that a call is compared with
 * is in a pair, the other text of the pair is added to the answers. */
static const char *const pairs[][2] = {
    {"yes", "no"},
    {"true", "false"},
    {"positive", "negative"},
    {"good", "bad"},
    {"relevant", "irrelevant"},
    {"spam", "ham"},
    {"correct", "incorrect"},
    {"right", "wrong"},
    {"valid", "invalid"},
    {"happy", "sad"},
    {"like", "dislike"},
    {"agree", "disagree"},
    {"pass", "fail"},
    {"accept", "reject"},
    {"approved", "rejected"},
    {"safe", "unsafe"},
    {"toxic", "non-toxic"},
    {"subjective", "objective"},
    {"formal", "informal"},
    {"fresh", "rotten"},
    {"satisfied", "dissatisfied"},
    {"recommended", "not recommended"},
    {"urgent", "not urgent"},
    {"y", "n"},
    {"fact", "opinion"},
    {"real", "fake"},
    {"supported", "refuted"},
    {"match", "no match"},
};

static char upper(char c) {
    return (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
}

/* Returns `word` in the case of `like`: YES, Yes or yes. */
static str in_case_of(arena *a, const char *word, str like) {
    bool all = like.n > 1 || (like.n == 1 && upper(like.p[0]) == like.p[0]),
         first = like.p[0] >= 'A' && like.p[0] <= 'Z';
    for (size_t i = 0; i < like.n; i++)
        all = all && upper(like.p[i]) == like.p[i];
    char *out = arena_strndup(a, word, strlen(word));
    for (size_t i = 0; out[i]; i++)
        if (all || (first && i == 0))
            out[i] = upper(out[i]);
    return str_from(out);
}

static bool complete_pair(arena *a, str one, str out[2]) {
    for (size_t i = 0; i < BASE_COUNT(pairs); i++)
        for (int side = 0; side < 2; side++)
            if (str_equal_nocase(one, str_from(pairs[i][side]))) {
                out[side] = one;
                out[1 - side] = in_case_of(a, pairs[i][1 - side], one);
                return true;
            }
    return false;
}

/* ---- RETURNS --------------------------------------------------------------------------------- */

static int fail_type(binder *b, const llm_type *t, const char *message, const char *hint) {
    fail(b, ERR_BIND, t->pos, t->len, "%s", message);
    if (hint)
        err_hint(b->e, "%s", hint);
    return ERR_BIND;
}

bool llm_is_one_line(str answer) {
    return answer.n > 0 && utf8_valid(answer) && !memchr(answer.p, '\n', answer.n);
}

int first_repeated(const str *texts, int n, int *first) {
    hash_index seen = {0};
    int at = -1;
    for (int i = 0; i < n && at < 0; i++) {
        uint64_t hash = hash64(texts[i].p, texts[i].n, 0);
        for (hash_slot *s = hash_index_first(&seen, hash); s && at < 0;
             s = hash_index_next(&seen, s)) {
            if (str_equal(texts[s->item], texts[i])) {
                *first = (int)s->item;
                at = i;
            }
        }
        hash_index_add(&seen, hash, (uint32_t)i);
    }
    hash_index_free(&seen);
    return at;
}

static int returns_enum(binder *b, const llm_type *t, llm_call *call) {
    int n = t->literals.n, first;
    if (n < 2)
        return fail_type(b, t, "an ENUM needs at least two answers",
                         "list all answers: RETURNS ENUM('yes', 'no'), or take them from a table "
                         "with a column label: LLM('…', x, labels => t) RETURNS ENUM");
    if (n > MAX_LITERALS)
        return fail(b, ERR_LIMIT, t->pos, t->len, "an ENUM has at most %d answers", MAX_LITERALS);
    call->returns = RETURNS_ENUM;
    call->literals = ARENA_ARRAY(b->mem, str, n);
    for (int i = 0; i < n; i++) {
        str s = *(str *)t->literals.items[i];
        if (!llm_is_one_line(s))
            return fail_type(
                b, t, "an answer of an ENUM must be one line of valid UTF-8 and not empty", NULL);
        call->literals[i] = s;
    }
    if (first_repeated(call->literals, n, &first) >= 0)
        return fail_type(b, t, "an ENUM cannot list an answer twice", NULL);
    call->nliterals = n;
    return 0;
}

static int returns_between(binder *b, const llm_type *t, llm_call *call) {
    value low = t->low->literal, high = t->high->literal;
    if (call->returns != RETURNS_INTEGER || low.type != TYPE_INTEGER || high.type != TYPE_INTEGER)
        return fail_type(b, t, "BETWEEN needs INTEGER and whole numbers",
                         "write RETURNS INTEGER BETWEEN 1 AND 5");
    if (low.i >= high.i)
        return fail_type(b, t, "RETURNS INTEGER BETWEEN a AND b needs a < b", NULL);
    if ((uint64_t)high.i - (uint64_t)low.i >= MAX_LITERALS)
        return fail(b, ERR_LIMIT, t->pos, t->len, "INTEGER BETWEEN can span at most %d numbers",
                    MAX_LITERALS);
    call->nliterals = (int)(high.i - low.i) + 1;
    call->literals = ARENA_ARRAY(b->mem, str, call->nliterals);
    for (int i = 0; i < call->nliterals; i++)
        call->literals[i] = str_from(arena_printf(b->mem, "%lld", (long long)(low.i + i)));
    return 0;
}

static void returns_boolean(binder *b, llm_call *call) {
    call->returns = RETURNS_BOOLEAN;
    call->nliterals = 2;
    call->literals = ARENA_ARRAY(b->mem, str, 2);
    call->literals[0] = llm_boolean_literal(true);
    call->literals[1] = llm_boolean_literal(false);
}

/* True for the names of date types. In a table they mean TEXT; RETURNS refuses them, because
 * nothing would make the model write a date. */
static bool is_date(str name) {
    static const char *const names[] = {"DATE", "TIME", "TIMESTAMP", "DATETIME"};
    for (size_t i = 0; i < BASE_COUNT(names); i++)
        if (str_equal_nocase(name, str_from(names[i])))
            return true;
    return false;
}

static int returns_given(binder *b, const llm_type *t, llm_call *call) {
    value_type type;
    str name = t->name.name;
    if (str_equal_nocase(name, STR("ENUM")))
        return returns_enum(b, t, call);
    bool known = type_parse(name, &type) && type != TYPE_BLOB && !is_date(name);
    if (known && type == TYPE_VECTOR && str_equal_nocase(call->written_as, STR("EMBED"))) {
        call->returns = RETURNS_VECTOR;
        return 0;
    }
    if (!known || type == TYPE_VECTOR) {
        static const char *const names[] = {"TEXT", "ENUM", "BOOLEAN", "INTEGER", "REAL"};
        const char *meant = str_nearest(name, names, BASE_COUNT(names));
        fail(b, ERR_BIND, t->pos, t->len, "an LLM call cannot return \"%.*s\"",
             (int)BASE_MIN(name.n, (size_t)80), name.p);
        if (str_equal_nocase(name, STR("JSON")) && call->field.n == 0)
            err_hint(b->e, "for several columns, write RETURNS STRUCT(name TYPE, …)");
        else if (str_equal_nocase(name, STR("VECTOR")))
            err_hint(b->e, "EMBED(text) returns the vector of a text");
        else if (meant)
            err_hint(b->e, "did you mean %s?", meant);
        else
            err_hint(b->e,
                     "RETURNS TEXT, ENUM('…', …), BOOLEAN, INTEGER [BETWEEN a AND b] or REAL");
        return ERR_BIND;
    }
    if (t->literals.n)
        return fail_type(b, t, "a list of answers needs ENUM", "write RETURNS ENUM('yes', 'no')");
    if (type == TYPE_BOOLEAN)
        returns_boolean(b, call);
    else
        call->returns = type == TYPE_INTEGER ? RETURNS_INTEGER
                        : type == TYPE_REAL  ? RETURNS_REAL
                                             : RETURNS_TEXT;
    return t->between ? returns_between(b, t, call) : 0;
}

/* ---- by use ---------------------------------------------------------------------------------- */

call_info *llm_info_of(binder *b, const expr *x) {
    return x->kind == EXPR_COLUMN ? id_of(b, x->column.id)->call : NULL;
}

static int enum_by_use(binder *b, const call_uses *uses, llm_call *call) {
    const list *texts = uses->literals.n > 0 ? &uses->literals : &uses->fallbacks;
    int n = texts->n;
    call->returns = RETURNS_ENUM;
    call->by_use = true;
    call->literals = ARENA_ARRAY(b->mem, str, BASE_MAX(n, 2));
    for (int i = 0; i < n; i++) {
        call->literals[i] = *(str *)texts->items[i];
        if (llm_is_one_line(call->literals[i]))
            continue;
        fail(b, ERR_BIND, uses->pos, uses->len,
             "this call is compared with %s, which it can never return",
             call->literals[i].n ? "a text of several lines or invalid UTF-8" : "''");
        err_hint(b->e, "write LLM(…) RETURNS TEXT to compare it with any text");
        return ERR_BIND;
    }
    call->nliterals = n;
    if (n > MAX_LITERALS)
        return fail(b, ERR_LIMIT, uses->pos, uses->len,
                    "an LLM call can be compared with at most %d texts", MAX_LITERALS);
    if (n > 1)
        return 0;
    str one = call->literals[0];
    if (complete_pair(b->mem, one, call->literals)) {
        call->nliterals = 2;
        return 0;
    }
    fail(b, ERR_BIND, uses->literal_pos, uses->literal_len,
         "'%.*s' is the only text this call is compared with, so its other answers are unknown",
         (int)BASE_MIN(one.n, (size_t)60), one.p);
    err_hint(b->e, "list all answers: LLM(…) RETURNS ENUM('%.*s', …)",
             (int)BASE_MIN(one.n, (size_t)60), one.p);
    return ERR_BIND;
}

/* Sets the type of a call without RETURNS: TEXT, unless its uses imply another type. */
static int type_by_use(binder *b, const call_uses *uses, llm_call *call) {
    bool texts = uses->literals.n + uses->fallbacks.n > 0;
    if (texts + uses->number + uses->boolean > 1) {
        fail(b, ERR_BIND, uses->pos, uses->len,
             "the uses of this call imply different types (text, number or condition)");
        err_hint(b->e, "write its type: LLM(…) RETURNS INTEGER");
        return ERR_BIND;
    }
    if (texts)
        return enum_by_use(b, uses, call);
    call->by_use = uses->number || uses->boolean;
    if (uses->number)
        call->returns = RETURNS_REAL;
    if (uses->boolean)
        returns_boolean(b, call);
    return 0;
}

int llm_set_type(binder *b, const node *n, llm_call *call, const call_uses *uses) {
    const llm_type *t = llm_given_type(n);
    if (call->from_labels) /* bind_labels has set it */
        return 0;
    return t->given ? returns_given(b, t, call) : type_by_use(b, uses, call);
}

bool llm_types_fit(binder *b) {
    for (int i = 0; i < b->calls.n; i++) {
        const call_info *info = b->calls.items[i];
        llm_call typed = *info->call;
        typed.returns = RETURNS_TEXT;
        bool wrong = info->lacks_prob || (!info->given && type_by_use(b, info->uses, &typed)) ||
                     (!info->given && llm_call_type(&typed) != llm_call_type(info->call)) ||
                     (info->text_option && typed.returns != RETURNS_TEXT);
        if (wrong)
            return false;
        if (!info->given)
            *info->call = typed;
    }
    return true;
}

static bool has_text(const list *texts, str text) {
    for (int i = 0; i < texts->n; i++)
        if (str_equal(*(str *)texts->items[i], text))
            return true;
    return false;
}

static void note_literal(binder *b, call_uses *uses, list *texts, const expr *x) {
    if (has_text(texts, x->literal.s))
        return;
    str *s = ARENA_NEW(b->mem, str);
    *s = x->literal.s;
    if (uses->literals.n == 0 && (texts == &uses->literals || uses->fallbacks.n == 0)) {
        uses->literal_pos = b->view_depth ? -1 : x->pos;
        uses->literal_len = x->len;
    }
    list_add(b->mem, texts, s);
    b->learned = true;
}

void llm_note_type(binder *b, const call_info *info, value_type type) {
    bool *used = type == TYPE_BOOLEAN ? &info->uses->boolean : &info->uses->number;
    b->learned = b->learned || !*used;
    *used = true;
}

/* The LLM calls and text literals whose value an expression may return unchanged. */
typedef struct sources {
    list calls; /* of call_info* */
    list texts; /* of str*: literals */
} sources;

static void find_sources(binder *b, const expr *x, sources *out);

static void column_sources(binder *b, int id, sources *out) {
    id_info *info = id_of(b, id);
    if (info->searched == b->search)
        return;
    info->searched = b->search;
    if (info->call)
        list_add(b->mem, &out->calls, info->call);
    const expr *made_of[2] = {info->made_of[0], info->made_of[1]};
    for (int k = 0; k < 2 && !info->call; k++)
        if (made_of[k])
            find_sources(b, made_of[k], out);
}

static void find_sources(binder *b, const expr *x, sources *out) {
    int first = 0, last = -1, stride = 1;
    if (x->kind == EXPR_COLUMN)
        column_sources(b, x->column.id, out);
    if (x->kind == EXPR_LITERAL && x->literal.type == TYPE_TEXT) {
        str *s = ARENA_NEW(b->mem, str);
        *s = x->literal.s;
        list_add(b->mem, &out->texts, s);
    }
    if (x->kind == EXPR_CASE) { /* args: when1, then1, …, else */
        find_sources(b, x->args[x->nargs - 1], out);
        first = 1, last = x->nargs - 2, stride = 2;
    } else if (x->kind == EXPR_FUNC) {
        bool all = x->function == FUNC_COALESCE || x->function == FUNC_IFNULL;
        first = x->function == FUNC_IIF;
        last = all || x->function == FUNC_IIF ? x->nargs - 1 : x->function == FUNC_NULLIF ? 0 : -1;
    }
    for (int i = first; i <= last; i += stride)
        find_sources(b, x->args[i], out);
}

/* True if the text x is what a failed call gives: DEFAULT x ON ERROR. */
static bool is_default(const call_info *info, const expr *x) {
    value v = info->call->otherwise;
    return v.type == TYPE_TEXT && str_equal(v.s, x->literal.s);
}

bool llm_note_use(binder *b, expr_op op, const expr *x, const expr *with) {
    sources from = {0};
    bool open = false;
    bool ordered = op >= OP_LT && op <= OP_GE;
    if (expr_is_null(with) || (ordered && with->type == TYPE_TEXT))
        return false;
    b->search++;
    find_sources(b, x, &from);
    for (int i = 0; i < from.calls.n; i++) {
        call_info *info = from.calls.items[i];
        if (info->given)
            continue;
        open = true;
        if (with->type == TYPE_TEXT && with->kind == EXPR_LITERAL)
            note_literal(b, info->uses,
                         has_text(&from.texts, with->literal.s) || is_default(info, with)
                             ? &info->uses->fallbacks
                             : &info->uses->literals,
                         with);
        else if (type_is_number(with->type))
            llm_note_type(b, info, with->type);
    }
    if (with->type == TYPE_TEXT)
        return open && x->type != TYPE_TEXT && with->kind == EXPR_LITERAL;
    return open && type_is_number(with->type) && !type_is_number(x->type);
}

/* True if the rows of labels => could not be read (bind_env.rows). */
static bool labels_are_unknown(const llm_call *call) {
    return call->from_labels && call->nliterals == 0;
}

static int refuse_literal(binder *b, const llm_call *call, const expr *at, str text) {
    const char **names = ARENA_ARRAY(b->mem, const char *, call->nliterals);
    for (int i = 0; i < call->nliterals; i++)
        names[i] = arena_strndup(b->mem, call->literals[i].p, call->literals[i].n);
    fail(b, ERR_BIND, at->pos, at->len, "'%.*s' is not one of the answers of this call",
         (int)BASE_MIN(text.n, (size_t)60), text.p);
    const char *meant = str_nearest(text, names, (size_t)call->nliterals);
    if (meant)
        err_hint(b->e, "did you mean '%s'?", meant);
    else
        err_hint(b->e, "the call may answer '%.60s'%s'%.60s'", names[0],
                 call->nliterals > 2 ? " … " : " or ", names[call->nliterals - 1]);
    return ERR_BIND;
}

/* Reports an error if a call is compared with a text that is not one of its declared answers,
 * because the result would be the same for all answers. The hint names the nearest answer. */
bool llm_check_literal(binder *b, const expr *call, const expr *with) {
    const call_info *info = llm_info_of(b, call);
    if (!info || info->call->returns != RETURNS_ENUM || with->kind != EXPR_LITERAL ||
        with->type != TYPE_TEXT || expr_is_null(with) || !info->given || is_default(info, with) ||
        labels_are_unknown(info->call))
        return true;
    for (int i = 0; i < info->call->nliterals; i++)
        if (str_equal(info->call->literals[i], with->literal.s))
            return true;
    refuse_literal(b, info->call, with, with->literal.s);
    return false;
}

/* ---- what LLM_PROB() and LLM_MEAN() read ------------------------------------------------------ */

int llm_read_literal(const llm_call *call, const prob_read *r) {
    if (!r->label.p)
        return r->literal;
    if (labels_are_unknown(call))
        return 0;
    for (int i = 0; i < call->nliterals; i++)
        if (str_equal(call->literals[i], r->label))
            return i;
    return PROB_OF_ANSWER;
}

int llm_label_read(binder *b, const call_info *info, const expr *label, prob_read *out) {
    const llm_call *call = info->call;
    value v = label->kind == EXPR_LITERAL ? label->literal : value_null();
    *out = (prob_read){.label = v.s};
    if (v.type == TYPE_BOOLEAN)
        out->label = llm_boolean_literal(v.i != 0);
    else if (v.type == TYPE_INTEGER)
        out->label = str_from(arena_printf(b->mem, "%lld", (long long)v.i));
    else if (v.type != TYPE_TEXT)
        return fail(b, ERR_BIND, label->pos, label->len,
                    "the second argument of LLM_PROB() must be one of the call's answers");
    if (!info->given && v.type == TYPE_TEXT)
        note_literal(b, info->uses, &info->uses->literals, label);
    else if (!info->given && v.type == TYPE_BOOLEAN)
        llm_note_type(b, info, TYPE_BOOLEAN);
    if (b->learned || llm_read_literal(call, out) >= 0)
        return 0;
    if (call->nliterals > 0)
        return refuse_literal(b, call, label, out->label);
    fail(b, ERR_BIND, label->pos, label->len,
         "LLM_PROB() with an answer needs a call that has a list of answers");
    err_hint(b->e,
             "write the call's type: RETURNS ENUM('…', …), BOOLEAN or INTEGER BETWEEN 1 AND 5");
    return ERR_BIND;
}

int llm_mean_read(binder *b, const call_info *info, int pos, int len, prob_read *out) {
    llm_returns returns = info->call->returns;
    *out = (prob_read){.literal = PROB_MEAN};
    if (b->learned || returns == RETURNS_BOOLEAN ||
        (returns == RETURNS_INTEGER && info->call->nliterals > 0))
        return 0;
    fail(b, ERR_BIND, pos, len, "LLM_MEAN() needs a call of type INTEGER BETWEEN or BOOLEAN");
    err_hint(b->e, "write LLM(…) RETURNS INTEGER BETWEEN 1 AND 5");
    return ERR_BIND;
}
