/*
 * http.c - HTTP requests in flight (http_int.h).
 *
 * Invariant: every call that was started is in the multi handle, in the list of finished calls, or
 * was handed to the caller; no other thread is used. The key stands in one header list, cleared
 * when the network is freed.
 */
#ifdef KVASIR_REMOTE
#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "http_int.h"
#include "remote_int.h"
#include "storage/containers.h"

static const double CONNECT_S = 10, IDLE_S = 30;

struct http {
    CURLM *multi;
    struct curl_slist *headers; /* of a POST */
    struct curl_slist *get_headers;
    char *ca;
    http_call *first, *last; /* finished calls */
    http_call **flying;
    size_t nflying, flying_cap;
};

/* ---- lifetime -------------------------------------------------------------------------------- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_begin(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int http_new(const char *key, const char *ca, http **out, err *e) {
    pthread_once(&curl_once, curl_begin);
    *out = NULL;
    if (ca != NULL && ca[0] != '\0' && access(ca, R_OK) != 0)
        return err_set(e, ERR_MODEL, "ca '%s' cannot be read", ca);
    http *net = mem_zalloc(sizeof *net);
    net->multi = curl_multi_init();
    if (net->multi == NULL) {
        free(net);
        return err_set(e, ERR_INTERNAL, "libcurl cannot be started");
    }
    net->ca = ca != NULL && ca[0] != '\0' ? mem_strdup(ca) : NULL;
    net->headers = curl_slist_append(NULL, "Content-Type: application/json");
    /* without this libcurl would wait for "100 Continue" before a large body */
    net->headers = curl_slist_append(net->headers, "Expect:");
    net->get_headers = curl_slist_append(NULL, "Accept: application/json");
    if (key != NULL) {
        buf line = {0};
        buf_printf(&line, "Authorization: Bearer %s", key);
        net->headers = curl_slist_append(net->headers, line.p);
        net->get_headers = curl_slist_append(net->get_headers, line.p);
        explicit_bzero(line.p, line.n);
        buf_free(&line);
    }
    *out = net;
    return 0;
}

static void headers_free(struct curl_slist *list) {
    for (struct curl_slist *at = list; at != NULL; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(list);
}

void http_free(http *net) {
    if (net == NULL)
        return;
    while (net->nflying > 0)
        http_drop(net, net->flying[net->nflying - 1]);
    curl_multi_cleanup(net->multi);
    headers_free(net->headers);
    headers_free(net->get_headers);
    free(net->ca);
    free(net->flying);
    free(net);
}

void http_call_free(http_call *c) {
    buf_free(&c->head);
    buf_free(&c->body);
    buf_free(&c->redirect);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static size_t take_body(char *p, size_t size, size_t n, void *to) {
    http_call *c = to;
    c->last_byte_s = clock_seconds();
    if (c->body.n + size * n > HTTP_BODY_MAX) {
        c->too_large = true;
        return 0;
    }
    buf_append(&c->body, p, size * n);
    return size * n;
}

static size_t take_head(char *p, size_t size, size_t n, void *to) {
    http_call *c = to;
    size_t bytes = size * n;
    c->last_byte_s = clock_seconds();
    if (c->head.n + bytes > HTTP_HEAD_MAX) {
        c->too_large = true;
        return 0;
    }
    if (bytes >= 5 && memcmp(p, "HTTP/", 5) == 0)
        buf_clear(&c->head); /* what came before was an interim reply */
    bool name = true;
    for (size_t i = 0; i < bytes; i++) {
        name = name && p[i] != ':';
        if (p[i] != '\r' && p[i] != '\0')
            buf_append_char(&c->head, name ? ascii_lower(p[i]) : p[i]);
    }
    return bytes;
}

static int check_address(void *to, char *ip, char *local, int port, int local_port) {
    http_call *c = to;
    (void)local;
    (void)port;
    (void)local_port;
    c->refused_address = address_is_link_local(ip);
    return c->refused_address ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

bool http_header(const http_call *c, const char *name, buf *out) {
    str rest = c->head.n > 0 ? buf_str(&c->head) : STR("");
    bool found = false;
    while (rest.n > 0) {
        str line = str_split_next(&rest, '\n'), key = str_split_next(&line, ':');
        if (!str_equal_nocase(key, str_from(name)))
            continue;
        found = true;
        buf_clear(out);
        buf_append_str(out, str_trim(line, STR_SPACES));
    }
    return found && out->n > 0;
}

double http_retry_after(const http_call *c) {
    buf text = {0};
    double seconds = -1;
    if (http_header(c, "retry-after-ms", &text) && parse_real(buf_str(&text), &seconds)) {
        seconds /= 1e3;
    } else if (http_header(c, "retry-after", &text) && !parse_real(buf_str(&text), &seconds)) {
        time_t at = curl_getdate(text.p, NULL);
        seconds = at == (time_t)-1 ? -1 : BASE_MAX(difftime(at, time(NULL)), 0.0);
    }
    buf_free(&text);
    return seconds >= 0 ? seconds : -1;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void set_limits(CURL *easy, const http_call *c) {
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(c->timeout_s * 1e3));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(BASE_MIN(c->timeout_s, CONNECT_S) * 1e3));
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
}

static CURL *easy_new(http *net, http_call *c) {
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return NULL;
    set_limits(easy, c);
    curl_easy_setopt(easy, CURLOPT_URL, c->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, (void *)c);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, (void *)c);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, (void *)c);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, check_address);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, (void *)c);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, c->words);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, c->is_get ? net->get_headers : net->headers);
    /* a proxy is used for https alone: it must see neither prompts nor the key */
    if (strncmp(c->url, "https", 5) != 0)
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (net->ca != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, net->ca);
    if (!c->is_get) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->request.n);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, c->request.p);
    }
    return easy;
}

