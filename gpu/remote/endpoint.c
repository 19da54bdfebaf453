/*
 * endpoint.c - the URLs and the options of a model at servers, its key, and what of foreign text may
 * be shown.
 *
 * Invariant: a URL that endpoint_parse accepts has no user name, no password and no query, so it can
 * be stored, shown and logged. The key is read from the environment or from a file, and from
 * nowhere else.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote_int.h"

/* ---- options --------------------------------------------------------------------------------- */

static const llm_remote_option table[] = {
#define ROW(name, type, standard, words, help) {#name, #type, standard, words, help},
    LLM_REMOTE_OPTIONS(ROW)
#undef ROW
};

const llm_remote_option *llm_remote_options(size_t *count) {
    *count = BASE_COUNT(table);
    return table;
}

static const llm_remote_option *option_find(str name) {
    for (size_t i = 0; i < BASE_COUNT(table); i++)
        if (str_equal_nocase(name, str_from(table[i].name)))
            return &table[i];
    return NULL;
}

/* Whether an option's name is one under which people write a key. */
static bool names_a_key(str name) {
    static const char *const names[] = {"key",    "api_key",  "apikey", "token",
                                        "secret", "password", "sig",    "access_token"};
    for (size_t i = 0; i < BASE_COUNT(names); i++)
        if (str_equal_nocase(name, str_from(names[i])))
            return true;
    return false;
}

static int option_unknown(str name, err *e) {
    if (names_a_key(name)) {
        err_set(e, ERR_BIND, "keys are not stored: a model has no option \"%.*s\"", (int)name.n,
                name.p);
        err_hint(e, "key_env 'NAME' names an environment variable, key_file 'FILE' a file");
        return ERR_BIND;
    }
    const char *names[BASE_COUNT(table)];
    for (size_t i = 0; i < BASE_COUNT(table); i++)
        names[i] = table[i].name;
    const char *near = str_nearest(name, names, BASE_COUNT(names));
    err_set(e, ERR_BIND, "a model has no option \"%.*s\"", (int)BASE_MIN(name.n, 60), name.p);
    err_hint(e, near ? "did you mean %s?" : ".help server lists the options", near);
    return ERR_BIND;
}

/* Returns the index of a word in "a|b|c"; -1: it is not in the list. */
static int word_index(const char *words, str word) {
    str rest = str_from(words);
    for (int i = 0; rest.n > 0; i++)
        if (str_equal_nocase(str_split_next(&rest, '|'), word))
            return i;
    return -1;
}

static int value_refused(const llm_remote_option *o, str given, const char *what, err *e) {
    return err_set(e, ERR_TYPE, "%s: '%.*s' is not %s", o->name, (int)BASE_MIN(given.n, 60),
                   given.p, what);
}

int llm_remote_check_option(str name, str given, err *e) {
    const llm_remote_option *o = option_find(name);
    int64_t i;
    double r;
    if (o == NULL)
        return option_unknown(name, e);
    if (memchr(given.p, '\n', given.n) != NULL || memchr(given.p, 0, given.n) != NULL)
        return err_set(e, ERR_TYPE, "%s: its value has a line break", o->name);
    if (strcmp(o->type, "WORD") == 0 && word_index(o->words, given) < 0) {
        err_set(e, ERR_TYPE, "%s cannot be '%.*s'", o->name, (int)BASE_MIN(given.n, 60), given.p);
        err_hint(e, "it is one of %s", o->words);
        return ERR_TYPE;
    }
    if (strcmp(o->type, "INTEGER") == 0 && (!parse_integer(given, &i) || i < 0 || i > 1000000000))
        return value_refused(o, given, "a number of 0 to 1,000,000,000", e);
    if (strcmp(o->type, "REAL") == 0 && (!parse_real(given, &r) || r < 0 || !isfinite(r)))
        return value_refused(o, given, "a number of 0 or more", e);
    if (strcmp(o->name, "timeout") == 0 && (!parse_real(given, &r) || r < 0.01 || r > 86400))
        return value_refused(o, given, "a number of seconds from 0.01 to 86400", e);
    return 0;
}

#define SET_TEXT(m, v) m = arena_strndup(mem, (v).p, (v).n)
#define SET_WORD(m, v) m = word_index(o->words, v)
#define SET_INTEGER(m, v) parse_integer(v, &m)
#define SET_REAL(m, v) m = (v).n == 0 || !parse_real(v, &number) ? (double)NAN : number

