/*
 * template.c - the table of prompt templates: the text before and after one user message.
 *
 * The file of a chat model has a Jinja program. It is not run: marker strings in it identify its
 * family, and the family's row has what the program renders for a single user message with the
 * generation prompt (tests render the programs with jinja2 and compare). Rows are ordered from
 * special to general; the first row whose markers all occur is used. A date in a rendering is the
 * program's own default, so that answers do not depend on the day. llm_submit adds BOS.
 */
#include "tokenizer_int.h"

#include <string.h>

#define CHATML_USER "<|im_start|>user\n"
#define CHATML_TURN "<|im_end|>\n" CHATML_USER
#define CHATML_REPLY "<|im_end|>\n<|im_start|>assistant\n"
#define CHATML_SYSTEM(text) "<|im_start|>system\n" text "<|im_end|>\n"
#define LLAMA3_TURN(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"

#define SMOLLM2 "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
#define QWEN25 "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#define QWEN2 "You are a helpful assistant."
#define LLAMA31 "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

typedef struct chat_row {
    const char *marker, *and_marker; /* both occur in the file's program; the second may be NULL */
    llm_template t;
} chat_row;

/* A str initializer for static tables, where STR is not a constant. */
#define TEXT(literal)                                                                              \
    { (literal), sizeof(literal) - 1 }
#define CHAT(marker, and_marker, family, before, after, said_lead, turn)                           \
    {                                                                                              \
        marker, and_marker, {                                                                      \
            family, TEXT(before), TEXT(after), TEXT(""), TEXT(said_lead), TEXT(turn), true         \
        }                                                                                          \
    }

#define CHATML(marker, before, reply)                                                              \
    CHAT("<|im_start|>", marker, "chatml", before CHATML_USER, CHATML_REPLY reply, "", CHATML_TURN)

static const chat_row chat_rows[] = {
    CHATML(SMOLLM2, CHATML_SYSTEM(SMOLLM2), ""),
    CHATML(QWEN25, CHATML_SYSTEM(QWEN25), ""),
    CHATML(QWEN2 "<|im_end|>", CHATML_SYSTEM(QWEN2), ""),
    /* The empty thinking section makes these models answer without thinking. */
    CHATML("enable_thinking", "", "<think>\n\n</think>\n\n"),
    CHATML(NULL, "", ""),
    CHAT("<|start_header_id|>", "Cutting Knowledge Date: December 2023", "llama3",
         LLAMA3_TURN("system") LLAMA31 "<|eot_id|>" LLAMA3_TURN("user"),
         "<|eot_id|>" LLAMA3_TURN("assistant"), "", "<|eot_id|>" LLAMA3_TURN("user")),
    CHAT("<|start_header_id|>", NULL, "llama3", LLAMA3_TURN("user"),
         "<|eot_id|>" LLAMA3_TURN("assistant"), "", "<|eot_id|>" LLAMA3_TURN("user")),
    CHAT("<start_of_turn>", NULL, "gemma", "<start_of_turn>user\n",
         "<end_of_turn>\n<start_of_turn>model\n", "", "<end_of_turn>\n<start_of_turn>user\n"),
    CHAT("|>' + message['content'] + '<|end|>'", "<|assistant|>", "phi4", "<|user|>",
         "<|end|><|assistant|>", "", "<|end|><|user|>"),
    CHAT("<|user|>", "<|end|>", "phi3", "<|user|>\n", "<|end|>\n<|assistant|>\n", "",
         "<|end|>\n<|user|>\n"),
    CHAT("[INST] ", " [/INST]", "llama2", "[INST] ", " [/INST]", " ", "</s>[INST] "),
    CHAT("[INST] ", NULL, "mistral", "[INST] ", "[/INST]", " ", "</s>[INST] "),
    CHAT("[INST]", NULL, "mistral", "[INST]", "[/INST]", "", "</s>[INST]"),
};

static const llm_template completion = {
    "completion", TEXT(""), TEXT("answer:"), TEXT(" "), TEXT(" "), TEXT("\n"), false};

static bool occurs(str program, const char *marker) {
    return !marker || (program.n && memmem(program.p, program.n, marker, strlen(marker)) != NULL);
}

const llm_template *template_for_chat(const gguf *g, const char **family) {
    str program;
    *family = "none";
    if (!gguf_get_str(g, "tokenizer.chat_template", &program))
        return NULL;
    for (size_t i = 0; i < BASE_COUNT(chat_rows); i++) {
        const chat_row *row = &chat_rows[i];
        if (occurs(program, row->marker) && occurs(program, row->and_marker)) {
            *family = row->t.name;
            return &row->t;
        }
    }
    return NULL;
}

const llm_template *template_completion(void) {
    return &completion;
}
