/* What mock_nvml.c knows: the state file, read, and what every function begins with. */

#define _DEFAULT_SOURCE /* not _GNU_SOURCE: with that, new compilers make it need a new glibc */
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_GPUS 64
#define MOST_RULES 64
#define MOST_LINKS 18
#define MOST_PROCESSES 128
#define WORD 96
#define STEP_MS 5
#define EVENT_STEP_MS 100 /* the real one sleeps until there is an event; MOCK_NVML_EVENT_STEP_MS makes it cheaper */
#define YOUNG_MS 50
#define UNKNOWN LLONG_MIN

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };
enum { XID_EVENT = 8 };
enum { FAIL, SLOW, HANG };
enum { COMPUTES, DRAWS, OF_MPS };

typedef struct {
    char uuid[WORD];
    int level;
} Near;

typedef struct {
    int kind;
    unsigned pid;
    long long bytes, sm;
} Process;

typedef struct {
    unsigned pid;
    unsigned long long at;
    unsigned sm;
} Sample;

typedef struct {
    char uuid[WORD], name[WORD], bus[32], nvlink[MOST_LINKS][32];
    Near near[MOST_LINKS];
    int nears;
    unsigned long long memory;
    int minor, major, second, mig, pending, action, lost, deaf, mode;
    long long used, reserved, util, memory_util, encoder, decoder, temp, memtemp, slowdown, margin, power, powercap;
    long long energy, sm_clock, memory_clock, replays, correctable, uncorrectable, remap_failure;
    int tells, processes, samples;
    Process process[MOST_PROCESSES];
    Sample sample[MOST_PROCESSES];
} Gpu;

typedef struct {
    int kind, gpu; /* -1: of every call */
    char function[WORD];
    int value;
} Rule;

typedef struct {
    char driver[80];
    int cuda, gpus, rules;
    Gpu gpu[MOST_GPUS];
    Rule rule[MOST_RULES];
} State;

typedef struct {
    char uuid[WORD];
} Slot; /* a handle points to one */

typedef struct {
    long offset; /* how much of the XID file was told */
    int heard[MOST_GPUS];
} EventSet;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static State state;
static int opened;
static int shown;
static Slot slots[MOST_GPUS];

/* --- the state file */

static void copy(char *into, size_t size, const char *from) { snprintf(into, size, "%s", from); }

static int understand_rule(int kind, const char *value) {
    if (state.rules == MOST_RULES) return 0;
    Rule *rule = &state.rule[state.rules++];
    rule->kind = kind;
    rule->gpu = state.gpus - 1;
    rule->value = 0;
    return sscanf(value, "%95s %d", rule->function, &rule->value) == (kind == HANG ? 1 : 2);
}

static void forget_figures(Gpu *gpu) {
    gpu->reserved = gpu->util = gpu->memory_util = gpu->encoder = gpu->decoder = UNKNOWN;
    gpu->temp = gpu->memtemp = gpu->slowdown = gpu->margin = UNKNOWN;
    gpu->power = gpu->powercap = gpu->energy = gpu->sm_clock = gpu->memory_clock = UNKNOWN;
    gpu->replays = gpu->correctable = gpu->uncorrectable = gpu->remap_failure = UNKNOWN;
}

static int understand_process(Gpu *gpu, int kind, const char *value) {
    char bytes[WORD];
    if (gpu->processes == MOST_PROCESSES) return 0;
    Process *process = &gpu->process[gpu->processes++];
    *process = (Process){.kind = kind, .bytes = UNKNOWN, .sm = UNKNOWN};
    gpu->tells = 1;
    if (sscanf(value, "%u %95s %lld", &process->pid, bytes, &process->sm) < 2) return 0;
    return !strcmp(bytes, "-") || sscanf(bytes, "%lld", &process->bytes) == 1;
}

static int understand_sample(Gpu *gpu, const char *value) {
    if (gpu->samples == MOST_PROCESSES) return 0;
    Sample *sample = &gpu->sample[gpu->samples++];
    return sscanf(value, "%u %llu %u", &sample->pid, &sample->at, &sample->sm) == 3;
}

