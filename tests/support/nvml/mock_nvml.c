/* A stand-in for libnvidia-ml.so.1: GPUs that a text file describes, for tests through the real nvidia-ml-py.
 *
 * Has the functions gpushare calls and no others; build.py builds it. Not a model of NVML beyond that.
 *
 * The file is named by the environment variable MOCK_NVML_STATE and read anew at every call, so whoever changes it
 * changes the GPUs of a running process. Replace it as a whole (write another file, then rename). Without it every
 * call says that the driver is not loaded. A line is KEY=VALUE, empty, or begins with #:
 *
 *     driver=550.54.14                     the driver's version
 *     gpu=GPU-11111111-...                 a GPU, in the order of NVML's indices; the lines below it are about it
 *     memory=17066885120                   bytes
 *     name=Tesla T4
 *     minor=0                              of /dev/nvidia0
 *     bus=00000000:3B:00.0
 *     capability=7.5
 *     mig=1                                1: MIG is enabled, 0: it is not; a second number: from the next reset on
 *     nvlink=0 00000000:3C:00.0            NVLink 0 is active and leads to that place
 *     near=GPU-22222222-... 10             the nearest part of PCIe that it shares with that GPU, as NVML numbers them
 *     action=1                             recovery action the driver asks for; 0: none
 *     lost=1                               every question about it: GPU is lost
 *     deaf=1                               it reports no XIDs
 *     fail=nvmlDeviceGetMemoryInfo 999     that function returns that code
 *     slow=nvmlDeviceGetName 50            that function takes so many milliseconds
 *     hang=nvmlDeviceGetName               that function does not return while this line is there
 *
 * What a GPU does not say is "not supported" there, except lost, deaf (0) and name. fail, slow and hang above the first
 * gpu= are about every call, below it about that GPU only; functions are named as C symbols (nvmlInitWithFlags,
 * nvmlDeviceGetCount_v2, nvmlEventSetWait_v2, ...).
 *
 * As with the real one, which GPUs there are is found out when NVML is initialised: one whose gpu= line goes away is
 * lost, one that comes is not there, until the last shutdown and the next initialisation.
 *
 * XIDs are lines "UUID CODE", or "- CODE" for one of no particular GPU, appended to the file MOCK_NVML_STATE.xid. Each
 * is told once to every event set that was created before it was written. Once a GPU is lost, its event set says only
 * that. To register a GPU twice is an error.
 *
 * A line it does not understand is named on stderr, and every call fails.
 */

#define _DEFAULT_SOURCE /* not _GNU_SOURCE: with that, new compilers make it need a new glibc */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_GPUS 64
#define MOST_RULES 64
#define MOST_LINKS 18
#define WORD 96
#define STEP_MS 5

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };
enum { XID_EVENT = 8, RECOVERY_ACTION = 230, UNSIGNED_INT = 1 };
enum { FAIL, SLOW, HANG };

typedef struct {
    char uuid[WORD];
    int level;
} Near;

typedef struct {
    char uuid[WORD], name[WORD], bus[32], nvlink[MOST_LINKS][32];
    Near near[MOST_LINKS];
    int nears;
    unsigned long long memory;
    int minor, major, second, mig, pending, action, lost, deaf;
} Gpu;

typedef struct {
    int kind, gpu; /* -1: of every call */
    char function[WORD];
    int value;
} Rule;

typedef struct {
    char driver[80];
    int gpus, rules;
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int opened;
static int shown;
static Slot slots[MOST_GPUS];

/* --- the state file */

static void copy(char *into, size_t size, const char *from) { snprintf(into, size, "%s", from); }

static int understand_rule(State *state, int kind, const char *value) {
    if (state->rules == MOST_RULES) return 0;
    Rule *rule = &state->rule[state->rules++];
    rule->kind = kind;
    rule->gpu = state->gpus - 1;
    rule->value = 0;
    return sscanf(value, "%95s %d", rule->function, &rule->value) == (kind == HANG ? 1 : 2);
}

static int understand(State *state, const char *key, const char *value) {
    if (!strcmp(key, "driver")) return copy(state->driver, sizeof state->driver, value), 1;
    if (!strcmp(key, "fail")) return understand_rule(state, FAIL, value);
    if (!strcmp(key, "slow")) return understand_rule(state, SLOW, value);
    if (!strcmp(key, "hang")) return understand_rule(state, HANG, value);
    if (!strcmp(key, "gpu")) {
        if (state->gpus == MOST_GPUS) return 0;
        Gpu *made = &state->gpu[state->gpus++];
        memset(made, 0, sizeof *made);
        made->minor = made->major = made->mig = made->action = -1;
        copy(made->name, sizeof made->name, "Mock GPU");
        copy(made->uuid, sizeof made->uuid, value);
        return 1;
    }
    if (!state->gpus) return 0;
    Gpu *gpu = &state->gpu[state->gpus - 1];
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
    if (!strcmp(key, "lost")) return sscanf(value, "%d", &gpu->lost) == 1;
    if (!strcmp(key, "deaf")) return sscanf(value, "%d", &gpu->deaf) == 1;
    return 0;
}

static int load(State *state) {
    const char *path = getenv("MOCK_NVML_STATE");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return NOT_LOADED;
    int code = OK;
    char line[512];
    memset(state, 0, sizeof *state);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#') continue;
        char *equals = strchr(line, '=');
        if (equals) *equals = 0;
        if (!equals || !understand(state, line, equals + 1)) {
            fprintf(stderr, "mock NVML: %s: cannot understand the line of \"%s\"\n", path, line);
            code = INVALID;
        }
    }
    fclose(file);
    return code;
}