static void option_set(const llm_remote_option *o, str v, arena *mem, remote_options *out) {
    double number = 0;
#define SET(option, type, standard, choice, help)                                                  \
    if (strcmp(o->name, #option) == 0)                                                             \
        SET_##type(out->option, v);
    LLM_REMOTE_OPTIONS(SET)
#undef SET
}

int remote_options_parse(str text, arena *mem, remote_options *out, err *e) {
    *out = (remote_options){0};
    for (size_t i = 0; i < BASE_COUNT(table); i++)
        option_set(&table[i], str_from(table[i].standard), mem, out);
    while (text.n > 0) {
        str line = str_split_next(&text, '\n'), name = str_split_next(&line, '=');
        int status = llm_remote_check_option(name, line, e);
        if (status != 0)
            return status;
        option_set(option_find(name), line, mem, out);
    }
    if (isnan(out->price_cached))
        out->price_cached = out->price_in;
    if (out->key_env[0] != '\0' && out->key_file[0] != '\0')
        return err_set(e, ERR_BIND, "a model has either key_env or key_file, not both");
    return 0;
}

/* ---- URLs ------------------------------------------------------------------------------------ */

bool llm_is_remote(str source) {
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < BASE_COUNT(schemes); i++) {
        size_t n = strlen(schemes[i]);
        if (source.n >= n && str_equal_nocase((str){source.p, n}, str_from(schemes[i])))
            return true;
    }
    return false;
}

static int url_refused(str url, const char *why, err *e) {
    /* what follows '?' or stands before '@' may be a secret */
    size_t n = 0;
    while (n < url.n && url.p[n] != '?' && url.p[n] != '@' && url.p[n] != '#')
        n++;
    bool cut = n < url.n;
    return err_set(e, ERR_BIND, "the URL '%.*s%s' %s",
                   (int)BASE_MIN(cut && url.p[n] == '@' ? 8 : n, 200), url.p, cut ? "…" : "", why);
}

static bool host_is_loopback(str host) {
    bool v4 = host.n > 4 && memcmp(host.p, "127.", 4) == 0;
    for (size_t i = 0; i < host.n && v4; i++)
        v4 = isdigit((unsigned char)host.p[i]) || host.p[i] == '.';
    return v4 || str_equal_nocase(host, STR("localhost")) || str_equal(host, STR("[::1]"));
}

static bool host_is_sound(str host) {
    for (size_t i = 0; i < host.n; i++)
        if (!isalnum((unsigned char)host.p[i]) && strchr("-._[]:", host.p[i]) == NULL)
            return false;
    return host.n > 0;
}

/* Divides "host:port"; *port is -1 without one, -2 if it is no port. */
static str host_of(str authority, int64_t *port) {
    size_t colon = authority.n;
    *port = -1;
    for (size_t i = 0; i < authority.n && authority.p[i] != ']'; i++)
        if (authority.p[i] == ':' && authority.p[0] != '[')
            colon = i;
    if (authority.n > 0 && authority.p[0] == '[') {
        const char *end = memchr(authority.p, ']', authority.n);
        size_t n = end != NULL ? (size_t)(end - authority.p) + 1 : authority.n;
        colon = n < authority.n && authority.p[n] == ':' ? n : authority.n;
    }
    if (colon < authority.n) {
        str digits = {authority.p + colon + 1, authority.n - colon - 1};
        if (!parse_integer(digits, port) || *port < 1 || *port > 65535)
            *port = -2;
    }
    return (str){authority.p, colon};
}

int endpoint_parse(str url, arena *mem, endpoint *out, err *e) {
    int64_t port;
    size_t end = url.n;
    *out = (endpoint){0};
    if (!llm_is_remote(url))
        return url_refused(url, "does not begin with http:// or https://", e);
    out->tls = ascii_lower(url.p[4]) == 's';
    size_t scheme = out->tls ? 8 : 7, at = scheme;
    if (memchr(url.p, '@', url.n) != NULL)
        return url_refused(url, "has a user name: keys are not stored", e);
    if (memchr(url.p, '?', url.n) != NULL || memchr(url.p, '#', url.n) != NULL)
        return url_refused(url, "has a query: keys are not stored", e);
    for (size_t i = 0; i < url.n; i++)
        if ((unsigned char)url.p[i] <= ' ' || url.p[i] == '\\' || (unsigned char)url.p[i] >= 0x7f)
            return url_refused(url, "has a character that a URL cannot have", e);
    while (at < url.n && url.p[at] != '/')
        at++;
    str host = host_of((str){url.p + scheme, at - scheme}, &port);
    bool open = host.n > 0 && host.p[0] == '[' && host.p[host.n - 1] != ']';
    if (!host_is_sound(host) || port == -2 || open)
        return url_refused(url, "has no valid host and port", e);
    char ip[64];
    bool quoted = host.p[0] == '[' && host.n > 2;
    utf8_copy(ip, sizeof ip, quoted ? (str){host.p + 1, host.n - 2} : host);
    if (address_is_link_local(ip))
        return url_refused(url, "is link-local, where metadata services are", e);
    while (end > at && url.p[end - 1] == '/')
        end--;
    char *origin = arena_strndup(mem, url.p, at);
    for (char *c = origin; *c != '\0'; c++)
        *c = ascii_lower(*c);
    out->origin = origin;
    out->loopback = host_is_loopback(host);
    str path = {url.p + at, end - at};
    bool v1 = path.n >= 3 && memcmp(path.p + path.n - 3, "/v1", 3) == 0;
    out->root = arena_printf(mem, "%s%.*s", origin, (int)(v1 ? path.n - 3 : path.n), path.p);
    out->base = arena_printf(mem, "%s%.*s%s", origin, (int)path.n, path.p, path.n > 0 ? "" : "/v1");
    return 0;
}

/* ---- the key --------------------------------------------------------------------------------- */

static int key_from_file(const char *path, char **key, err *e) {
    struct stat st;
    char bytes[REMOTE_KEY_MAX + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err_set(e, ERR_MODEL, "key_file '%s': %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return ERR_MODEL;
    }
    ssize_t n = -1;
    if (!S_ISREG(st.st_mode))
        err_set(e, ERR_MODEL, "key_file '%s' is not a file", path);
    else if (st.st_uid != geteuid())
        err_set(e, ERR_MODEL, "key_file '%s' belongs to another user", path);
    else if ((st.st_mode & 077) != 0) {
        err_set(e, ERR_MODEL, "key_file '%s' can be read by others", path);
        err_hint(e, "run chmod 600 '%s'", path);
    } else if ((n = read(fd, bytes, sizeof bytes)) < 0) {
        err_set(e, ERR_MODEL, "key_file '%s': %s", path, strerror(errno));
    }
    close(fd);
    if (n < 0)
        return ERR_MODEL;
    str text = str_trim((str){bytes, (size_t)n}, STR_SPACES);
    *key = mem_strndup(text.p, text.n);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}

int remote_key_read(const remote_options *o, char **key, err *e) {
    const char *from = o->key_file;
    int status = 0;
    *key = NULL;
    if (o->key_file[0] != '\0') {
        status = key_from_file(o->key_file, key, e);
    } else if (o->key_env[0] != '\0') {
        from = o->key_env;
        const char *found = getenv(o->key_env);
        if (found == NULL) {
            err_set(e, ERR_MODEL, "the environment variable %s, which key_env names, is not set",
                    from);
            err_hint(e, "set %s before kvasir is started", from);
            return ERR_MODEL;
        }
        str text = str_trim(str_from(found), STR_SPACES);
        *key = mem_strndup(text.p, text.n);
    }
    if (status != 0 || *key == NULL)
        return status;
    size_t n = strlen(*key);
    bool sound = n > 0 && n < REMOTE_KEY_MAX;
    for (size_t i = 0; i < n; i++)
        sound = sound && (unsigned char)(*key)[i] > ' ' && (unsigned char)(*key)[i] < 0x7f;
    if (sound)
        return 0;
    explicit_bzero(*key, n);
    free(*key);
    *key = NULL;
    return err_set(e, ERR_MODEL,
                   "%s has no key: it is empty, too long, or has a character that a "
                   "header cannot have",
                   from);
}

/* ---- foreign text ---------------------------------------------------------------------------- */

/* Returns the length of what looks like a key at the start of a text: (sk|key|Bearer)[-_ ] and eight
 * or more letters, digits, - or _. 0: nothing does. */
static size_t key_like(str s) {
    static const char *const starts[] = {"sk", "key", "bearer"};
    for (size_t i = 0; i < BASE_COUNT(starts); i++) {
        size_t n = strlen(starts[i]), at = n + 1;
        if (s.n <= at || !str_equal_nocase((str){s.p, n}, str_from(starts[i])) ||
            strchr("-_ ", s.p[n]) == NULL)
            continue;
        while (at < s.n && (isalnum((unsigned char)s.p[at]) || s.p[at] == '-' || s.p[at] == '_'))
            at++;
        if (at - n - 1 >= 8)
            return at;
    }
    return 0;
}

void remote_mask(str text, const char *key, size_t most, buf *out) {
    size_t nkey = key != NULL ? strlen(key) : 0, from = out->n;
    uint32_t cp;
    char bytes[4];
    while (text.n > 0 && out->n - from < most) {
        size_t n =
            nkey > 0 && text.n >= nkey && memcmp(text.p, key, nkey) == 0 ? nkey : key_like(text);
        if (n > 0) {
            buf_append_c(out, "***");
        } else {
            n = utf8_next(text, &cp);
            if (cp < ' ' || (cp >= 0x7f && cp < 0xa0))
                buf_printf(out, "\\x%02x", (unsigned)cp);
            else
                buf_append(out, bytes, utf8_encode(cp, bytes));
        }
        text = (str){text.p + n, text.n - n};
    }
    if (text.n > 0)
        buf_append_c(out, "…");
}

bool address_is_link_local(const char *ip) {
    unsigned first, second;
    const char *mapped = strncasecmp(ip, "::ffff:", 7) == 0 ? ip + 7 : ip;
    if (strchr(mapped, ':') == NULL)
        return strncmp(mapped, "169.254.", 8) == 0;
    if (mapped != ip) /* ::ffff:a9fe:… is 169.254.… in another spelling */
        return strncasecmp(mapped, "a9fe:", 5) == 0;
    return sscanf(ip, "%x:%x", &first, &second) >= 1 && (first & 0xffc0) == 0xfe80;
}

static bool in_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

bool llm_remote_may_hold_key(str text) {
    bool makes = false;
    str first = str_trim(text, STR_SPACES), word;
    if (first.n < 6 || !str_equal_nocase((str){first.p, 6}, STR("CREATE")))
        return false;
    for (size_t i = 0, n; i < text.n; i += BASE_MAX(n, (size_t)1)) {
        for (n = 0; i + n < text.n && in_name(text.p[i + n]);)
            n++;
        word = (str){text.p + i, n};
        makes = makes || str_equal_nocase(word, STR("MODEL"));
        if (makes && (names_a_key(word) || key_like((str){text.p + i, text.n - i}) > 0))
            return true;
    }
    return false;
}

/* ---- for other rooms ------------------------------------------------------------------------- */

int llm_remote_check(str source, str options, err *e) {
#ifndef KVASIR_REMOTE
    (void)options;
    (void)source;
    err_set(e, ERR_UNSUPPORTED, "this build has no libcurl: it cannot ask models at a URL");
    err_hint(e, "build it with libcurl (Debian: libcurl4-openssl-dev) and -DKVASIR_REMOTE=ON");
    return ERR_UNSUPPORTED;
#else
    arena *mem = arena_new();
    remote_options o;
    endpoint at;
    int n = 0, status = remote_options_parse(options, mem, &o, e);
    bool has_key = status == 0 && (o.key_env[0] != '\0' || o.key_file[0] != '\0');
    while (source.n > 0 && status == 0) {
        str url = str_split_next(&source, ' ');
        status = endpoint_parse(url, mem, &at, e);
        if (status == 0 && has_key && !at.tls && !at.loopback)
            status = url_refused(url, "would send the key unencrypted: it needs https://", e);
        if (status == 0 && ++n > REMOTE_ENDPOINTS_MAX)
            status = err_set(e, ERR_LIMIT, "a model has at most %d URLs", REMOTE_ENDPOINTS_MAX);
    }
    arena_free(mem);
    return status;
#endif
}

void llm_remote_pairs(str source, str options, buf *out) {
    arena *mem = arena_new();
    remote_options o;
    err ignored = {0}; /* the check at CREATE MODEL reports it */
    if (remote_options_parse(options, mem, &o, &ignored) == 0) {
        const char *key = o.key_env[0] != '\0' ? o.key_env : o.key_file;
        while (source.n > 0) {
            endpoint at;
            if (endpoint_parse(str_split_next(&source, ' '), mem, &at, &ignored) == 0 &&
                !(at.loopback && key[0] == '\0'))
                buf_printf(out, "%s%s%s\n", at.origin, key[0] != '\0' ? "," : "", key);
        }
    }
    arena_free(mem);
}
