/*
 * test_exec_cache.c - what a second session finds: answers, KV, history; after kills, flipped bits
 * and a changed model file; with another process at work.
 *
 * Answers come from test:hash, but for the KV of a real model, which is skipped where there is none
 * (KVASIR_MODEL or the default one).
 */
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "exec_cache_int.h"
#include "exec_other_int.h"

enum { ROWS = 60 };

static const char question[] = "SELECT id, LLM('Is {body} long?', body, topic, model => m) "
                               "RETURNS ENUM('yes', 'no', 'maybe') FROM t ORDER BY id";

/* ---- sessions -------------------------------------------------------------------------------- */

/* One session: opens, runs what is given, closes; the last one's outcome. */
static outcome session(const char *set, const char *sql) {
    db *d = open_path();
    if (set)
        run_ok(d, set);
    outcome o = run_ok(d, sql);
    db_close(d);
    return o;
}

static void make_table(const char *model) {
    buf sql = {0};
    db *d = open_path();
    buf_printf(&sql, "CREATE MODEL m FROM '%s'", model);
    run_ok(d, sql.p);
    buf_clear(&sql);
    run_ok(d, "CREATE TABLE t (id INTEGER PRIMARY KEY, topic TEXT, body TEXT)");
    for (int i = 0; i < ROWS; i++)
        buf_printf(&sql,
                   "%s(%d, 'A long evening with many guests, number %d of them all, who talk about "
                   "the river, the mill, the price of salt and the bridge that was never built', "
                   "'body %d')",
                   i ? ", " : "INSERT INTO t VALUES ", i, i % 3, i * 7919 % 1000);
    run_ok(d, sql.p);
    buf_free(&sql);
    db_close(d);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_second_session_asks_nothing_again(void **state) {
    (void)state;
    make_table("test:hash");
    outcome first = session(NULL, question), second = session(NULL, question);
    assert_int_equal(first.sum.llm.requests, ROWS);
    assert_int_equal(second.sum.llm.requests, 0);
    assert_int_equal(second.sum.llm.answers_stored, ROWS);
    assert_true(first.hash == second.hash);
    outcome off = session("SET answer_cache = off", question);
    assert_int_equal(off.sum.llm.requests, ROWS);
    assert_true(off.hash == first.hash);
    session(NULL, "CLEAR CACHE ANSWERS FOR MODEL m");
    assert_int_equal(
        session(NULL, "SELECT entries FROM kvasir_cache WHERE space = 'answers'").first, 0);
    assert_int_equal(session(NULL, question).sum.llm.requests, ROWS);
}

/* What a call's options say of sampling is as much part of an answer's identity as a setting. */
static void answers_drawn_otherwise_are_others(void **state) {
    (void)state;
    static const struct {
        const char *set, *options;
        uint64_t known;
    } steps[] = {
        {NULL, "", 0},
        {NULL, ", temperature => 0.7", 0},
        {NULL, ", temperature => 0.7", ROWS},
        {"SET temperature = 0.7", "", ROWS},
        {"SET temperature = 0.7", ", temperature => 0", ROWS}, /* the first one's */
        {"SET seed = 1", "", ROWS},                            /* not drawn at all */
        {"SET seed = 1", ", temperature => 0.7", 0},
        {NULL, ", max_tokens => 5", 0},
        {NULL, ", stop => '.'", 0},
        {NULL, ", stop => ','", 0},
        {NULL, ", stop => '.', stop => ','", 0},
        {"SET stop = '.'", "", ROWS},
        {"SET stop = '.'", ", stop => ','", ROWS},
    };
    make_table("test:hash");
    for (size_t i = 0; i < BASE_COUNT(steps); i++) {
        buf sql = {0};
        buf_printf(&sql, "SELECT LLM('Say {body}', body, model => m%s) FROM t", steps[i].options);
        outcome o = session(steps[i].set, sql.p);
        assert_int_equal(o.sum.llm.answers_stored, steps[i].known);
        assert_int_equal(o.sum.llm.requests, ROWS - steps[i].known);
        buf_free(&sql);
    }
}

/* Blended contexts give other answers, by share and rule. */
static void blended_answers_are_others(void **state) {
    (void)state;
    static const struct {
        const char *set, *options;
        uint64_t known;
    } steps[] = {
        {NULL, "", 0},
        {"SET chunk_kv = 'blend'", "", 0},
        {"SET chunk_kv = 'blend'", ", chunk_kv => 'exact'", ROWS},
        {NULL, ", chunk_kv => 'blend'", ROWS},
        {"SET blend_share = 0.2", ", chunk_kv => 'blend'", 0},
        {"SET blend_share = 0.2", "", ROWS}, /* no effect on what is exact */
        {"SET blend_rule = 'question'", ", chunk_kv => 'blend'", 0},
        {"SET blend_rule = 'question'", ", chunk_kv => 'blend'", ROWS},
    };
    make_table("test:hash");
    for (size_t i = 0; i < BASE_COUNT(steps); i++) {
        buf sql = {0};
        buf_printf(&sql,
                   "SELECT LLM('Say {body}', body, contexts => '[\"a\", \"b\"]', model => m%s) "
                   "FROM t",
                   steps[i].options);
        outcome o = session(steps[i].set, sql.p);
        assert_int_equal(o.sum.llm.answers_stored, steps[i].known);
        assert_int_equal(o.sum.llm.requests, ROWS - steps[i].known);
        buf_free(&sql);
    }
}

/* Which fields are left out of a prompt that is too long is not told by its tokens. */
static void prompts_cut_otherwise_are_others(void **state) {
    (void)state;
    static const char truncate[] = "SET llm_overflow = 'truncate'",
                      named[] = "SELECT LLM('Is {long} it?', long, longer, model => m) FROM l",
                      plain[] = "SELECT LLM('Is long it?', long, longer, model => m) FROM l";
    make_table("test:hash");
    session(NULL, "CREATE TABLE l AS SELECT repeat('so ', 5000) AS long, "
                  "repeat('so ', 6000) AS longer");
    outcome first = session(truncate, named);
    assert_int_equal(first.sum.llm.prompts_shortened, 1);
    assert_int_equal(session(truncate, plain).sum.llm.answers_stored, 0);
    assert_int_equal(session(truncate, named).sum.llm.answers_stored, 1);
    assert_int_equal(session(truncate, plain).sum.llm.answers_stored, 1);
    session(NULL, question); /* what is short is nobody's own */
    assert_int_equal(session(truncate, question).sum.llm.answers_stored, ROWS);
}

static void the_history_says_what_was_asked(void **state) {
    (void)state;
    make_table("test:hash");
    session(NULL, question);
    session(NULL, "SELECT count(*) FROM t"); /* no model: no record */
    session(NULL, question);
    db *d = open_path();
    assert_int_equal(run_ok(d, "SELECT count(*) FROM kvasir_statements").first, 2);
    assert_int_equal(
        run_ok(d, "SELECT answers_stored FROM kvasir_statements WHERE number = 2").first, ROWS);
    assert_int_equal(
        run_ok(d, "SELECT count(*) FROM kvasir_statements WHERE text LIKE 'SELECT id, LLM(%' "
                  "AND result = 'done' AND row_count = 60 AND ended_at > '2020' AND seconds >= 0")
            .first,
        2);
    assert_int_equal(run_ok(d, "SELECT inputs FROM kvasir_statements").first, ROWS);
    db_close(d);
}

static void a_killed_statement_resumes_with_the_same_answers(void **state) {
    (void)state;
    make_table("test:hash:slow");
    outcome fresh = session("SET cache = off", question);
    for (int round = 0; round < 3; round++) {
        pid_t pid = start_other("0", "SET llm_window = 4", question); /* passes are short */
        usleep((useconds_t)(250000 + round * 110000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    outcome rerun = session(NULL, question);
    assert_true(rerun.hash == fresh.hash);
    assert_int_equal(rerun.sum.llm.answers_stored + rerun.sum.llm.requests, ROWS);
    assert_true(rerun.sum.llm.answers_stored > 0);
    assert_int_equal(session(NULL, question).sum.llm.answers_stored, ROWS);
}

static void flip_bits(const char *file, int count, uint64_t seed) {
    int fd = open(file, O_RDWR | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    for (int i = 0; i < count; i++) {
        seed = hash_mix(seed, (uint64_t)i + 1);
        off_t at = (off_t)(seed % (uint64_t)st.st_size);
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1u << (seed >> 61));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void flipped_bits_change_no_answer(void **state) {
    (void)state;
    char file[128];
    make_table("test:hash");
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    outcome fresh = session("SET cache = off", question);
    session(NULL, question);
    for (int round = 0; round < 10; round++) {
        flip_bits(file, 1 << round, (uint64_t)round);
        assert_true(session(NULL, question).hash == fresh.hash);
    }
}

static void two_processes_share_a_cache(void **state) {
    (void)state;
    make_table("test:hash:slow");
    outcome fresh = session("SET cache = off", question);
    pid_t others[2] = {start_other("0", question, NULL), start_other("0", question, NULL)};
    usleep(200000);
    db *d = open_path(); /* and a third is not held up by them */
    assert_int_equal(run_ok(d, "SELECT count(*) FROM t").first, ROWS);
    run_ok(d, "INSERT INTO t VALUES (100, 'x', NULL)");
    run_ok(d, "DELETE FROM t WHERE id = 100");
    assert_true(run_ok(d, question).hash == fresh.hash);
    for (int i = 0; i < 2; i++)
        wait_other(others[i]);
    assert_int_equal(run_ok(d, question).sum.llm.answers_stored, ROWS);
    db_close(d);
}

/* The file may not grow: what is asked is answered, and that it is not kept is told, once. */
static void a_cache_that_fails_is_told_of(void **state) {
    (void)state;
    char file[128];
    struct stat st;
    struct rlimit usual, limit;
    make_table("test:hash");
    session(NULL, question);
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    assert_int_equal(stat(file, &st) | getrlimit(RLIMIT_FSIZE, &usual), 0);
    limit = (struct rlimit){(rlim_t)st.st_size, usual.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    db *d = open_path();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    static const char *const steps[] = {"SELECT LLM('What of {body}?', body, model => m) FROM t",
                                        "SELECT LLM('And {body}?', body, model => m) FROM t",
                                        "SHOW CACHE", /* waits for what was put */
                                        "SELECT LLM('What of {body}?', body, model => m) FROM t",
                                        question};
    int told = 0;
    outcome o[BASE_COUNT(steps)];
    for (size_t i = 0; i < BASE_COUNT(steps); i++) {
        o[i] = run_ok(d, steps[i]);
        told += strstr(o[i].notice, "are not kept any more") != NULL;
    }
    assert_int_equal(told, 1);
    assert_true(o[0].hash == o[3].hash);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, handler);
    db_close(d);
    assert_string_equal(session(NULL, question).notice, "");
}

/* Nothing but the first two pages of a file can be written: a query learns what its calls cost and
 * which order of fields is best, and answers although neither can be put down. */
static void what_is_learned_need_not_be_kept(void **state) {
    (void)state;
    static const char ask[] = "SELECT LLM('Is {body} of {other}?', body, id AS other, model => m) "
                              "RETURNS BOOLEAN FROM t";
    struct rlimit usual, limit;
    make_table("test:hash");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    limit = (struct rlimit){2 * 4096, usual.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    db *d = open_path();
    run_ok(d, "SET cache = off");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    outcome o = run_ok(d, ask);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, handler);
    db_close(d);
    assert_true(o.hash == session(NULL, ask).hash);
    assert_non_null(strstr(o.notice, "cannot store the measured token counts of LLM calls"));
}

/* This program's own comes before the C library's. */
static bool nobody;

int getpwuid_r(uid_t uid, struct passwd *entry, char *bytes, size_t n, struct passwd **out) {
    (void)uid;
    snprintf(bytes, n, "%s", directory);
    *entry = (struct passwd){.pw_dir = bytes};
    *out = nobody ? NULL : entry;
    return 0;
}

/* Of a user without any place for a cache: nothing is kept, least of all where others may look. */
static void who_has_no_home_has_no_cache(void **state) {
    (void)state;
    static const char ask[] = "SELECT LLM('Is {x} long?', 'a river' AS x, model => 'test:hash') "
                              "RETURNS BOOLEAN";
    char file[128], *kept[2];
    static const char *const names[] = {"HOME", "XDG_CACHE_HOME"};
    for (int i = 0; i < 2; i++) {
        kept[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
        unsetenv(names[i]);
    }
    db_options options = {.path = NULL};
    for (int round = 0; round < 2; round++) {
        db *d;
        err e;
        nobody = round == 0;
        assert_int_equal(db_open(&options, &d, &e), 0);
        outcome first = run_ok(d, ask), again = run_ok(d, ask);
        bool told = strstr(first.notice, "no place for a cache") != NULL;
        assert_int_equal(told, nobody);
        assert_string_equal(again.notice, ""); /* once */
        assert_int_equal(again.sum.llm.answers_stored, !nobody);
        db_close(d);
        snprintf(file, sizeof file, "%s/.cache/kvasir/cache.mdb", directory);
        assert_int_equal(access(file, F_OK) == 0, !nobody);
    }
    nobody = false;
    for (int i = 0; i < 2; i++) {
        if (kept[i])
            setenv(names[i], kept[i], 1);
        free(kept[i]);
    }
}

static void files_in_another_encoding_are_told_of(void **state) {
    (void)state;
    char file[128], sql[300];
    snprintf(file, sizeof file, "%s/latin.csv", directory);
    FILE *f = fopen(file, "we");
    assert_non_null(f);
    fputs("id,name\n1,Ann\n2,Ren\xe9\n3,\xc4nne\n", f);
    fclose(f);
    db *d = open_path();
    snprintf(sql, sizeof sql, "SELECT count(*) FROM '%s'", file);
    outcome o = run_ok(d, sql);
    assert_int_equal(o.first, 3);
    snprintf(sql, sizeof sql, "SELECT name FROM '%s'", file);
    o = run_ok(d, sql);
    assert_non_null(strstr(o.notice, "2 cells are not UTF-8, the first on line 3"));
    run_ok(d, "CREATE TABLE people (id INTEGER, name TEXT)");
    snprintf(sql, sizeof sql, "COPY people FROM '%s'", file);
    o = run_ok(d, sql);
    assert_non_null(strstr(o.notice, "not UTF-8"));
    o = run_ok(d, "SELECT count(*) FROM people WHERE name = 'Ren\xc3\xa9'");
    assert_int_equal(o.first, 1);
    assert_string_equal(o.notice, "");
    db_close(d);
}

/* ---- with a real model ----------------------------------------------------------------------- */

#ifdef __SANITIZE_THREAD__
enum { UNDER_TSAN = true };
#else
enum { UNDER_TSAN = false };
#endif

static void copy_file(const char *from, const char *to) {
    static char bytes[1 << 20];
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    assert_true(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* One bit of one weight. */
static void change_weight(const char *file) {
    int fd = open(file, O_RDWR | O_CLOEXEC);
    struct stat st;
    unsigned char byte = 0;
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &byte, 1, st.st_size - 4096) == 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 4096), 1);
    close(fd);
}

static void warmed_prefixes_are_found_and_go_with_their_model(void **state) {
    (void)state;
    static const char few[] = "SELECT id, LLM('Is {body} long?', body, topic, model => m) "
                              "RETURNS ENUM('yes', 'no') FROM v ORDER BY id";
    char model[4096], copy[128];
    if (!find_model(model))
        skip();
    snprintf(copy, sizeof copy, "%s/model.gguf", directory);
    copy_file(model, copy);
    make_table(copy);
    session(NULL, "CREATE VIEW v AS SELECT * FROM t WHERE id < 12");
    outcome fresh = session("SET cache = off", few);
    outcome warm = session(NULL, "WARM v USING LLM('Is {body} long?', body, topic, model => m) "
                                 "RETURNS ENUM('yes', 'no')");
    assert_int_equal(warm.hash, 1); /* no rows */
    assert_true(warm.sum.llm.computed_tokens > 0);
    assert_true(warm.sum.llm.computed_tokens < fresh.sum.llm.computed_tokens);
    assert_int_equal(
        session(NULL, "SELECT entries FROM kvasir_cache WHERE space = 'answers'").first, 0);
    assert_true(session(NULL, "SELECT tokens FROM kvasir_prefixes").first >= 32);
    outcome second = session(NULL, few);
    assert_true(second.sum.llm.reused_disk >= 32);
    assert_int_equal(second.sum.llm.answers_stored, 0);
    assert_true(second.hash == fresh.hash);
    assert_string_equal(second.notice, "");

    static const char pinned[] = "SELECT pinned FROM kvasir_cache WHERE space = 'kv'";
    assert_int_equal(session(NULL, pinned).first, 0);
    outcome pin = session(NULL, "PIN v USING LLM('Is {body} long?', body, topic, model => m) "
                                "RETURNS ENUM('yes', 'no')");
    assert_non_null(strstr(pin.notice, "PIN \"v\": "));
    assert_int_equal(pin.hash, 1);
    assert_true(pin.sum.llm.reused_disk >= 32);
    int64_t blocks = session(NULL, pinned).first;
    assert_true(blocks >= 1);
    assert_int_equal(session(NULL, "SELECT entries FROM kvasir_cache").first, blocks);
    session(NULL, "UNPIN V");
    assert_int_equal(session(NULL, pinned).first, 0);

    change_weight(copy); /* another file of the same name */
    outcome changed = session(NULL, few);
    assert_non_null(strstr(changed.notice, "changed"));
    assert_int_equal(changed.sum.llm.reused_disk, 0);
    assert_int_equal(changed.sum.llm.answers_stored, 0);
    outcome same = session(NULL, few);
    assert_string_equal(same.notice, "");
    assert_int_equal(same.sum.llm.answers_stored, 12);

    change_weight(copy); /* as it was: so is what is stored of it */
    outcome back = session(NULL, few);
    assert_non_null(strstr(back.notice, "changed"));
    assert_int_equal(back.sum.llm.answers_stored, 12);
    assert_true(back.hash == fresh.hash);
    session(NULL, "CLEAR CACHE FOR MODEL m"); /* whatever the file was */
    assert_int_equal(session(NULL, "SELECT sum(entries) FROM kvasir_cache").first, 0);
}

/* One question of a database in memory, whose cache is not its own. */
static outcome ask_in_memory(const char *model) {
    buf sql = {0};
    db_options options = {.path = NULL};
    db *d;
    err e;
    assert_int_equal(db_open(&options, &d, &e), 0);
    buf_printf(&sql, "SELECT LLM('Is {x} long?', 'a river' AS x, model => '%s') RETURNS BOOLEAN",
               model);
    outcome o = run_ok(d, sql.p);
    buf_free(&sql);
    db_close(d);
    return o;
}

/* Each with its own file open, which differ in a bit, on one cache: by turns, three times. */
static void two_processes_on_two_files(const char *two) {
    static const char count[] = "SELECT entries FROM kvasir_cache WHERE space = 'answers'";
    static const char one[] = "SELECT LLM('Is {body} short?', body, model => m) RETURNS BOOLEAN "
                              "FROM t WHERE id < 3";
    buf use = {0};
    session(NULL, "CLEAR CACHE");
    db *d = open_path();
    assert_int_equal(run_ok(d, one).sum.llm.requests, 3);
    buf_printf(&use, "SET model = '%s'", two);
    wait_other(start_other("0", use.p,
                           "SELECT LLM('Is {body} short?', body) RETURNS BOOLEAN "
                           "FROM t WHERE id < 3"));
    assert_int_equal(run_ok(d, count).first, 6);
    assert_int_equal(run_ok(d, one).sum.llm.answers_stored, 3);
    wait_other(start_other("0", use.p,
                           "SELECT LLM('Is {body} short?', body) RETURNS BOOLEAN "
                           "FROM t WHERE id < 4"));
    assert_int_equal(run_ok(d, count).first, 7); /* it found its own three */
    assert_int_equal(run_ok(d, one).sum.llm.answers_stored, 3);
    buf_free(&use);
    db_close(d);
}

/* Loads the model a dozen times: under ThreadSanitizer the tests beside it, which load it a few
 * times, are enough. */
static void answers_are_believed_of_the_file_that_gave_them(void **state) {
    (void)state;
    char model[4096], one[128], two[128], other_file[128];
    if (UNDER_TSAN || !find_model(model))
        skip();
    const char *usual = getenv("XDG_CACHE_HOME");
    char *kept = usual ? strdup(usual) : NULL;
    setenv("XDG_CACHE_HOME", directory, 1);
    snprintf(one, sizeof one, "%s/one.gguf", directory);
    snprintf(two, sizeof two, "%s/two.gguf", directory);
    copy_file(model, one);
    assert_int_equal(ask_in_memory(one).sum.llm.answers_stored, 0);
    assert_int_equal(ask_in_memory(one).sum.llm.answers_stored, 1);

    copy_file(model, two); /* the same bytes */
    assert_int_equal(ask_in_memory(two).sum.llm.answers_stored, 1);
    change_weight(two);
    outcome other = ask_in_memory(two);
    assert_int_equal(other.sum.llm.answers_stored, 0);
    assert_non_null(strstr(other.notice, "changed"));
    assert_int_equal(ask_in_memory(two).sum.llm.answers_stored, 1);
    other = ask_in_memory(one);
    assert_int_equal(other.sum.llm.answers_stored, 1);
    assert_string_equal(other.notice, "");

    make_table(one); /* its engine is open when the file changes */
    db *d = open_path();
    static const char few[] = "SELECT LLM('Is {body} long?', body, model => m) RETURNS BOOLEAN "
                              "FROM t WHERE id < 2";
    run_ok(d, few);
    assert_int_equal(run_ok(d, few).sum.llm.answers_stored, 2);
    change_weight(one);
    other = run_ok(d, few);
    assert_int_equal(other.sum.llm.answers_stored, 0);
    assert_non_null(strstr(other.notice, "changed"));
    snprintf(other_file, sizeof other_file, "%s/other.gguf", directory);
    copy_file(model, other_file); /* replaced by what it was first */
    assert_int_equal(rename(other_file, one), 0);
    other = run_ok(d, few);
    assert_int_equal(other.sum.llm.answers_stored, 2);
    assert_non_null(strstr(other.notice, "changed"));
    db_close(d);
    assert_int_equal(session(NULL, few).sum.llm.answers_stored, 2);

    buf sql = {0}; /* other bytes than two's: nothing is shared */
    buf_printf(&sql,
               "SELECT LLM('Is {body} long?', body, model => m) RETURNS BOOLEAN, "
               "LLM('Is {body} long?', body, model => '%s') RETURNS BOOLEAN "
               "FROM t WHERE id < 2",
               two);
    session(NULL, "CLEAR CACHE");
    assert_int_equal(session(NULL, sql.p).sum.llm.requests, 4);
    assert_int_equal(session(NULL, sql.p).sum.llm.answers_stored, 4);
    buf_free(&sql);
    two_processes_on_two_files(two);
    if (kept)
        setenv("XDG_CACHE_HOME", kept, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(kept);
}

/* Changes one digit of what the side files say that this machine computes. */
static int tamper(const char *name, const struct stat *st, int flag, struct FTW *ftw) {
    static char text[4096];
    (void)st, (void)ftw;
    if (flag != FTW_F || !strstr(name, "/model-"))
        return 0;
    FILE *f = fopen(name, "r+e");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    char *digit = strchr(strstr(text, "probe_"), '.') + 5;
    *digit = *digit == '0' ? '1' : '0';
    rewind(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return 0;
}

static void a_machine_that_computes_otherwise_is_found_out(void **state) {
    (void)state;
    static const char few[] = "SELECT id, LLM('Is {body} long?', body, topic, model => m) "
                              "RETURNS ENUM('yes', 'no') FROM t WHERE id < 6 ORDER BY id";
    static const char more[] = "SELECT id, LLM('Is {body} long?', body, topic, model => m) "
                               "RETURNS ENUM('yes', 'no') FROM t WHERE id < 9 ORDER BY id";
    char model[4096];
    if (!find_model(model))
        skip();
    const char *usual = getenv("XDG_CACHE_HOME");
    char *kept = usual ? strdup(usual) : NULL;
    setenv("XDG_CACHE_HOME", directory, 1);
    make_table(model);
    session(NULL, few);
    outcome stored = session(NULL, few);
    assert_int_equal(stored.sum.llm.answers_stored, 6);
    assert_int_equal(stored.sum.llm.computed_tokens, 0);
    outcome fresh = session("SET answer_cache = off", more);
    nftw(directory, tamper, 8, FTW_PHYS);
    outcome again = session(NULL, more);
    assert_true(again.hash == fresh.hash);
    assert_int_equal(again.sum.llm.answers_stored, 6); /* the right record's, after a false start */
    assert_int_equal(session(NULL, more).sum.llm.answers_stored, 9);
    if (kept)
        setenv("XDG_CACHE_HOME", kept, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(kept);
}

/* ---- set up ---------------------------------------------------------------------------------- */

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_directory, remove_directory)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(a_second_session_asks_nothing_again),
        TEST(answers_drawn_otherwise_are_others),
        TEST(blended_answers_are_others),
        TEST(prompts_cut_otherwise_are_others),
        TEST(the_history_says_what_was_asked),
        TEST(a_killed_statement_resumes_with_the_same_answers),
        TEST(flipped_bits_change_no_answer),
        TEST(two_processes_share_a_cache),
        TEST(a_cache_that_fails_is_told_of),
        TEST(what_is_learned_need_not_be_kept),
        TEST(who_has_no_home_has_no_cache),
        TEST(files_in_another_encoding_are_told_of),
        TEST(warmed_prefixes_are_found_and_go_with_their_model),
        TEST(answers_are_believed_of_the_file_that_gave_them),
        TEST(a_machine_that_computes_otherwise_is_found_out),
    };
    if (argc > 1)
        return be_other(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
