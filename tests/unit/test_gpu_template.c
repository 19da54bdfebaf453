/*
 * test_gpu_template.c - chat templates: which row a program gets, and that the row says what jinja2
 * renders.
 *
 * The programs are ours, short, with the structure and the markers of their families. Rendering
 * needs a python3 with jinja2 (KVASIR_PYTHON names another interpreter); without one that test says
 * so and is skipped.
 */
#include "gpu_testing.h"
#include "text/tokenizer_int.h"

#include <sys/wait.h>

#define BODY "Is it good?\nanswer:"

typedef struct program {
    const char *what, *family, *text;
} program;

#define CHATML_TURNS                                                                               \
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' "  \
    "+ '\\n' }}{% endfor %}"
#define CHATML_END "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CHATML_DEFAULT(text)                                                                       \
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" text                       \
    "<|im_end|>\\n' }}{% endif %}"
#define LLAMA3_TURNS                                                                               \
    "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "   \
    "m['content'] | trim + "                                                                       \
    "'<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ "                                 \
    "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"

static const program programs[] = {
    {"plain ChatML", "chatml", CHATML_TURNS CHATML_END},
    {"SmolLM2", "chatml",
     CHATML_DEFAULT("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
         CHATML_TURNS CHATML_END},
    {"Qwen2", "chatml", CHATML_DEFAULT("You are a helpful assistant.") CHATML_TURNS CHATML_END},
    {"Qwen2.5", "chatml",
     CHATML_DEFAULT("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
         CHATML_TURNS CHATML_END},
    {"Qwen3", "chatml",
     CHATML_TURNS
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is "
     "defined and "
     "enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"},
    {"Llama 3", "llama3", "{{ bos_token }}" LLAMA3_TURNS},
    {"Llama 3.1", "llama3",
     "{{ bos_token }}{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% "
     "endif %}"
     "{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December "
     "2023\\nToday Date: ' + "
     "date_string + '\\n\\n<|eot_id|>' }}" LLAMA3_TURNS},
    {"Gemma", "gemma",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}{% set role = 'model' "
     "%}{% else %}"
     "{% set role = m['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + m['content'] | "
     "trim + "
     "'<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' "
     "}}{% endif %}"},
    {"Phi 3", "phi3",
     "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|user|>\\n' + m['content'] + "
     "'<|end|>\\n' }}"
     "{% else %}{{ '<|assistant|>\\n' + m['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"Phi 4 mini", "phi4",
     "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + "
     "'<|end|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"},
    {"Llama 2", "llama2",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + "
     "m['content'] + ' [/INST]' }}"
     "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"},
    {"Mistral 0.3", "mistral",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + "
     "m['content'] + '[/INST]' }}"
     "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"},
    {"Mistral Nemo", "mistral",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST]' + m['content'] "
     "+ '[/INST]' }}"
     "{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"},
};

/* The row for a program; templates are static, so they outlive the file. */
static const llm_template *row_of(const char *text, const char **family) {
    gguf_maker m = {0};
    gguf *g;
    err e = {0};
    if (text)
        make_str(&m, "tokenizer.chat_template", text);
    str file = make_file(&m, 3);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    const llm_template *t = template_for_chat(g, family);
    gguf_close(g);
    make_free(&m);
    return t;
}

static void families_are_told_apart(void **state) {
    (void)state;
    const char *family;
    for (size_t i = 0; i < BASE_COUNT(programs); i++) {
        const llm_template *t = row_of(programs[i].text, &family);
        assert_string_equal(family, programs[i].family);
        assert_non_null(t);
        assert_true(t->chat && t->answer_lead.n == 0 && t->before.n > 0 && t->after.n > 0);
        assert_string_equal(t->name, family);
    }
    assert_null(row_of("{{ messages[0]['content'] }}", &family));
    assert_string_equal(family, "none");
    assert_null(row_of(NULL, &family));
    assert_string_equal(family, "none");
}

static void completion_is_plain(void **state) {
    (void)state;
    const llm_template *t = template_completion();
    assert_string_equal(t->name, "completion");
    assert_true(!t->chat && t->before.n == 0);
    assert_true(str_equal(t->after, STR("answer:")) && str_equal(t->answer_lead, STR(" ")));
    assert_true(str_equal(t->said_lead, STR(" ")) && str_equal(t->turn, STR("\n")));
}

static const char *python(void) {
    const char *name = getenv("KVASIR_PYTHON");
    return name && *name ? name : "python3";
}

static bool has_jinja2(void) {
    char command[512];
    snprintf(command, sizeof command, "%s -c 'import jinja2' 2>/dev/null", python());
    return system(command) == 0;
}

/* What jinja2 makes of the program and the messages, which are quoted for the shell. */
static void render(str text, const char *messages, buf *out) {
    char script[4096], command[8192], input[] = P_tmpdir "/kvasir-chat-XXXXXX", bytes[1024];
    int fd = mkstemp(input);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text.p, text.n), (ssize_t)text.n);
    close(fd);
    snprintf(command, sizeof command, "%s '%s' %s < '%s'", python(),
             source_path("tests/vectors/render_chat.py", script), messages, input);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        buf_append(out, bytes, n);
    assert_int_equal(pclose(f), 0);
    unlink(input);
}

static void expect_rendering(const char *what, str text, const llm_template *t) {
    static const char *const messages[] = {"'" BODY "'", "'" BODY "' yes 'Why so?'"};
    for (size_t i = 0; i < BASE_COUNT(messages); i++) {
        buf rendered = {0}, ours = {0};
        bool goes_on = i == 1;
        /* programs leave the empty thinking section out of earlier answers; a prompt that goes on
         * keeps it, since it begins with the earlier prompt as that was sent */
        if (goes_on && memmem(t->after.p, t->after.n, "<think>", 7))
            return;
        render(text, messages[i], &rendered);
        buf_append_str(&ours, t->before);
        buf_append_c(&ours, BODY);
        buf_append_str(&ours, t->after);
        if (goes_on) {
            buf_append_str(&ours, t->said_lead);
            buf_append_c(&ours, "yes");
            buf_append_str(&ours, t->turn);
            buf_append_c(&ours, "Why so?");
            buf_append_str(&ours, t->after);
        }
        if (!str_equal(buf_str(&ours), buf_str(&rendered)))
            fail_msg("%s: [%s] instead of [%s]", what, ours.p, rendered.p ? rendered.p : "");
        buf_free(&rendered);
        buf_free(&ours);
    }
}

static void rows_equal_jinja2(void **state) {
    (void)state;
    if (!has_jinja2())
        skip();
    const char *family;
    for (size_t i = 0; i < BASE_COUNT(programs); i++)
        expect_rendering(programs[i].what, str_from(programs[i].text),
                         row_of(programs[i].text, &family));
}

static void the_real_program_equals_jinja2(void **state) {
    (void)state;
    char path[4096];
    if (!model_path(path) || !has_jinja2())
        skip();
    gguf *g;
    err e = {0};
    str text;
    const char *family;
    assert_int_equal(gguf_open(path, &g, &e), 0);
    const llm_template *t = template_for_chat(g, &family);
    if (t && gguf_get_str(g, "tokenizer.chat_template", &text))
        expect_rendering("the model's own program", text, t);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_told_apart),
        cmocka_unit_test(completion_is_plain),
        cmocka_unit_test(rows_equal_jinja2),
        cmocka_unit_test(the_real_program_equals_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