static int position(const State *state, const char *uuid) {
    for (int i = 0; i < state->gpus; i++)
        if (!strcmp(state->gpu[i].uuid, uuid)) return i;
    return -1;
}

static const Rule *rule(const State *state, int kind, const char *function, int gpu) {
    for (int i = 0; i < state->rules; i++) {
        const Rule *found = &state->rule[i];
        int concerned = found->gpu == -1 || found->gpu == gpu;
        if (concerned && found->kind == kind && !strcmp(found->function, function)) return found;
    }
    return NULL;
}

static void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

/* Every function begins here. `handle` may be NULL; `gpu` is where that GPU stands in the state. */
static int begin(const char *function, const Slot *handle, State *state, int *gpu) {
    for (int waited = 0;; sleep_ms(STEP_MS)) {
        int code = load(state);
        if (code) return code;
        *gpu = handle ? position(state, handle->uuid) : -1;
        const Rule *slow = rule(state, SLOW, function, *gpu);
        if (slow && !waited) sleep_ms(slow->value);
        waited = 1;
        if (!rule(state, HANG, function, *gpu)) break;
    }
    const Rule *fail = rule(state, FAIL, function, *gpu);
    return fail ? fail->value : OK;
}

static int about(const char *function, const Slot *handle, State *state, Gpu **gpu) {
    int at, code = begin(function, handle, state, &at);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    if (!handle) return INVALID;
    if (at < 0 || state->gpu[at].lost) return LOST;
    *gpu = &state->gpu[at];
    return OK;
}

static int answer(char *into, unsigned size, const char *text) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(into, text);
    return OK;
}

/* --- the library */

int nvmlInitWithFlags(unsigned flags) {
    State state;
    int at, code = begin(__func__, NULL, &state, &at);
    if (code) return code;
    if (!state.gpus && !(flags & 1)) return NOT_FOUND;
    pthread_mutex_lock(&lock);
    if (!opened++) {
        shown = state.gpus;
        for (int i = 0; i < shown; i++) strcpy(slots[i].uuid, state.gpu[i].uuid);
    }
    pthread_mutex_unlock(&lock);
    return OK;
}

int nvmlShutdown(void) {
    State state;
    int at, code = begin(__func__, NULL, &state, &at);
    if (code) return code;
    pthread_mutex_lock(&lock);
    code = opened ? OK : UNINITIALIZED;
    if (opened) opened--;
    pthread_mutex_unlock(&lock);
    return code;
}

const char *nvmlErrorString(int code) {
    static __thread char text[32];
    snprintf(text, sizeof text, "mock error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    State state;
    int at, code = begin(__func__, NULL, &state, &at);
    return code ? code : !opened ? UNINITIALIZED : answer(version, size, state.driver);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    State state;
    int at, code = begin(__func__, NULL, &state, &at);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    *count = (unsigned)shown;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Slot **handle) {
    State state;
    Gpu *gpu;
    if (index >= (unsigned)shown) return opened ? INVALID : UNINITIALIZED;
    int code = about(__func__, &slots[index], &state, &gpu);
    if (!code) *handle = &slots[index];
    return code;
}

int nvmlDeviceGetUUID(Slot *handle, char *uuid, unsigned size) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    return code ? code : answer(uuid, size, gpu->uuid);
}

int nvmlDeviceGetName(Slot *handle, char *name, unsigned size) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    return code ? code : answer(name, size, gpu->name);
}

int nvmlDeviceGetMinorNumber(Slot *handle, unsigned *minor) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (gpu->minor < 0) return NOT_SUPPORTED;
    *minor = (unsigned)gpu->minor;
    return OK;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} Pci;

static void place(Pci *pci, const char *text) {
    memset(pci, 0, sizeof *pci);
    sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    copy(pci->text, sizeof pci->text, text);
}

int nvmlDeviceGetPciInfo_v3(Slot *handle, Pci *pci) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (!*gpu->bus) return NOT_SUPPORTED;
    place(pci, gpu->bus);
    return OK;
}

