/*
 * crash_mixed.c - SIGKILL of one to three processes that run mixed SQL in one database: whatever
 * was acknowledged is there, the statement at work at the kill wholly or not at all, and nothing
 * else.
 *
 * A writer runs its script and acknowledges each statement on a pipe once its result is complete,
 * which is after the commit. The judge repeats what was acknowledged in a database in memory that
 * nothing disturbs and whose answers come from the model alone, the writer's reference, and
 * compares: results while it repeats, then all contents, while the other writers still run. Half of
 * the writers are killed after a random time, half at a random system call of their own.
 *
 *   KVASIR_CRASH_ROUNDS=2500 crash_mixed [SEED]       a round is one to three kills
 *
 * When something differs, the files stay, and both contents are written beside them.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "mixed_int.h"

#include "crash_int.h"

enum { WRITERS = 3, ROUNDS_OF_A_DATABASE = 25, LIFE_MS = 150, PATIENCE_MS = 60000, CALLS = 300 };

/* What a writer sends when a statement has ended. */
typedef struct ack {
    int64_t number;
    int64_t changes;
    int64_t code; /* of the error, or 0 */
} ack;

typedef struct writer {
    script script;    /* as the child runs it */
    script repeated;  /* the same with other files, as the reference runs it */
    db *reference;    /* has run what was acknowledged, and found to be there, of the script */
    int64_t next;     /* number of the first statement that the reference has not run */
    int64_t at_work;  /* number of the first statement not acknowledged before the last kill */
    pid_t pid;        /* 0: not running */
    int acks;         /* the pipe's end to read from */
    double killed_ms; /* when it is killed, at the latest */
} writer;

static writer writers[WRITERS];
static const char *database;
static char folder[280]; /* of the files of COPY */
static int kills, kills_at_calls, rounds, in_flight_kept;
static int64_t acknowledged;

static db *open_db(const char *path, bool cached) {
    err e;
    db *d = NULL;
    int64_t changes;
    db_options options = {.path = path, .model = "test:hash"};
    CHECK(db_open(&options, &d, &e) == 0, "%s", e.message);
    const char *set[] = {"SET busy_timeout = 60000", "SET llm_calibrate = 'off'",
                         cached ? "SET cache = on" : "SET cache = off"};
    for (size_t i = 0; i < BASE_COUNT(set); i++)
        CHECK(run_statement(d, str_from(set[i]), NULL, &changes) == 0, "%s", set[i]);
    return d;
}

/* ---- the child ------------------------------------------------------------------------------- */

/* `what`: seed, writer, first statement, and the system call to die at (0: none) and where. */
static int run_writer(const char *path, const char *what) {
    script s = {.dir = folder};
    int64_t n;
    int nth, where;
    char files[16];
    CHECK(sscanf(what, "%" SCNu64 "/%d/%" SCNd64 "/%d/%d", &s.seed, &s.writer, &n, &nth, &where) ==
              5,
          "what to write: %s", what);
    snprintf(files, sizeof files, "w%d_", s.writer);
    s.files = files;
    snprintf(folder, sizeof folder, "%s.files", path);
    point_arm(nth, (point)where);
    db *d = open_db(path, true);
    buf text = {0};
    for (;; n++) {
        ack a = {.number = n};
        buf_clear(&text);
        script_statement(&s, n, &text);
        a.code = run_statement(d, buf_str(&text), NULL, &a.changes);
        CHECK(write(STDOUT_FILENO, &a, sizeof a) == sizeof a, "cannot acknowledge");
    }
}

static void start_writer(writer *w) {
    int up[2];
    char what[96];
    bool at_call = crash_random(2);
    int nth = at_call ? 1 + (int)crash_random(CALLS) : 0;
    CHECK(pipe2(up, O_CLOEXEC) == 0, "pipe");
    snprintf(what, sizeof what, "%" PRIu64 "/%d/%" PRId64 "/%d/%" PRIu32, w->script.seed,
             w->script.writer, w->next, nth, crash_random(POINTS));
    w->killed_ms = clock_ms() + (at_call ? PATIENCE_MS : crash_random(LIFE_MS));
    kills_at_calls += at_call;
    w->acks = up[0];
    w->pid = fork();
    CHECK(w->pid >= 0, "fork");
    if (w->pid == 0) {
        dup2(up[1], STDOUT_FILENO);
        execl("/proc/self/exe", "writer", "--write", database, what, (char *)NULL);
        _exit(127);
    }
    close(up[1]);
}

