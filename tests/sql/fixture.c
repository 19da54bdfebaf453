/*
 * fixture.c - reviews and movies as in the tutorials, a table with every constraint, views,
 * examples, a model. Invariant: names are in the catalog's order (bytewise, lower case).
 */
#include <string.h>

#include "fixture.h"

#define COLUMN(n, t)                                                                               \
    { .name = {n, sizeof(n) - 1}, .type = t }
#define NAME(n)                                                                                    \
    { n, sizeof(n) - 1 }

static column_def everything_columns[] = {
    {.name = NAME("id"), .type = TYPE_INTEGER, .not_null = true},
    {.name = NAME("flag"), .type = TYPE_BOOLEAN, .default_sql = NAME("TRUE")},
    {.name = NAME("score"), .type = TYPE_REAL, .check_sql = NAME("score >= 0")},
    {.name = NAME("note"), .type = TYPE_TEXT, .default_sql = NAME("'none'")},
    {.name = NAME("bytes"), .type = TYPE_BLOB},
    {.name = NAME("made"), .type = TYPE_TEXT, .default_sql = NAME("CURRENT_TIMESTAMP")},
};
static int note_column[] = {3};
static index_def everything_indexes[] = {{.id = 1,
                                          .name = NAME("everything_note_key"),
                                          .unique = true,
                                          .ncolumns = 1,
                                          .columns = note_column}};
static str everything_checks[] = {NAME("id <> 13 OR flag")};

static column_def few_shot_columns[] = {COLUMN("id", TYPE_INTEGER), COLUMN("review", TYPE_TEXT),
                                        COLUMN("answer", TYPE_TEXT)};
static column_def movies_columns[] = {COLUMN("id", TYPE_INTEGER), COLUMN("title", TYPE_TEXT),
                                      COLUMN("synopsis", TYPE_TEXT), COLUMN("year", TYPE_INTEGER)};
static column_def reviews_columns[] = {COLUMN("id", TYPE_INTEGER), COLUMN("movie_id", TYPE_INTEGER),
                                       COLUMN("title", TYPE_TEXT), COLUMN("review", TYPE_TEXT),
                                       COLUMN("stars", TYPE_REAL), COLUMN("fresh", TYPE_BOOLEAN)};

static const table_def tables[] = {
    {.id = 1,
     .name = NAME("everything"),
     .ncolumns = 6,
     .columns = everything_columns,
     .rowid_column = 0,
     .nindexes = 1,
     .indexes = everything_indexes,
     .nchecks = 1,
     .checks = everything_checks},
    {.id = 2,
     .name = NAME("few_shot"),
     .ncolumns = 3,
     .columns = few_shot_columns,
     .rowid_column = 0},
    {.id = 3, .name = NAME("movies"), .ncolumns = 4, .columns = movies_columns, .rowid_column = 0},
    {.id = 4,
     .name = NAME("reviews"),
     .ncolumns = 6,
     .columns = reviews_columns,
     .rowid_column = -1},
};

static str renamed[] = {NAME("a"), NAME("b")};
static const view_def views[] = {
    {.name = NAME("broken"), .sql = NAME("SELECT nothing FROM movies")},
    {.name = NAME("loops"), .sql = NAME("SELECT * FROM loops")},
    {.name = NAME("recent"),
     .ncolumns = 2,
     .columns = renamed,
     .sql = NAME("SELECT title, year FROM movies WHERE year > 2000")},
    {.name = NAME("shots"), .sql = NAME("SELECT review, answer FROM few_shot ORDER BY id DESC")},
    {.name = NAME("tones"),
     .sql = NAME("SELECT id, LLM('Tone of {review}?', review) AS tone FROM reviews")},
};
static const model_def models[] = {{.name = NAME("small"), .source = NAME("test:hash")}};
static const catalog contents = {
    .ntables = 4, .nviews = 5, .nmodels = 1, .tables = tables, .views = views, .models = models};

static const rel_column *system_table(void *ctx, str name, int *ncols) {
    static const rel_column columns[] = {{0, TYPE_TEXT, NAME("name"), {NULL, 0}},
                                         {0, TYPE_TEXT, NAME("value"), {NULL, 0}}};
    (void)ctx;
    *ncols = 2;
    return str_equal_nocase(name, STR("kvasir_settings")) ||
                   str_equal_nocase(name, STR("kvasir_tables"))
               ? columns
               : NULL;
}

void fixture_init(fixture *f) {
    static str variables[] = {NAME("who"), NAME("Ann"), NAME("n"), NAME("42")};
    memset(f, 0, sizeof *f);
    settings_init(&f->settings);
    f->env = (bind_env){.catalog = &contents,
                        .settings = &f->settings,
                        .system_table = system_table,
                        .variables = variables,
                        .nvariables = 2};
}

void fixture_free(fixture *f) {
    settings_free(&f->settings);
}
