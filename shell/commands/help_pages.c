/*
 * help_pages.c - the pages of .help: longer texts about a few subjects, also printed in the man
 * page.
 *
 * Invariant: lines have at most 73 columns, the width of text in a man page of 80. Blocks indented by
 * four blanks are statements and commands, which tests/sessions/help.session runs in the order of
 * their page. What a table holds (options of LLM(), output modes, keys of the live view) is printed
 * from that table.
 */
#include "commands_int.h"

enum { PAGE_COLUMNS = 73, NAME_COLUMNS = 14 };

static void list_options(buf *out) {
    size_t n;
    const llm_option_info *options = sql_llm_options(&n);
    for (size_t i = 0; i < n; i++) {
        buf left = {0};
        buf_printf(&left, "  %s => %s", options[i].name, options[i].example);
        format_entry(out, buf_str(&left), 2 * NAME_COLUMNS - 4, str_from(options[i].help),
                     PAGE_COLUMNS);
        buf_free(&left);
    }
}

static void list_modes(buf *out) {
    size_t n;
    const format_mode *modes = format_modes(&n);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "  %-9s %s\n", modes[i].name, modes[i].help);
}

static void list_server_options(buf *out) {
    size_t n;
    const llm_remote_option *options = llm_remote_options(&n);
    for (size_t i = 0; i < n; i++) {
        buf left = {0};
        buf_printf(&left, "  %s", options[i].name);
        format_entry(out, buf_str(&left), NAME_COLUMNS, str_from(options[i].help), PAGE_COLUMNS);
        buf_free(&left);
    }
}

static void list_view_keys(buf *out) {
    size_t n;
    const view_help_line *lines = view_help(&n);
    for (size_t i = 0; i < n; i++) {
        buf left = {0};
        buf_printf(&left, "  %s", lines[i].name);
        format_entry(out, buf_str(&left), NAME_COLUMNS, str_from(lines[i].text), PAGE_COLUMNS);
        buf_free(&left);
    }
}