int nvmlDeviceGetNvLinkState(Slot *handle, unsigned number, unsigned *active) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (number >= MOST_LINKS) return INVALID;
    *active = *gpu->nvlink[number] != 0;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Slot *handle, unsigned number, Pci *pci) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (number >= MOST_LINKS || !*gpu->nvlink[number]) return INVALID;
    place(pci, gpu->nvlink[number]);
    return OK;
}

int nvmlDeviceGetTopologyCommonAncestor(Slot *handle, Slot *other, unsigned *level) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    for (int i = 0; i < gpu->nears; i++)
        if (!strcmp(gpu->near[i].uuid, other->uuid)) return *level = (unsigned)gpu->near[i].level, OK;
    return NOT_SUPPORTED;
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

int nvmlDeviceGetMemoryInfo(Slot *handle, Memory *memory) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (!gpu->memory) return NOT_SUPPORTED;
    *memory = (Memory){gpu->memory, gpu->memory, 0};
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(Slot *handle, int *major, int *second) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (gpu->major < 0) return NOT_SUPPORTED;
    *major = gpu->major;
    *second = gpu->second;
    return OK;
}

int nvmlDeviceGetMigMode(Slot *handle, unsigned *current, unsigned *pending) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (gpu->mig < 0) return NOT_SUPPORTED;
    *current = (unsigned)gpu->mig;
    *pending = (unsigned)gpu->pending;
    return OK;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, code;
    union {
        unsigned number;
        unsigned long long wide;
    } value;
} Field;

int nvmlDeviceGetFieldValues(Slot *handle, int count, Field *fields) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        int known = fields[i].field == RECOVERY_ACTION && gpu->action >= 0;
        fields[i].code = known ? OK : NOT_SUPPORTED;
        fields[i].type = UNSIGNED_INT;
        fields[i].value.wide = known ? (unsigned)gpu->action : 1; /* not to be read */
    }
    return OK;
}

/* --- events */

int mock_event_sets; /* created and not freed: tests look at it */

static FILE *xid_file(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s.xid", getenv("MOCK_NVML_STATE"));
    return fopen(path, "re");
}

int nvmlEventSetCreate(EventSet **set) {
    State state;
    int at, code = begin(__func__, NULL, &state, &at);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    __atomic_fetch_add(&mock_event_sets, 1, __ATOMIC_SEQ_CST);
    FILE *file = xid_file();
    if (file) {
        fseek(file, 0, SEEK_END);
        (*set)->offset = ftell(file);
        fclose(file);
    }
    return OK;
}

int nvmlEventSetFree(EventSet *set) {
    State state;
    int at, code = begin(__func__, NULL, &state, &at);
    if (code) return code;
    __atomic_fetch_sub(&mock_event_sets, 1, __ATOMIC_SEQ_CST);
    free(set);
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(Slot *handle, unsigned long long *types) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (!code) *types = gpu->deaf ? 0 : XID_EVENT;
    return code;
}

int nvmlDeviceRegisterEvents(Slot *handle, unsigned long long types, EventSet *set) {
    State state;
    Gpu *gpu;
    int code = about(__func__, handle, &state, &gpu);
    if (code) return code;
    if (gpu->deaf || types != XID_EVENT) return NOT_SUPPORTED;
    if (set->heard[handle - slots]) return INVALID;
    set->heard[handle - slots] = 1;
    return OK;
}

typedef struct {
    Slot *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} Event;

static int next_event(EventSet *set, Event *event) {
    FILE *file = xid_file();
    char line[256], uuid[WORD];
    int found = 0;
    if (!file) return 0;
    fseek(file, set->offset, SEEK_SET);
    while (!found && fgets(line, sizeof line, file) && strchr(line, '\n')) {
        set->offset = ftell(file);
        if (sscanf(line, "%95s %llu", uuid, &event->data) != 2) continue;
        event->type = XID_EVENT;
        event->device = NULL;
        event->gpu_instance = event->compute_instance = 0xffffffff;
        found = !strcmp(uuid, "-");
        for (int i = 0; i < shown && !found; i++)
            if (set->heard[i] && !strcmp(slots[i].uuid, uuid)) {
                event->device = &slots[i];
                found = 1;
            }
    }
    fclose(file);
    return found;
}

static int any_lost(const EventSet *set, const State *state) {
    for (int i = 0; i < shown; i++) {
        int at = position(state, slots[i].uuid);
        if (set->heard[i] && (at < 0 || state->gpu[at].lost)) return 1;
    }
    return 0;
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned timeout_ms) {
    State state;
    int at;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;; sleep_ms(STEP_MS)) {
        int code = begin(__func__, NULL, &state, &at);
        if (code) return code;
        if (!opened) return UNINITIALIZED;
        if (next_event(set, event)) return OK;
        if (any_lost(set, &state)) return LOST;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long passed = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (passed >= (long)timeout_ms) return TIMEOUT;
    }
}
