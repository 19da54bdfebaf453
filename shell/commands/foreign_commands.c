/*
 * foreign_commands.c - what to use instead of commands and options of sqlite3, psql and llama.cpp
 * that kvasir does not have. Printed with "unknown command" and "unknown option".
 *
 * A foreign name with an exact equivalent is an alias in the tables of commands.c and args.c.
 */
#include "commands_int.h"

static const struct {
    const char *names, *instead;
} foreign[] = {
    /* sqlite3 */
    {".separator .excel .binary \\f \\a \\H", "use .mode csv, tsv, list or html"},
    {".changes", "INSERT, UPDATE and DELETE print how many rows they changed"},
    {".eqp .scanstats", "use EXPLAIN ANALYZE before a statement, or .explain after it"},
    {".timeout", "use SET busy_timeout = 5000;"},
    {".restore .clone", "use .backup DIRECTORY to copy, .open DIRECTORY to open the copy"},
    {".fullschema .sha3sum", "use .dump, which writes everything as SQL"},
    {".dbinfo .dbstat", "use SHOW TABLES;"},
    {"-cmd -s", "use -c"},
    {"-batch -interactive", "kvasir prompts if input and output are a terminal"},
    {"-header -headers", "column names are shown unless -c '.headers off'"},
    {"-noheader", "use -c '.headers off'"},
    {"-nullvalue", "use -c '.nullvalue TEXT'"},
    {"-separator -ascii", "use --csv, --tsv or --list"},
    {"-bail", "scripts stop at the first error unless --keep-going"},
    {"-echo", "use -c '.echo on'"},
    {"-stats", "use -c '.stats on'"},
    {"-init", "use -f FILE, or ~/.config/kvasir/init.sql for the prompt"},
    /* psql */
    {"\\copy", "use COPY name FROM 'f.csv' or COPY (query) TO 'f.csv'"},
    {"\\gx", "use .expanded on, then the statement"},
    {"\\gset \\unset \\prompt", "use .set NAME=VALUE"},
    {"\\p", "use .history 1"},
    {"\\r", "press Ctrl-C to discard the statement being typed"},
    {"\\w", "use .once FILE, then .history"},
    {"\\warn", "use .print"},
    {"\\if \\elif \\else \\endif", "scripts have no conditions"},
    {"\\encoding", "all text is UTF-8"},
    {"\\dn \\du \\dg \\dp \\z \\password", "kvasir has no users and no schemas"},
    {"\\dx \\dT \\ds", "kvasir has no extensions, custom types or sequences"},
    {"-A -t -F -x", "use --csv, --tsv, --list or --line; -c '.headers off' hides names"},
    {"-d -U", "name the database without an option: kvasir DATABASE"},
    {"-X", "use --no-init"},
    /* llama.cpp */
    {"-m", "use --model"},
    {"-p --prompt", "use -c \"SELECT LLM('…')\""},
    {"--threads", "use -c 'SET threads = 4'"},
    {"-ngl --n-gpu-layers --device", "use -c \"SET device = 'cuda:0'\""},
    {"-n --n-predict", "use -c 'SET max_tokens = 64'"},
    {"--temp", "use -c 'SET temperature = 0.8'"},
};

const char *foreign_command(str typed) {
    for (size_t i = 0; i < BASE_COUNT(foreign); i++)
        for (str rest = str_from(foreign[i].names); rest.n;)
            if (str_equal(typed, str_split_next(&rest, ' ')))
                return foreign[i].instead;
    return NULL;
}
