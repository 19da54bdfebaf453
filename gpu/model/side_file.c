/*
 * side_file.c - files beside the cache with facts that take time to find: a model's rates on this
 * machine, and the hash of a model file.
 *
 * There is one file of `key value` lines per (model, machine). For each path of a model file there
 * is another one with the hash of the model file's bytes, which is needed before the model is
 * known. Invariant: without a side file, or with a damaged one, the facts are measured again;
 * nothing else changes. The precision in the file is kept in later runs, so that stored answers
 * stay valid.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "side_file_int.h"

enum { SIDE_VERSION = 3 };

/* Sets `out` to the "model name" of the first processor, or to "". */
static void processor_name(char *out, size_t cap) {
    out[0] = '\0';
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            snprintf(out, cap, "%s", colon + 2);
            break;
        }
    }
    if (f != NULL)
        fclose(f);
}

static bool side_path(const char *dir, hash128 model, const char *machine, char *out, size_t cap) {
    char processor[256];
    processor_name(processor, sizeof processor);
    uint64_t h =
        hash64(processor, strlen(processor), hash64(machine, strlen(machine), SIDE_VERSION));
    return snprintf(out, cap, "%s/model-%016llx-%016llx.side", dir, (unsigned long long)model.low,
                    (unsigned long long)h) < (int)cap;
}

/* Parses "<identity>.<digest>.<packed_bytes>" in hexadecimal. *out is unchanged if the text is
 * something else. */
static void probe_parse(const char *text, side_probe *out) {
    unsigned long long n[5];
    if (sscanf(text, "%16llx%16llx.%16llx%16llx.%16llx", &n[0], &n[1], &n[2], &n[3], &n[4]) == 5) {
        *out = (side_probe){.identity = {.low = n[1], .high = n[0]},
                            .digest = {.low = n[3], .high = n[2]},
                            .packed_bytes = n[4]};
    }
}

static void probe_print(buf *out, const char *precision, const side_probe *p) {
    if (p->packed_bytes > 0) {
        buf_printf(out, "probe_%s %016llx%016llx.%016llx%016llx.%llx\n", precision,
                   (unsigned long long)p->identity.high, (unsigned long long)p->identity.low,
                   (unsigned long long)p->digest.high, (unsigned long long)p->digest.low,
                   (unsigned long long)p->packed_bytes);
    }
}

/* Parses the line if it is about precision p: the rate of p, its probe, or that 'auto' means p. */
static void precision_parse(llm_precision p, const char *key, const char *text, side_facts *out) {
    const char *name = llm_precision_name(p);
    if (strcmp(key, "precision") == 0 && strcmp(text, name) == 0)
        out->precision = p;
    else if (strncmp(key, "rate_", 5) == 0 && strcmp(key + 5, name) == 0)
        out->rate[p] = strtod(text, NULL);
    else if (strncmp(key, "probe_", 6) == 0 && strcmp(key + 6, name) == 0)
        probe_parse(text, &out->probe[p]);
}