static int understand_figure(Gpu *gpu, const char *key, const char *value) {
    struct {
        const char *key;
        long long *figure;
    } single[] = {
        {"used", &gpu->used},         {"reserved", &gpu->reserved}, {"encoder", &gpu->encoder},
        {"decoder", &gpu->decoder},   {"temp", &gpu->temp},         {"memtemp", &gpu->memtemp},
        {"slowdown", &gpu->slowdown}, {"margin", &gpu->margin},     {"power", &gpu->power},
        {"powercap", &gpu->powercap}, {"energy", &gpu->energy},     {"replays", &gpu->replays},
    };
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (!strcmp(key, single[i].key)) return sscanf(value, "%lld", single[i].figure) == 1;
    if (!strcmp(key, "util")) return sscanf(value, "%lld %lld", &gpu->util, &gpu->memory_util) == 2;
    if (!strcmp(key, "clock")) return sscanf(value, "%lld %lld", &gpu->sm_clock, &gpu->memory_clock) == 2;
    if (!strcmp(key, "remapped"))
        return sscanf(value, "%lld %lld %lld", &gpu->correctable, &gpu->uncorrectable, &gpu->remap_failure) == 3;
    if (!strcmp(key, "processes")) return sscanf(value, "%d", &gpu->tells) == 1;
    if (!strcmp(key, "process")) return understand_process(gpu, COMPUTES, value);
    if (!strcmp(key, "graphics")) return understand_process(gpu, DRAWS, value);
    if (!strcmp(key, "mps")) return understand_process(gpu, OF_MPS, value);
    return !strcmp(key, "sample") && understand_sample(gpu, value);
}

static int understand(const char *key, const char *value) {
    if (!strcmp(key, "driver")) return copy(state.driver, sizeof state.driver, value), 1;
    if (!strcmp(key, "cuda")) return sscanf(value, "%d", &state.cuda) == 1;
    if (!strcmp(key, "fail")) return understand_rule(FAIL, value);
    if (!strcmp(key, "slow")) return understand_rule(SLOW, value);
    if (!strcmp(key, "hang")) return understand_rule(HANG, value);
    if (!strcmp(key, "gpu")) {
        if (state.gpus == MOST_GPUS) return 0;
        Gpu *made = &state.gpu[state.gpus++];
        memset(made, 0, sizeof *made);
        made->minor = made->major = made->mig = made->action = made->mode = -1;
        forget_figures(made);
        copy(made->name, sizeof made->name, "Mock GPU");
        copy(made->uuid, sizeof made->uuid, value);
        return 1;
    }
    if (!state.gpus) return 0;
    Gpu *gpu = &state.gpu[state.gpus - 1];
    if (!strcmp(key, "name")) return copy(gpu->name, sizeof gpu->name, value), 1;
    if (!strcmp(key, "bus")) return copy(gpu->bus, sizeof gpu->bus, value), 1;
    if (!strcmp(key, "memory")) return sscanf(value, "%llu", &gpu->memory) == 1;
    if (!strcmp(key, "minor")) return sscanf(value, "%d", &gpu->minor) == 1;
    if (!strcmp(key, "capability")) return sscanf(value, "%d.%d", &gpu->major, &gpu->second) == 2;
    if (!strcmp(key, "mig")) {
        int numbers = sscanf(value, "%d %d", &gpu->mig, &gpu->pending);
        if (numbers == 1) gpu->pending = gpu->mig;
        return numbers >= 1;
    }
    if (!strcmp(key, "nvlink")) {
        unsigned number = MOST_LINKS;
        char place[32];
        if (sscanf(value, "%u %31s", &number, place) != 2 || number >= MOST_LINKS) return 0;
        return copy(gpu->nvlink[number], sizeof gpu->nvlink[number], place), 1;
    }
    if (!strcmp(key, "near")) {
        if (gpu->nears == MOST_LINKS) return 0;
        Near *near = &gpu->near[gpu->nears++];
        return sscanf(value, "%95s %d", near->uuid, &near->level) == 2;
    }
    if (!strcmp(key, "action")) return sscanf(value, "%d", &gpu->action) == 1;
    if (!strcmp(key, "mode")) return sscanf(value, "%d", &gpu->mode) == 1;
    if (!strcmp(key, "lost")) return sscanf(value, "%d", &gpu->lost) == 1;
    if (!strcmp(key, "deaf")) return sscanf(value, "%d", &gpu->deaf) == 1;
    return understand_figure(gpu, key, value);
}