static void finish(http *net, http_call *c) {
    c->next = NULL;
    c->finished = true;
    *(net->last != NULL ? &net->last->next : &net->first) = c;
    net->last = c;
}

static void remove_flying(http *net, const http_call *c) {
    for (size_t i = 0; i < net->nflying; i++)
        if (net->flying[i] == c) {
            net->flying[i] = net->flying[--net->nflying];
            return;
        }
}

void http_start(http *net, http_call *c) {
    buf_clear(&c->head);
    buf_clear(&c->body);
    buf_clear(&c->redirect);
    c->status = 0;
    c->words[0] = '\0';
    c->why = c->words;
    c->too_large = c->refused_address = c->finished = false;
    c->last_byte_s = 0;
    c->idle_s = BASE_MIN(c->timeout_s, IDLE_S);
    c->net = net;
    c->easy = easy_new(net, c);
    if (c->easy == NULL || curl_multi_add_handle(net->multi, c->easy) != CURLM_OK) {
        if (c->easy != NULL)
            curl_easy_cleanup(c->easy);
        c->easy = NULL;
        c->result = HTTP_CONNECT;
        c->why = "libcurl has no memory for the request";
        finish(net, c);
        return;
    }
    ARRAY_PUSH(net->flying, net->nflying, net->flying_cap, c);
}

/* Takes a call out of the list of finished ones, if it is there. */
static void unlink_finished(http *net, const http_call *c) {
    http_call *before = NULL;
    for (http_call *at = net->first; at != NULL; before = at, at = at->next) {
        if (at != c)
            continue;
        *(before != NULL ? &before->next : &net->first) = at->next;
        net->last = net->last == at ? before : net->last;
        return;
    }
}

void http_drop(http *net, http_call *c) {
    if (c->easy == NULL) {
        unlink_finished(net, c);
        return;
    }
    curl_multi_remove_handle(net->multi, c->easy);
    curl_easy_cleanup(c->easy);
    c->easy = NULL;
    remove_flying(net, c);
}

static http_result result_of(http_call *c, CURLcode code) {
    switch (code) {
    case CURLE_OK:
        return HTTP_DONE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return HTTP_CONNECT;
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_TIMEOUT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CIPHER:
        return HTTP_TLS;
    default:
        return c->too_large || c->refused_address ? HTTP_REFUSED : HTTP_BROKEN;
    }
}

static void take_finished(http *net, CURL *easy, CURLcode code) {
    http_call *c = NULL;
    long status = 0;
    char *target = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&c);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &target);
    if (target != NULL)
        buf_append_c(&c->redirect, target);
    c->status = (int)status;
    c->result = result_of(c, code);
    if (c->too_large)
        c->why = "the reply is larger than 16 MB";
    else if (c->refused_address)
        c->why = "its address is link-local, where metadata services are";
    else if (c->words[0] == '\0')
        c->why = curl_easy_strerror(code);
    http_drop(net, c);
    finish(net, c);
}

/* Ends calls whose reply has stopped. */
static void end_stalled(http *net) {
    double now = clock_seconds();
    for (size_t i = net->nflying; i-- > 0;) {
        http_call *c = net->flying[i];
        if (c->last_byte_s == 0 || now - c->last_byte_s < c->idle_s)
            continue;
        http_drop(net, c);
        c->result = HTTP_TIMEOUT;
        c->why = "the reply stopped before its end";
        finish(net, c);
    }
}

static void go_on(http *net, int ms) {
    int running = 0, left = 0;
    curl_multi_perform(net->multi, &running);
    if (ms > 0) {
        curl_multi_poll(net->multi, NULL, 0, ms, NULL);
        curl_multi_perform(net->multi, &running);
    }
    CURLMsg *m;
    while ((m = curl_multi_info_read(net->multi, &left)) != NULL)
        if (m->msg == CURLMSG_DONE)
            take_finished(net, m->easy_handle, m->data.result);
    end_stalled(net);
}

void http_wait(http *net, int ms) {
    go_on(net, net->first == NULL ? ms : 0);
}

int http_sync(http *net, http_call *c, const atomic_bool *cancel, err *e) {
    enum { TURN_MS = 20 };
    int status = 0;
    http_start(net, c);
    while (!c->finished && (status = check_cancel(cancel, e)) == 0)
        go_on(net, TURN_MS);
    http_drop(net, c);
    return status;
}

http_call *http_next(http *net) {
    http_call *c = net->first;
    if (c != NULL) {
        net->first = c->next;
        net->last = net->first != NULL ? net->last : NULL;
    }
    return c;
}
#else
typedef int http_is_not_built; /* ISO C requires a declaration in a file */
#endif
