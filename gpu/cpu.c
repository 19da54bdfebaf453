#include "engine_int.h"
static int cpu_open(llm_engine *engine, const llm_engine_options *options, err *e) {
    (void)engine;
    return err_set(e, ERR_UNSUPPORTED, "%s: not yet", options->path);
}
static void cpu_close(llm_engine *engine) {
    (void)engine;
}
const llm_backend backend_cpu = {.name = "cpu", .open = cpu_open, .close = cpu_close};