/* ---- the judge ------------------------------------------------------------------------------- */

static void statement_of(const writer *w, int64_t n, buf *out) {
    buf_clear(out);
    script_statement(&w->script, n, out);
}

static void save(const char *name, const buf *contents) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f)
        fwrite(contents->p, 1, contents->n, f);
    if (f)
        fclose(f);
}

/* Ends the test: what is there is neither the reference's contents nor these after the statement
 * at work. */
static void differs(const writer *w, const buf *there, const buf *expected) {
    buf text = {0};
    save("there.txt", there);
    save("expected.txt", expected);
    for (int64_t n = BASE_MAX(w->at_work - 2 * BLOCK, 0); n <= w->at_work; n++) {
        statement_of(w, n, &text);
        fprintf(stderr, "%s%" PRId64 ": %s\n", n == w->at_work ? "at work " : "", n, text.p);
    }
    CHECK(false, "kill %d, writer %d: see %s, diff there.txt expected.txt", kills, w->script.writer,
          folder);
}

/* Runs the next statement in the reference. */
static void repeat(writer *w, const ack *a) {
    buf text = {0};
    int64_t changes;
    script_statement(&w->repeated, w->next, &text);
    int code = run_statement(w->reference, buf_str(&text), NULL, &changes);
    CHECK(!a || (a->number == w->next && a->code == code && a->changes == changes),
          "kill %d, writer %d, statement %" PRId64 " (%s): error %" PRId64 ", %" PRId64
          " changes; expected statement %" PRId64 ", error %d, %" PRId64 " changes",
          kills, w->script.writer, a->number, text.p, a->code, a->changes, w->next, code, changes);
    buf_free(&text);
    w->next++;
}

static bool is_next(const writer *w, const char *beginning) {
    buf text = {0};
    statement_of(w, w->next, &text);
    bool is = strncmp(text.p, beginning, strlen(beginning)) == 0;
    buf_free(&text);
    return is;
}

static void read_file(const script *s, int i, buf *out) {
    buf path = {0};
    char block[65536];
    size_t n;
    script_file(s, i, &path);
    FILE *f = fopen(path.p, "rb");
    buf_clear(out);
    while (f && (n = fread(block, 1, sizeof block, f)) > 0)
        buf_append(out, block, n);
    if (f)
        fclose(f);
    else
        buf_append_c(out, "no file");
    buf_free(&path);
}

static bool files_agree(const writer *w, buf *there, buf *expected) {
    bool agree = true;
    for (int i = 0; i < SCRIPT_FILES && agree; i++) {
        read_file(&w->script, i, there);
        read_file(&w->repeated, i, expected);
        agree = str_equal(buf_str(there), buf_str(expected));
    }
    return agree;
}

/* A file that COPY TO writes is the old or the new one, whether or not its transaction counts. */
static void judge_files(writer *w) {
    buf there = {0}, expected = {0};
    if (!files_agree(w, &there, &expected)) {
        if (is_next(w, "COPY"))
            repeat(w, NULL);
        if (!files_agree(w, &there, &expected))
            differs(w, &there, &expected);
        in_flight_kept++;
    }
    buf_free(&there);
    buf_free(&expected);
}

static bool agrees(const writer *w, const buf *there, buf *expected) {
    buf_clear(expected);
    contents_append(w->reference, w->script.writer, expected);
    return str_equal(buf_str(there), buf_str(expected));
}

