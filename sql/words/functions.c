/* functions.c - the tables of SQL functions: parameters, result types, synonyms; the options of
 * LLM(). exec evaluates the functions. */
#include <string.h>

#include "words_int.h"

#define RESULT_INTEGER RESULT_IS(TYPE_INTEGER)
#define RESULT_REAL RESULT_IS(TYPE_REAL)
#define RESULT_TEXT RESULT_IS(TYPE_TEXT)
#define RESULT_BOOLEAN RESULT_IS(TYPE_BOOLEAN)
#define RESULT_VECTOR RESULT_IS(TYPE_VECTOR)

static const char *const parameters[FUNC_COUNT] = {
#define FUNCTION_PARAMETERS(id, name, low, high, letters, result, volatile_, signature, help)      \
    [FUNC_##id] = letters,
    SQL_FUNCTIONS(FUNCTION_PARAMETERS)
#undef FUNCTION_PARAMETERS
};

#define RESULT_SAME1 RESULT_AS_FIRST
#define RESULT_COMMON RESULT_AS_COMMON
#define RESULT_NUMBER1 RESULT_AS_NUMBER
static const function_result results[FUNC_COUNT] = {
#define FUNCTION_RESULT(id, name, low, high, letters, result, volatile_, signature, help)          \
    [FUNC_##id] = RESULT_##result,
    SQL_FUNCTIONS(FUNCTION_RESULT)
#undef FUNCTION_RESULT
};

/* Sorted by class: scalars by function_id, window functions by window_kind, aggregates, model
 * functions, table functions. */
static const function_info infos[] = {
#define FUNCTION_INFO(id, name, low, high, letters, result, volatile_, signature, help)            \
    {name, low, high, volatile_, FUNCTION_SCALAR, signature, help},
    SQL_FUNCTIONS(FUNCTION_INFO)
#undef FUNCTION_INFO
#define WINDOW_INFO(id, name, low, high, signature, help)                                          \
    {name, low, high, false, FUNCTION_WINDOW, signature, help},
        SQL_WINDOW_FUNCTIONS(WINDOW_INFO)
#undef WINDOW_INFO
            {"count", 0, 1, false, FUNCTION_AGGREGATE, "count(*) | count([DISTINCT] x)",
             "number of rows, or of values that are not NULL"},
    {"sum", 1, 1, false, FUNCTION_AGGREGATE, "sum([DISTINCT] x)",
     "sum; NULL if there are no values"},
    {"avg", 1, 1, false, FUNCTION_AGGREGATE, "avg([DISTINCT] x)",
     "mean; NULL if there are no values"},
    {"min", 1, 1, false, FUNCTION_AGGREGATE, "min(x)", "least value"},
    {"max", 1, 1, false, FUNCTION_AGGREGATE, "max(x)", "greatest value"},
    {"group_concat", 1, 2, false, FUNCTION_AGGREGATE,
     "group_concat([DISTINCT] x [, separator] [ORDER BY …])",
     "concatenates texts with a separator (default ',')"},
    {"string_agg", 1, 2, false, FUNCTION_AGGREGATE,
     "string_agg([DISTINCT] x, separator [ORDER BY …])", "another name of group_concat"},
    {"json_group_array", 1, 1, false, FUNCTION_AGGREGATE, "json_group_array(x [ORDER BY …])",
     "the values as a JSON array, NULL as null; [] if there are none"},
    {"median", 1, 1, false, FUNCTION_AGGREGATE, "median([DISTINCT] x)",
     "median; of an even number of values the mean of the middle two"},
    {"stddev", 1, 1, false, FUNCTION_AGGREGATE, "stddev([DISTINCT] x)",
     "sample standard deviation; NULL if there are fewer than two values"},
    {"llm", 1, -1, false, FUNCTION_MODEL,
     "LLM(prompt, field [AS name], … [, option => value] [NULL ON ERROR]) [RETURNS type]",
     "asks the model about each row; .help llm shows its types and options"},
    {"llm_prob", 1, 2, false, FUNCTION_MODEL, "LLM_PROB(LLM(…) [, answer])",
     "probability of a call's answer, or of one that it may give; the call may be named by its "
     "alias"},
    {"llm_mean", 1, 1, false, FUNCTION_MODEL, "LLM_MEAN(LLM(…))",
     "mean of INTEGER BETWEEN, weighted by probability; of BOOLEAN the probability of true"},
#define LLM_NAME_FUNCTION(name, signature, stands_for, instead)                                    \
    {name, 1, -1, false, FUNCTION_MODEL, signature, "short for " stands_for},
    SQL_LLM_NAMES(LLM_NAME_FUNCTION)
#undef LLM_NAME_FUNCTION
#define EMBED_FUNCTION(name, signature, stands_for, instead)                                       \
    {name, 1, -1, false, FUNCTION_MODEL, signature, "vector of a text, by an embedding model"},
        SQL_LLM_EMBED(EMBED_FUNCTION)
#undef EMBED_FUNCTION
            {"chunk", 1, 1, false, FUNCTION_TABLE,
             "CHUNK(text [, tokens => 128] [, overlap => 0] [, model => m])",
             "in FROM: for each row to its left the pieces of the text, in the columns text and n"},
    {"string_split", 2, 2, false, FUNCTION_TABLE, "string_split(text, separator)",
     "in FROM: for each row to its left the parts of the text, in the columns text and n"},
    {"generate_series", 2, 3, false, FUNCTION_TABLE, "generate_series(first, last [, step])",
     "in FROM: one column with the whole numbers from first to last"},
};

static const llm_option_info llm_options[] = {
#define LLM_OPTION_INFO(name, example, help) {name, example, help},
    SQL_LLM_OPTIONS(LLM_OPTION_INFO)
#undef LLM_OPTION_INFO
};

static const llm_name_info llm_names[] = {
#define LLM_NAME_INFO(name, signature, stands_for, instead) {name, signature, stands_for, instead},
    SQL_LLM_NAMES(LLM_NAME_INFO) SQL_LLM_EMBED(LLM_NAME_INFO)
#undef LLM_NAME_INFO
};

/* Names that other databases use for functions that exist here. */
static const struct {
    const char *name;
    function_id id;
} synonyms[] = {
    {"substring", FUNC_SUBSTR},
    {"char_length", FUNC_LENGTH},
    {"ceiling", FUNC_CEIL},
    {"pow", FUNC_POWER},
    {"nvl", FUNC_IFNULL},
    {"strpos", FUNC_INSTR},
    {"btrim", FUNC_TRIM},
    {"chr", FUNC_CHAR_},
    {"ascii", FUNC_UNICODE},
    {"array_distance", FUNC_L2_DISTANCE},
    {"vec_distance_l2", FUNC_L2_DISTANCE},
    {"array_cosine_distance", FUNC_COSINE_DISTANCE},
    {"vec_distance_cosine", FUNC_COSINE_DISTANCE},
    {"array_inner_product", FUNC_INNER_PRODUCT},
    {"l2_norm", FUNC_VECTOR_NORM},
    {"array_negative_inner_product", FUNC_NEGATIVE_INNER_PRODUCT},
};

/* The parts of a text as rows. */
#define SPLIT_TO_ROWS "FROM t, string_split(x, ',') AS s"

/* Functions of other databases that do not exist here (table functions: not outside FROM), and what
 * to write instead, for hints. */
static const struct {
    const char *name, *instead;
} foreign[] = {
    {"now", "datetime('now')"},
    {"getdate", "datetime('now')"},
    {"sqlite_version", "version()"},
    {"year", "strftime('%Y', x)"},
    {"month", "strftime('%m', x)"},
    {"day", "strftime('%d', x)"},
    {"hour", "strftime('%H', x)"},
    {"extract", "strftime('%Y', x)"},
    {"date_part", "strftime('%Y', x)"},
    {"to_char", "strftime('%Y-%m', x) for times, round(x, 2) for numbers"},
    {"date_trunc", "date(x, 'start of month')"},
    {"date_add", "date(x, '+1 day')"},
    {"date_sub", "date(x, '-1 day')"},
    {"date_diff", "julianday(b) - julianday(a)"},
    {"datediff", "julianday(b) - julianday(a)"},
    {"age", "julianday('now') - julianday(x)"},
    {"to_date", "date(x), with x in the form YYYY-MM-DD"},
    {"printf", "a || b joins texts; round() and lpad() shape numbers"},
    {"format", "a || b joins texts; round() and lpad() shape numbers"},
    {"total", "coalesce(sum(x), 0)"},
    {"any_value", "min(x)"},
    {"first", "min(x)"},
    {"bool_or", "max(x)"},
    {"bool_and", "min(x)"},
    {"every", "min(x)"},
    {"count_if", "count(*) FILTER (WHERE …)"},
    {"countif", "count(*) FILTER (WHERE …)"},
    {"array_agg", "json_group_array(x), or group_concat(x, ', ')"},
    {"json_agg", "json_group_array(x)"},
    {"json_arrayagg", "json_group_array(x)"},
    {"list", "json_group_array(x), or group_concat(x, ', ')"},
    {"listagg", "group_concat(x, ', ')"},
    {"starts_with", "x LIKE 'abc%'"},
    {"ends_with", "x LIKE '%abc'"},
    {"contains", "x LIKE '%abc%', or instr(x, 'abc') > 0"},
    {"regexp_like", "x REGEXP 'pattern'"},
    {"regexp", "x REGEXP 'pattern'"},
    {"regexp_full_match", "x REGEXP '^(pattern)$'"},
    {"regexp_match", "regexp_extract(x, 'pattern', group)"},
    {"regexp_substr", "regexp_extract(x, 'pattern')"},
    {"regexp_replace",
     "replace(x, 'from', 'to'), or regexp_extract(x, 'pattern', group) for parts"},
    {"string_split", SPLIT_TO_ROWS},
    {"string_to_table", SPLIT_TO_ROWS},
    {"chunk", "FROM t, CHUNK(x, tokens => 128) AS c"},
    {"text_splitter", "FROM t, CHUNK(x, tokens => 128) AS c"},
    {"regexp_split_to_table", SPLIT_TO_ROWS},
    {"unnest", SPLIT_TO_ROWS},
    {"editdist3", "levenshtein(a, b)"},
    {"isnull", "x IS NULL, or coalesce(x, y)"},
    {"if", "iif(condition, a, b), or CASE"},
    {"len", "length(x)"},
    {"ucase", "upper(x)"},
    {"lcase", "lower(x)"},
    {"mid", "substr(x, from, count)"},
    {"charindex", "instr(text, part)"},
    {"rollup", "a GROUP BY for each grouping, with UNION ALL"},
    {"cube", "a GROUP BY for each grouping, with UNION ALL"},
    {"generate_series", "FROM generate_series(first, last)"},
    {"last_insert_rowid", "INSERT … RETURNING rowid"},
    {"arg_max", "QUALIFY row_number() OVER (PARTITION BY key ORDER BY x DESC) = 1"},
    {"max_by", "QUALIFY row_number() OVER (PARTITION BY key ORDER BY x DESC) = 1"},
    {"arg_min", "QUALIFY row_number() OVER (PARTITION BY key ORDER BY x) = 1"},
    {"min_by", "QUALIFY row_number() OVER (PARTITION BY key ORDER BY x) = 1"},
    {"array_cosine_similarity", "1 - cosine_distance(v, w)"},
    {"cosine_similarity", "1 - cosine_distance(v, w)"},
    {"vec_f32", "'[…]'::VECTOR"},
    {"prompt", "LLM('…', x)"},
    {"ai_generate", "AI_COMPLETE('…', x)"},
    {"ai_generate_response", "AI_COMPLETE('…', x)"},
    {"ai_gen", "AI_COMPLETE('…', x)"},
    {"ai_query", "AI_COMPLETE('…', x)"},
    {"llm_complete", "AI_COMPLETE('…', x)"},
    {"llm_filter", "AI_FILTER('…', x)"},
    {"ai_if", "AI_FILTER('…', x)"},
    {"ai_analyze_sentiment", "AI_SENTIMENT(x)"},
    {"ai_agg", "LLM('…', string_agg(x, ' ') AS texts)"},
    {"ai_summarize_agg", "AI_SUMMARIZE(string_agg(x, ' '))"},
};

const char *function_instead(str name) {
    for (size_t i = 0; i < BASE_COUNT(foreign); i++)
        if (str_equal_nocase(name, str_from(foreign[i].name)))
            return foreign[i].instead;
    return NULL;
}

const function_info *sql_functions(size_t *count) {
    *count = BASE_COUNT(infos);
    return infos;
}

const llm_option_info *sql_llm_options(size_t *count) {
    *count = BASE_COUNT(llm_options);
    return llm_options;
}

const llm_name_info *llm_name_find(str name) {
    for (size_t i = 0; i < BASE_COUNT(llm_names); i++)
        if (str_equal_nocase(name, str_from(llm_names[i].name)))
            return &llm_names[i];
    return NULL;
}

const char *function_parameters(function_id id) {
    return parameters[id];
}

function_result function_result_of(function_id id) {
    return results[id];
}

const function_info *function_of(function_id id) {
    return &infos[id];
}

bool function_find(str name, function_id *out) {
    for (size_t i = 0; i < FUNC_COUNT; i++)
        if (str_equal_nocase(name, str_from(infos[i].name))) {
            *out = (function_id)i;
            return true;
        }
    for (size_t i = 0; i < BASE_COUNT(synonyms); i++)
        if (str_equal_nocase(name, str_from(synonyms[i].name))) {
            *out = synonyms[i].id;
            return true;
        }
    return false;
}

bool window_find(str name, window_kind *out) {
    for (int k = 0; k < WINDOW_AGGREGATE; k++)
        if (str_equal_nocase(name, str_from(infos[FUNC_COUNT + k].name))) {
            *out = (window_kind)k;
            return true;
        }
    return false;
}

const function_info *window_of(window_kind kind) {
    return &infos[FUNC_COUNT + (int)kind];
}

bool aggregate_find(str name, agg_kind *out) {
    static const struct {
        const char *name;
        agg_kind kind;
    } kinds[] = {
        {"count", AGG_COUNT},
        {"sum", AGG_SUM},
        {"avg", AGG_AVG},
        {"min", AGG_MIN},
        {"max", AGG_MAX},
        {"group_concat", AGG_GROUP_CONCAT},
        {"string_agg", AGG_GROUP_CONCAT},
        {"median", AGG_MEDIAN},
        {"stddev", AGG_STDDEV},
        {"stddev_samp", AGG_STDDEV},
    };
    for (size_t i = 0; i < BASE_COUNT(kinds); i++)
        if (str_equal_nocase(name, str_from(kinds[i].name))) {
            *out = kinds[i].kind;
            return true;
        }
    return false;
}

const function_info *series_function(void) {
    return &infos[BASE_COUNT(infos) - 1];
}

const char *function_nearest(str name) {
    const char *names[BASE_COUNT(infos)];
    size_t n = 0;
    for (size_t i = 0; i < BASE_COUNT(infos); i++)
        if (infos[i].class != FUNCTION_TABLE)
            names[n++] = infos[i].name;
    return str_nearest(name, names, n);
}

const char *agg_kind_name(agg_kind k) {
    switch (k) {
    case AGG_COUNT_STAR:
    case AGG_COUNT:
        return "count";
    case AGG_SUM:
        return "sum";
    case AGG_AVG:
        return "avg";
    case AGG_MIN:
        return "min";
    case AGG_MAX:
        return "max";
    case AGG_GROUP_CONCAT:
        return "group_concat";
    case AGG_FIRST:
        return "first";
    case AGG_MEDIAN:
        return "median";
    case AGG_STDDEV:
        return "stddev";
    }
    return NULL;
}