bool side_file_read(const char *dir, hash128 model, const char *machine, side_facts *out) {
    char path[4096], key[64], text[128];
    int version = 0;
    *out = (side_facts){0};
    if (dir == NULL || !side_path(dir, model, machine, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    while (f != NULL && fscanf(f, "%63s %127s", key, text) == 2) {
        double number = strtod(text, NULL);
        version = strcmp(key, "version") == 0 ? (int)number : version;
        out->prefill_tok_s = strcmp(key, "prefill_tok_s") == 0 ? number : out->prefill_tok_s;
        out->decode_tok_s = strcmp(key, "decode_tok_s") == 0 ? number : out->decode_tok_s;
        out->chat = strcmp(key, "chat") == 0 ? (int)number : out->chat;
        for (llm_precision p = LLM_F32; p < LLM_PRECISIONS; p++)
            precision_parse(p, key, text, out);
    }
    if (f != NULL)
        fclose(f);
    return version == SIDE_VERSION;
}

/* Replaces the file atomically. On failure the old file remains. */
static void replace_file(const char *dir, const char *path, str text) {
    char temporary[4160];
    mkdir(dir, 0700);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    if (fd < 0)
        return;
    bool written = write(fd, text.p, text.n) == (ssize_t)text.n;
    written = close(fd) == 0 && written;
    if (!written || rename(temporary, path) != 0)
        unlink(temporary);
}

void side_file_write(const char *dir, hash128 model, const char *machine, const side_facts *facts) {
    char path[4096];
    buf b = {0};
    if (dir == NULL || !side_path(dir, model, machine, path, sizeof path))
        return;
    buf_printf(&b, "version %d\nprefill_tok_s %.6g\ndecode_tok_s %.6g\nchat %d\n", SIDE_VERSION,
               facts->prefill_tok_s, facts->decode_tok_s, facts->chat);
    if (facts->precision != LLM_PRECISION_AUTO)
        buf_printf(&b, "precision %s\n", llm_precision_name(facts->precision));
    for (llm_precision p = LLM_F32; p < LLM_PRECISIONS; p++) {
        if (facts->rate[p] > 0)
            buf_printf(&b, "rate_%s %.6g\n", llm_precision_name(p), facts->rate[p]);
        probe_print(&b, llm_precision_name(p), &facts->probe[p]);
    }
    replace_file(dir, path, buf_str(&b));
    buf_free(&b);
}

void side_file_keep_rates(const char *dir, hash128 model, const char *machine, double prefill_tok_s,
                          double decode_tok_s) {
    side_facts facts;
    if (!side_file_read(dir, model, machine, &facts))
        return;
    facts.prefill_tok_s = prefill_tok_s > 0 ? prefill_tok_s : facts.prefill_tok_s;
    facts.decode_tok_s = decode_tok_s > 0 ? decode_tok_s : facts.decode_tok_s;
    side_file_write(dir, model, machine, &facts);
}

/* ---- hashes of files ------------------------------------------------------------------------- */

/*
 *   identity 1 | stamp, 32 digits | hash, 32 digits | XXH3 of the line up to here, 16 digits
 *
 * The file is this line. The checksum is against damage, not against forgery: whoever can write
 * this file can also write the cache.
 */
enum { IDENTITY_VERSION = 1, IDENTITY_LINE = 128 };

static bool identity_path(const char *dir, const char *path, char *out, size_t cap) {
    char *real = realpath(path, NULL);
    const char *name = real != NULL ? real : path;
    uint64_t h = hash64(name, strlen(name), IDENTITY_VERSION);
    free(real);
    return dir != NULL &&
           snprintf(out, cap, "%s/file-%016llx.side", dir, (unsigned long long)h) < (int)cap;
}

static void identity_line(hash128 stamp, hash128 identity, buf *out) {
    buf_printf(out, "identity %d %016llx%016llx %016llx%016llx", IDENTITY_VERSION,
               (unsigned long long)stamp.high, (unsigned long long)stamp.low,
               (unsigned long long)identity.high, (unsigned long long)identity.low);
    uint64_t sum = hash64(out->p, out->n, 0);
    buf_printf(out, " %016llx\n", (unsigned long long)sum);
}

/* Accepts the file only if it is, byte for byte, the line that would be written for `stamp`. */
bool side_file_identity_read(const char *dir, const char *path, hash128 stamp, hash128 *out) {
    char name[4096], found[IDENTITY_LINE + 1];
    unsigned long long n[2];
    if (!identity_path(dir, path, name, sizeof name))
        return false;
    FILE *f = fopen(name, "re");
    size_t length = f != NULL ? fread(found, 1, IDENTITY_LINE, f) : 0;
    if (f != NULL)
        fclose(f);
    found[length] = '\0';
    if (sscanf(found, "identity %*d %*32s %16llx%16llx", &n[0], &n[1]) != 2)
        return false;
    hash128 identity = {.high = n[0], .low = n[1]};
    buf b = {0};
    identity_line(stamp, identity, &b);
    bool same = str_equal(buf_str(&b), (str){found, length});
    buf_free(&b);
    *out = same ? identity : *out;
    return same;
}

void side_file_identity_write(const char *dir, const char *path, hash128 stamp, hash128 identity) {
    char name[4096];
    if (!identity_path(dir, path, name, sizeof name))
        return;
    buf b = {0};
    identity_line(stamp, identity, &b);
    replace_file(dir, name, buf_str(&b));
    buf_free(&b);
}