static int parse(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) return NOT_LOADED;
    int code = OK;
    char line[512];
    state.cuda = state.gpus = state.rules = 0;
    *state.driver = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#') continue;
        char *equals = strchr(line, '=');
        if (equals) *equals = 0;
        if (!equals || !understand(line, equals + 1)) {
            fprintf(stderr, "mock NVML: %s: cannot understand the line of \"%s\"\n", path, line);
            code = INVALID;
        }
    }
    fclose(file);
    return code;
}

/* A file this young may be replaced without a change of its times: their clock has steps. */
static int is_young(const struct statx *file) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long long seconds = now.tv_sec - file->stx_mtime.tv_sec;
    return seconds * 1000 + (now.tv_nsec - (long long)file->stx_mtime.tv_nsec) / 1000000 < YOUNG_MS;
}

/* Makes `state` that of the file, which is parsed only if it is not the one parsed before. With the lock. */
static int load(void) {
    static char parsed_path[4096];
    static struct statx parsed;
    static int code, young;
    const char *path = getenv("MOCK_NVML_STATE");
    struct statx file;
    /* not stat(): with that, new compilers make it need a new glibc */
    if (!path || syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS, &file))
        return *parsed_path = 0, NOT_LOADED;
    int same = parsed.stx_ino == file.stx_ino && parsed.stx_size == file.stx_size &&
               parsed.stx_mtime.tv_sec == file.stx_mtime.tv_sec && parsed.stx_mtime.tv_nsec == file.stx_mtime.tv_nsec;
    if (same && !young && !strcmp(parsed_path, path)) return code;
    copy(parsed_path, sizeof parsed_path, path);
    parsed = file;
    young = is_young(&file);
    return code = parse(path);
}

static int position(const char *uuid) {
    for (int i = 0; i < state.gpus; i++)
        if (!strcmp(state.gpu[i].uuid, uuid)) return i;
    return -1;
}

static const Rule *rule(int kind, const char *function, int gpu) {
    for (int i = 0; i < state.rules; i++) {
        const Rule *found = &state.rule[i];
        int concerned = found->gpu == -1 || found->gpu == gpu;
        if (concerned && found->kind == kind && !strcmp(found->function, function)) return found;
    }
    return NULL;
}

static void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

/* Every function begins here. `gpu` gets what is known of the GPU of `handle`; both may be NULL. */
static int begin(const char *function, const Slot *handle, Gpu *gpu) {
    for (int waited = 0;; sleep_ms(STEP_MS)) {
        pthread_mutex_lock(&lock);
        int code = load();
        int at = handle && !code ? position(handle->uuid) : -1;
        const Rule *slow = code ? NULL : rule(SLOW, function, at);
        const Rule *fail = code ? NULL : rule(FAIL, function, at);
        int hangs = !code && rule(HANG, function, at);
        int slow_ms = slow && !waited ? slow->value : 0;
        if (fail) code = fail->value;
        if (gpu && at >= 0) *gpu = state.gpu[at];
        if (gpu && at < 0) gpu->lost = 1;
        pthread_mutex_unlock(&lock);
        waited = 1;
        if (slow_ms) {
            sleep_ms(slow_ms);
            continue; /* as it is by now */
        }
        if (!hangs) return code;
    }
}

static int about(const char *function, const Slot *handle, Gpu *gpu) {
    int code = begin(function, handle, gpu);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    if (!handle) return INVALID;
    return gpu->lost ? LOST : OK;
}
