/*
 * foreign_commands.c - what people type by habit at other programs: their commands and options, and how it is
 * done here.
 *
 * Owns hints alone; what is done here under another's name is an alias in the tables of commands.c
 * and args.c.
 */
#include "commands_int.h"

static const struct {
    const char *names, *here;
} habits[] = {
    /* sqlite3 */
    {".separator .excel .binary \\f \\a \\H", ".mode csv, tsv, list or html"},
    {".changes", "INSERT, UPDATE and DELETE say how many rows they changed"},
    {".eqp .scanstats", "EXPLAIN ANALYZE before a statement, or .explain after it"},
    {".timeout", "SET busy_timeout = 5000"},
    {".restore .clone", ".backup DIRECTORY makes a copy, .open DIRECTORY opens it"},
    {".fullschema .sha3sum", ".dump writes all of it as SQL"},
    {".dbinfo .dbstat", "SHOW TABLES"},
    {"-cmd -s", "-c"},
    {"-batch -interactive", "a prompt is where a person sits, and only there"},
    {"-header -headers", "column names are shown; .headers off hides them"},
    {"-noheader", "-c '.headers off'"},
    {"-nullvalue", "-c '.nullvalue TEXT'"},
    {"-separator -ascii", "--csv, --tsv or --list"},
    {"-bail", "a script stops at its first error; --keep-going goes on"},
    {"-echo", "-c '.echo on'"},
    {"-stats", "-c '.stats on'"},
    {"-init", "-f FILE, or ~/.config/kvasir/init.sql for the prompt"},
    /* psql */
    {"\\copy", "COPY name FROM 'f.csv', COPY (query) TO 'f.csv'"},
    {"\\gx", ".expanded on, and then the statement"},
    {"\\gset \\unset \\prompt", ".set NAME=VALUE"},
    {"\\p", ".history 1"},
    {"\\r", "Ctrl-C forgets what is typed"},
    {"\\w", ".history and .once FILE"},
    {"\\warn", ".print"},
    {"\\if \\elif \\else \\endif", "scripts have no conditions"},
    {"\\encoding", "all text is UTF-8"},
    {"\\dn \\du \\dg \\dp \\z \\password", "there are no users and schemas"},
    {"\\dx \\dT \\ds", "there are no extensions, types and sequences"},
    {"-A -t -F -x", "--csv, --tsv, --list or --line, and -c '.headers off'"},
    {"-d -U", "the database comes without an option: kvasir DATABASE"},
    {"-X", "--no-init"},
    /* llama.cpp */
    {"-m", "--model"},
    {"-p --prompt", "-c \"SELECT LLM('…')\""},
    {"--threads", "-c 'SET threads = 4'"},
    {"-ngl --n-gpu-layers --device", "-c \"SET device = 'cuda:0'\""},
    {"-n --n-predict", "-c 'SET max_tokens = 64'"},
    {"--temp", "-c 'SET temperature = 0.8'"},
};

const char *foreign_command(str typed) {
    for (size_t i = 0; i < BASE_COUNT(habits); i++)
        for (str rest = str_from(habits[i].names); rest.n;)
            if (str_equal(typed, str_split_next(&rest, ' ')))
                return habits[i].here;
    return NULL;
}