static void judge_contents(writer *w) {
    buf there = {0}, expected = {0};
    int64_t changes;
    db *d = open_db(database, true);
    contents_append(d, w->script.writer, &there);
    contents_check_shared(d);
    db_close(d);
    bool inside = db_in_transaction(w->reference);
    bool same = (!inside || is_next(w, "COMMIT")) && agrees(w, &there, &expected);
    if (same && inside) { /* the COMMIT at work took place */
        repeat(w, NULL);
        in_flight_kept++;
    } else if (inside) {
        CHECK(run_statement(w->reference, STR("ROLLBACK"), NULL, &changes) == 0, "ROLLBACK");
        same = agrees(w, &there, &expected);
        w->next += BLOCK - w->next % BLOCK;
    } else if (!same) {
        repeat(w, NULL);
        same = agrees(w, &there, &expected);
        in_flight_kept++;
    }
    if (!same)
        differs(w, &there, &expected);
    buf_free(&there);
    buf_free(&expected);
}

/* After a writer's death. A killed process ends only when its system call does, which may be the
 * synced write of its commit: before waitpid reports it, readers can still see the state before. */
static void judge(writer *w) {
    int status;
    ack a;
    kills++;
    CHECK(waitpid(w->pid, &status, 0) == w->pid && WIFSIGNALED(status) &&
              WTERMSIG(status) == SIGKILL,
          "writer %d ended by itself with status %d", w->script.writer, status);
    w->pid = 0;
    for (; read(w->acks, &a, sizeof a) == sizeof a; acknowledged++)
        repeat(w, &a);
    close(w->acks);
    w->at_work = w->next;
    judge_files(w);
    judge_contents(w);
    contents_check(database);
}

/* Kills the writers whose time has come and judges those that have died, until none runs. */
static void await_deaths(int n) {
    for (int running = n; running > 0;) {
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        for (int i = 0; i < n; i++) {
            writer *w = &writers[i];
            siginfo_t dead = {0};
            if (!w->pid)
                continue;
            if (clock_ms() >= w->killed_ms)
                kill(w->pid, SIGKILL);
            CHECK(waitid(P_PID, (id_t)w->pid, &dead, WEXITED | WNOHANG | WNOWAIT) == 0, "waitid");
            if (dead.si_pid == 0)
                continue;
            judge(w);
            running--;
        }
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* An empty database, and new scripts. */
static void begin_database(void) {
    static char files[WRITERS][2][16];
    crash_remove(database);
    crash_remove(folder);
    CHECK(mkdir(folder, 0700) == 0, "mkdir %s", folder);
    script_make_inputs(folder);
    for (int i = 0; i < WRITERS; i++) {
        writer *w = &writers[i];
        snprintf(files[i][0], sizeof files[i][0], "w%d_", i);
        snprintf(files[i][1], sizeof files[i][1], "r%d_", i);
        db_close(w->reference);
        *w = (writer){.reference = open_db(NULL, false)};
        w->script = (script){crash_random(1u << 30), i, folder, files[i][0]};
        w->repeated = w->script;
        w->repeated.files = files[i][1];
    }
}

/* When no process has it open. */
static void check_cache(void) {
    err e;
    buf path = {0};
    buf_printf(&path, "%s/cache.mdb", database);
    CHECK(access(path.p, F_OK) != 0 || cache_check(path.p, &e) == 0, "%s", e.message);
    buf_free(&path);
}

static void round_of_killing(const char *path) {
    if (rounds == 0) {
        database = path;
        snprintf(folder, sizeof folder, "%s.files", path);
        setenv("XDG_CACHE_HOME", folder, 1); /* of databases in memory */
    }
    if (rounds++ % ROUNDS_OF_A_DATABASE == 0)
        begin_database();
    int n = 1 + (int)crash_random(WRITERS);
    for (int i = 0; i < n; i++)
        start_writer(&writers[i]);
    await_deaths(n);
    check_cache();
}

int main(int argc, char **argv) {
    int status = crash_main(argc, argv, &(crash_test){run_writer, round_of_killing, 20});
    for (int i = 0; i < WRITERS; i++)
        db_close(writers[i].reference);
    printf("%d kills, %d of them at a system call; %" PRId64
           " statements acknowledged; of those at work, %d had taken place\n",
           kills, kills_at_calls, acknowledged, in_flight_kept);
    CHECK(acknowledged > kills, "hardly a statement is acknowledged");
    return status;
}