static const help_page pages[] = {
    {"llm", "returns enum boolean examples answer", "asking the model",
     "LLM(prompt, field [AS name], … [, option => value] [NULL ON ERROR])\n"
     "  [RETURNS type]\n"
     "\n"
     "An expression that asks the model about each row. The prompt is a\n"
     "constant text; the fields are the row's data. {name} in the prompt\n"
     "stands for the name of a field; t.* means all columns of t.\n"
     "\n"
     "    CREATE TABLE talk (id INTEGER PRIMARY KEY, who TEXT, said TEXT);\n"
     "    INSERT INTO talk VALUES\n"
     "           (1, 'Ann', 'Superb!'), (2, 'Ben', 'I slept.');\n"
     "\n"
     "Types of answers\n"
     "\n"
     "    SELECT who, LLM('Is {said} positive?', said) RETURNS BOOLEAN\n"
     "    FROM talk;\n"
     "    SELECT who, LLM('Which mood?', said)\n"
     "                RETURNS ENUM('glad', 'sad', 'bored') FROM talk;\n"
     "    SELECT who, LLM('Rate from 1 to 5', talk.*)\n"
     "                RETURNS INTEGER BETWEEN 1 AND 5 FROM talk;\n"
     "    SELECT who, LLM('Say it in other words', said) FROM talk;\n"
     "    SELECT who FROM talk WHERE LLM('Is it praise?', said) = 'yes';\n"
     "\n"
     "The fourth is TEXT; the last is ENUM('yes', 'no') because it is compared\n"
     "with 'yes'. INTEGER and REAL are types, too. A typed answer is always one\n"
     "of its type, chosen by probability. It may still be wrong.\n"
     "\n"
     "Several columns of one call; each row is computed once for all of them\n"
     "\n"
     "    SELECT who, LLM('Read it', said) RETURNS STRUCT(praise BOOLEAN,\n"
     "                stars INTEGER BETWEEN 1 AND 5 'of five', topic TEXT)\n"
     "    FROM talk;\n"
     "    SELECT x.stars, count(*) FROM talk, LLM('Read it', said) RETURNS\n"
     "           STRUCT(stars INTEGER BETWEEN 1 AND 5) AS x GROUP BY x.stars;\n"
     "\n"
     "A field's name ends the prompt, with the description if there is one:\n"
     "stars (of five):\n"
     "\n"
     "A call that goes on from another one's prompt and answer\n"
     "\n"
     "    SELECT who, LLM('Is {said} praise?', said) RETURNS BOOLEAN AS praise,\n"
     "           LLM('Quote the words that show it', after => praise) FROM talk;\n"
     "\n"
     "Examples: solved cases in a query, table or view, with columns named as\n"
     "the fields and one named answer (of a STRUCT: one for each of its fields)\n"
     "\n"
     "    SELECT who, LLM('Is it praise?', said, examples =>\n"
     "                    (SELECT 'I hated it.' AS said, 'no' AS answer))\n"
     "                RETURNS ENUM('yes', 'no') FROM talk;\n"
     "    CREATE VIEW solved (said, answer) AS\n"
     "    VALUES ('I hated it.', 'no'), ('Well made.', 'yes');\n"
     "    SELECT who, LLM('Is it praise?', said, examples => solved)\n"
     "                RETURNS ENUM('yes', 'no') FROM talk;\n"
     "\n"
     "How sure an answer is, as a REAL from 0 to 1\n"
     "\n"
     "    SELECT who, LLM('Is {said} positive?', said) RETURNS BOOLEAN AS good,\n"
     "           LLM_PROB(good), LLM_PROB(good, true) FROM talk;\n"
     "    SELECT who FROM talk ORDER BY LLM_MEAN(LLM('Rate from 1 to 5', said)\n"
     "           RETURNS INTEGER BETWEEN 1 AND 5);\n"
     "\n"
     "LLM_PROB(call) is the probability of the answer, LLM_PROB(call, answer)\n"
     "of that one, LLM_MEAN(call) the mean of the numbers. For answers that\n"
     "are nearly all the same: .help calibrate.\n"
     "\n"
     "Options\n"
     "\n",
     list_options,
     "\n"
     "A NULL field is left out. If the prompt names it in braces, or if all\n"
     "fields are NULL, the answer is NULL and the model is not asked.\n"
     "\n"
     "A call fails where its prompt is too long. NULL ON ERROR, ERROR ON ERROR\n"
     "or DEFAULT value ON ERROR after the last argument says what happens then:\n"
     "\n"
     "    SELECT who, LLM('Is {said} positive?', said DEFAULT 'unclear' ON ERROR)\n"
     "                RETURNS ENUM('positive', 'negative') FROM talk;\n"
     "\n"
     "Other systems' names for common calls, with the same options\n"
     "\n"
     "    SELECT who, AI_SENTIMENT(said), AI_CLASSIFY(said, ['praise', 'blame'])\n"
     "    FROM talk WHERE AI_FILTER('Is {said} about a film?', said);\n"
     "\n"
     "AI_EXTRACT, AI_COMPLETE, AI_SCORE, AI_SUMMARIZE, AI_TRANSLATE: .help NAME\n"
     "says what each stands for.\n"
     "\n"
     "To see what is sent, without asking, and what it cost\n"
     "\n"
     "    EXPLAIN (PROMPT) SELECT LLM('Is it praise?', said) = 'yes' FROM talk;\n"
     "    .stats\n"
     "\n"
     "Errors\n"
     "  a field … that is not a column needs a name\n"
     "      write lower(said) AS said\n"
     "  'maybe' is the only text this call is compared with\n"
     "      list all answers: LLM(…) RETURNS ENUM('maybe', 'never')\n"
     "  a prompt of … tokens exceeds the model's context\n"
     "      ask about fewer or shorter fields; SET llm_overflow = 'truncate'\n"
     "      leaves out the longest, NULL ON ERROR in the call answers NULL\n"
     "  no model is set, and the default one cannot be read\n"
     "      name a .gguf file with --model or KVASIR_MODEL\n"},
    {"calibrate", "calibration", "answers that are nearly all the same",
     "A small model often prefers one answer whatever the text is. Its\n"
     "probabilities may still tell the rows apart:\n"
     "\n"
     "    CREATE TABLE talk (id INTEGER PRIMARY KEY, who TEXT, said TEXT);\n"
     "    INSERT INTO talk VALUES\n"
     "           (1, 'Ann', 'Superb!'), (2, 'Ben', 'I slept.');\n"
     "    SELECT who, LLM_PROB(LLM('Is {said} positive?', said)\n"
     "           RETURNS BOOLEAN, true) AS p FROM talk ORDER BY p;\n"
     "\n"
     "Calibration divides the probability of each answer by its prior, the\n"
     "mean of its probability over up to 64 of the inputs, and decides by the\n"
     "quotients. It is the default ('auto') for BOOLEAN and for ENUM of at most\n"
     "8 answers if there are 32 inputs or more, or priors on record. To choose\n"
     "it for one call or for all:\n"
     "\n"
     "    SELECT who, LLM('Is {said} positive?', said, calibrate => 'batch')\n"
     "           RETURNS BOOLEAN FROM talk;\n"
     "    EXPLAIN ANALYZE SELECT LLM('Is {said} positive?', said,\n"
     "           calibrate => 'batch') RETURNS BOOLEAN FROM talk;\n"
     "    SET llm_calibrate = 'off';\n"
     "\n"
     "EXPLAIN ANALYZE shows the priors and how many answers they changed.\n"
     "'batch' calibrates INTEGER BETWEEN and calls with fewer inputs as well;\n"
     "'fresh' neither reads nor records priors; 'off' takes the likeliest\n"
     "answer, which is better where one answer is right for most rows. Answers\n"
     "are stored with their probabilities: calibrating them asks only about\n"
     "inputs of the sample that are not stored. Priors are recorded in the\n"
     "database and used again by statements about fewer inputs of the same\n"
     "tables; the line below a result says how many answers they changed.\n",
     NULL, NULL},
    {"select", "from where join group having order limit union with window qualify", "queries",
     "[WITH [RECURSIVE] name [(columns)] AS (query), …]\n"
     "SELECT [DISTINCT] expression [AS name], t.*, *, …\n"
     "FROM table | 'file.csv' | (query) [AS name (columns)]\n"
     "     [INNER | LEFT] JOIN table ON condition | USING (columns)\n"
     "WHERE condition\n"
     "GROUP BY expressions\n"
     "HAVING condition\n"
     "WINDOW name AS (…), …\n"
     "QUALIFY condition\n"
     "UNION [ALL] | EXCEPT | INTERSECT another SELECT or VALUES (…), …\n"
     "ORDER BY expression [ASC | DESC] [NULLS FIRST | LAST], …\n"
     "LIMIT n [OFFSET m]\n"
     "\n"
     "    CREATE TABLE sold (day TEXT, item TEXT, n INTEGER);\n"
     "    INSERT INTO sold VALUES ('2024-05-01', 'nut', 3),\n"
     "           ('2024-05-01', 'bolt', 8), ('2024-05-02', 'nut', 4);\n"
     "    SELECT item, count(*) AS days, sum(n) AS total FROM sold\n"
     "    WHERE day >= '2024-05-01' GROUP BY item HAVING total > 5\n"
     "    ORDER BY total DESC LIMIT 10;\n"
     "    SELECT day, item, sum(n) OVER (PARTITION BY item ORDER BY day)\n"
     "    FROM sold;\n"
     "    SELECT * FROM sold QUALIFY\n"
     "           row_number() OVER (PARTITION BY item ORDER BY n DESC) = 1;\n"
     "    WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k\n"
     "                            WHERE i < 3) SELECT i FROM k;\n"
     "\n"
     "A number in GROUP BY or ORDER BY is a column's position, a name may be\n"
     "one of the select list. Names are quoted with \", texts with '. Types\n"
     "are INTEGER, REAL, TEXT, BOOLEAN, BLOB and VECTOR(n); CAST(x AS type)\n"
     "or x::type converts. .functions lists the functions.\n"
     "\n"
     "The rows nearest to a vector: v <-> w is the Euclidean distance, <=> the\n"
     "cosine distance, <#> the negative inner product.\n"
     "    WITH docs(id, v) AS (VALUES (1, '[1, 0]'::VECTOR), (2, '[3, 4]'))\n"
     "    SELECT id FROM docs ORDER BY v <=> '[1, 1]' LIMIT 1;\n"
     "\n"
     "EMBED(text) makes the vector of a text: CREATE TABLE v AS SELECT id,\n"
     "EMBED(body) AS v FROM docs, then ORDER BY v <=> EMBED('a question').\n"
     "An index makes this faster in large tables, and may miss rows:\n"
     "CREATE INDEX ON v USING ivfflat (v vector_cosine_ops).\n"
     "Answers from the texts found: LLM('Answer {q}', q, contexts =>\n"
     "(SELECT body FROM v ORDER BY v.v <=> t.v LIMIT 3)).\n",
     NULL, NULL},
    {"table", "create insert update delete drop alter returning index begin commit rollback",
     "making and changing tables",
     "    CREATE TABLE stock (id INTEGER PRIMARY KEY,\n"
     "           item TEXT NOT NULL UNIQUE,\n"
     "           n INTEGER DEFAULT 1 CHECK (n >= 0));\n"
     "    INSERT INTO stock (item, n) VALUES ('nut', 3), ('bolt', 8);\n"
     "    INSERT INTO stock (item) VALUES ('nut')\n"
     "           ON CONFLICT (item) DO UPDATE SET n = n + excluded.n;\n"
     "    UPDATE stock SET n = n - 1 WHERE item = 'bolt' RETURNING *;\n"
     "    DELETE FROM stock WHERE n = 0;\n"
     "    CREATE TABLE few AS SELECT item FROM stock WHERE n < 5;\n"
     "    CREATE VIEW many AS SELECT item FROM stock WHERE n >= 5;\n"
     "    CREATE INDEX ON stock (n);\n"
     "    ALTER TABLE few ADD COLUMN note TEXT;\n"
     "    DROP TABLE few;\n"
     "    BEGIN;\n"
     "    DELETE FROM stock;\n"
     "    ROLLBACK;\n"
     "\n"
     "A column holds values of its type and NULL; a value that would lose\n"
     "something when converted is an error. An INTEGER PRIMARY KEY is assigned\n"
     "where it is left out. A failed statement changes nothing. .schema shows\n"
     "the CREATE statements; for files see .help import.\n",
     NULL, NULL},
    {"mode", "", "how results are written", "Modes:\n", list_modes,
     "\n"
     "A box wraps long texts at a prompt if they would get very narrow columns.\n"
     "--wrap wraps always, also in line and .schema; --wrap=N to N columns;\n"
     "--no-wrap never.\n"
     "\n"
     "    .mode box --wrap=60\n"
     "    SELECT 'a long text' AS said, 1 AS n;\n"
     "    .mode csv\n"
     "    .once result.csv\n"
     "    SELECT 'a long text' AS said, 1 AS n;\n"
     "    .mode insert talk\n"
     "    SELECT 1 AS id, 'It''s me' AS said;\n"
     "    .mode box\n"
     "\n"
     "On the command line: kvasir films.kvasir --csv -c 'SELECT …'. Related:\n"
     ".headers, .types, .nullvalue, .width, .maxrows, .expanded, .pager.\n"},
    {"import", "copy", "tables from files, and back",
     "    .shell printf 'id,said\\n1,Superb!\\n2,I slept.\\n' > talk.csv\n"
     "    .import talk.csv talk\n"
     "    SELECT * FROM 'talk.csv' WHERE id = 2;\n"
     "    CREATE TABLE some AS SELECT id FROM 'talk.csv' WHERE id > 1;\n"
     "    COPY talk FROM 'talk.csv';\n"
     "    COPY (SELECT * FROM talk) TO 'copy.csv';\n"
     "\n"
     ".import makes the table if there is none, else adds rows, as COPY does.\n"
     "Delimiter, header and types are detected from the first MiB; gzipped\n"
     "files are read directly, '-' is standard input. An empty cell is NULL.\n"
     "What is detected wrongly can be given:\n"
     "\n"
     "    COPY talk TO 'talk.txt' (DELIMITER ';', HEADER off, NULL 'NA');\n"
     "    COPY talk FROM 'talk.txt' (DELIMITER ';', HEADER off, NULL 'NA');\n"
     "\n"
     "COPY reads cells by position. A cell that does not fit its column is an\n"
     "error with file, line and column, and nothing is stored. JSON, Markdown\n"
     "and other formats are written with .mode and .once: .help mode. For a\n"
     "Parquet, Excel or SQLite file, the error message says how to convert it.\n"
     "\n"
     "JSON is read likewise, objects one after the other or in one array:\n"
     "\n"
     "    .shell printf '{\"id\":3,\"said\":\"Again!\"}\\n' > more.jsonl\n"
     "    .import more.jsonl talk\n"
     "    SELECT said FROM 'more.jsonl';\n"
     "\n"
     "The keys of the first 8 MB are the columns, a nested value is its JSON\n"
     "text, and COPY matches keys to columns by name.\n",
     NULL, NULL},
    {"server", "servers endpoint url http key openai vllm ollama", "models at servers",
     "A model may be at a server with OpenAI's interface: vLLM, SGLang,\n"
     "llama-server, Ollama, a hosted API. Several URLs are several engines of\n"
     "one model.\n"
     "\n"
     "    CREATE MODEL here FROM 'http://127.0.0.1:8080' WITH (model 'm');\n"
     "    CREATE MODEL two FROM ('http://127.0.0.1:8000/v1',\n"
     "      'http://127.0.0.1:8001/v1') WITH (model 'm', timeout 60);\n"
     "    SET max_cost = 2.50;\n"
     "\n"
     ".model asks what the server is and shows how it will be asked. A key is\n"
     "never stored: key_env names an environment variable, key_file a file of\n"
     "mode 0600. An endpoint that is not on this machine, or needs a key, has\n"
     "to be allowed once: by typing its CREATE MODEL, at a question, or with\n"
     "--allow-endpoint URL,KEY. Options:\n",
     list_server_options,
     "\n"
     "Every answer is checked against its type. LLM_PROB is NULL where the\n"
     "server tells no probabilities. Answers are stored under the model's\n"
     "name, not its URL; another version forgets them.\n"},
    {"view", "", "the live view",
     "Shows an LLM statement while it runs: inputs, hit rate, tokens, memory,\n"
     "answers. At a prompt press v while a statement runs, or type .view\n"
     "SELECT …, or .view on for all that follow; on the command line --view.\n"
     "It needs a terminal. The last picture stays until a key is pressed\n"
     "(with SET view_keep = off it closes at the end); .view last opens it\n"
     "again.\n"
     "\n"
     ".view record FILE records the next LLM statement, also without a\n"
     "terminal; kvasir --mock FILE shows it.\n"
     "\n",
     list_view_keys, NULL},
    {"set", "reset", "settings and variables",
     "    SET psm = 'off';\n"
     "    SET kv_memory = '2GB';\n"
     "    SHOW psm;\n"
     "    RESET psm;\n"
     "    RESET ALL;\n"
     "    .settings kv%\n"
     "    .help set psm\n"
     "\n"
     "Settings last until the shell ends; ~/.config/kvasir/init.sql is read at\n"
     "each start of a prompt. .settings lists them with values, .help set NAME\n"
     "explains one. SET rule.NAME = off switches a rule of the planner off;\n"
     "SELECT * FROM kvasir_rules lists the rules.\n"
     "\n"
     ".set makes a variable of SQL, as --set does on the command line:\n"
     "\n"
     "    .set least=3\n"
     "    SELECT x FROM generate_series(1, 5) AS g(x) WHERE x >= :least;\n",
     NULL, NULL},
};

const help_page *help_pages(size_t *count) {
    *count = BASE_COUNT(pages);
    return pages;
}

void help_page_print(const help_page *page, buf *out) {
    buf_append_c(out, page->text);
    if (page->list)
        page->list(out);
    if (page->more)
        buf_append_c(out, page->more);
}
