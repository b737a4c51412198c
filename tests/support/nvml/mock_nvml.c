/* A stand-in for libnvidia-ml.so.1: GPUs that a text file describes, for tests through the real nvidia-ml-py.
 *
 * Has the functions gpushare calls and no others; build.py builds it. Not a model of NVML beyond that. mock_state.h
 * reads what is described here, mock_figures.h has the functions that tell what GPUs do.
 *
 * The file is named by the environment variable MOCK_NVML_STATE. Every call looks whether it has changed, so whoever
 * changes it changes the GPUs of a running process. Replace it as a whole (write another file, then rename). Without it
 * every call says that the driver is not loaded. A line is KEY=VALUE, empty, or begins with #:
 *
 *     driver=550.54.14                     the driver's version
 *     cuda=12040                           the newest CUDA that it serves: 12.4
 *     gpu=GPU-11111111-...                 a GPU, in the order of NVML's indices; the lines below it are about it
 *     memory=17066885120                   bytes
 *     name=Tesla T4
 *     minor=0                              of /dev/nvidia0
 *     bus=00000000:3B:00.0
 *     capability=7.5
 *     mig=1                                1: MIG is enabled, 0: it is not; a second number: from the next reset on
 *     nvlink=0 00000000:3C:00.0            NVLink 0 is active and leads to that place
 *     near=GPU-22222222-... 10             the nearest part of PCIe that it shares with that GPU, as NVML numbers them
 *     mode=0                               compute mode, until one is set: that is kept in MOCK_NVML_STATE.mode.UUID, so
 *                                          it outlives the process. Not to be set while MIG is enabled
 *     action=1                             recovery action the driver asks for; 0: none
 *
 *     used=8589934592                      bytes, without those that the driver keeps for itself; not said: 0
 *     reserved=314572800                   bytes that the driver keeps for itself; version 1 counts them as used, and
 *                                          version 2 of that question is supported only where this line is
 *     util=80 35                           percent: GPU, memory; not supported while MIG is enabled, as the next two
 *     encoder=12
 *     decoder=7
 *     temp=61                              degrees Celsius
 *     memtemp=70
 *     slowdown=90                          from that temperature on the GPU slows down
 *     margin=29                            how many degrees are left until it slows down
 *     power=68000                          milliwatts
 *     powercap=70000
 *     energy=123456789                     millijoules
 *     clock=1590 5001                      MHz: SM, memory
 *     replays=3                            of PCIe
 *     remapped=2 1 0                       rows remapped after correctable and other errors; 1: a remapping failed
 *     processes=1                          the GPU says which processes use it; one of the next three says so, too
 *     process=4711 536870912 40            a process that computes: pid, bytes (-: unknown), percent of SM time now
 *                                          (not said: it has not computed)
 *     graphics=4711 536870912 40           one that draws
 *     mps=4711 536870912 40                a client of MPS
 *     sample=4711 1000000 40               percent of SM time of a process at that microsecond, for who has seen only
 *                                          older ones; percents of processes are not supported while MIG is enabled
 *
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

#include "mock_state.h"
#include "mock_figures.h"

static int answer(char *into, unsigned size, const char *text) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(into, text);
    return OK;
}

/* --- the library */

int nvmlInitWithFlags(unsigned flags) {
    int code = begin(__func__, NULL, NULL);
    if (code) return code;
    pthread_mutex_lock(&lock);
    if (!state.gpus && !(flags & 1)) {
        code = NOT_FOUND;
    } else if (!opened++) {
        shown = state.gpus;
        for (int i = 0; i < shown; i++) strcpy(slots[i].uuid, state.gpu[i].uuid);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int nvmlShutdown(void) {
    int code = begin(__func__, NULL, NULL);
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
    int code = begin(__func__, NULL, NULL);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    pthread_mutex_lock(&lock);
    code = answer(version, size, state.driver);
    pthread_mutex_unlock(&lock);
    return code;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int code = begin(__func__, NULL, NULL);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    pthread_mutex_lock(&lock);
    *version = state.cuda;
    pthread_mutex_unlock(&lock);
    return *version ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    int code = begin(__func__, NULL, NULL);
    if (code) return code;
    if (!opened) return UNINITIALIZED;
    *count = (unsigned)shown;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Slot **handle) {
    Gpu gpu;
    if (index >= (unsigned)shown) return opened ? INVALID : UNINITIALIZED;
    int code = about(__func__, &slots[index], &gpu);
    if (!code) *handle = &slots[index];
    return code;
}

int nvmlDeviceGetUUID(Slot *handle, char *uuid, unsigned size) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : answer(uuid, size, gpu.uuid);
}

int nvmlDeviceGetName(Slot *handle, char *name, unsigned size) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : answer(name, size, gpu.name);
}

int nvmlDeviceGetMinorNumber(Slot *handle, unsigned *minor) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.minor < 0) return NOT_SUPPORTED;
    *minor = (unsigned)gpu.minor;
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
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (!*gpu.bus) return NOT_SUPPORTED;
    place(pci, gpu.bus);
    return OK;
}

int nvmlDeviceGetNvLinkState(Slot *handle, unsigned number, unsigned *active) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (number >= MOST_LINKS) return INVALID;
    *active = *gpu.nvlink[number] != 0;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Slot *handle, unsigned number, Pci *pci) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (number >= MOST_LINKS || !*gpu.nvlink[number]) return INVALID;
    place(pci, gpu.nvlink[number]);
    return OK;
}

int nvmlDeviceGetTopologyCommonAncestor(Slot *handle, Slot *other, unsigned *level) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    for (int i = 0; i < gpu.nears; i++)
        if (!strcmp(gpu.near[i].uuid, other->uuid)) return *level = (unsigned)gpu.near[i].level, OK;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetCudaComputeCapability(Slot *handle, int *major, int *second) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.major < 0) return NOT_SUPPORTED;
    *major = gpu.major;
    *second = gpu.second;
    return OK;
}

int nvmlDeviceGetMigMode(Slot *handle, unsigned *current, unsigned *pending) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.mig < 0) return NOT_SUPPORTED;
    *current = (unsigned)gpu.mig;
    *pending = (unsigned)gpu.pending;
    return OK;
}

/* --- compute modes */

static void mode_path(char *into, size_t size, const char *uuid) {
    snprintf(into, size, "%s.mode.%s", getenv("MOCK_NVML_STATE"), uuid);
}

int nvmlDeviceGetComputeMode(Slot *handle, unsigned *mode) {
    Gpu gpu;
    char path[4096];
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.mode < 0) return NOT_SUPPORTED;
    *mode = (unsigned)gpu.mode;
    mode_path(path, sizeof path, gpu.uuid);
    FILE *file = fopen(path, "re");
    if (file) {
        int read = fscanf(file, "%u", mode);
        fclose(file);
        if (read != 1) return 999;
    }
    return OK;
}

int nvmlDeviceSetComputeMode(Slot *handle, unsigned mode) {
    Gpu gpu;
    char path[4096];
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.mode < 0 || gpu.mig == 1) return NOT_SUPPORTED;
    if (mode > 3 || mode == 1) return INVALID; /* 1 is of old drivers */
    mode_path(path, sizeof path, gpu.uuid);
    FILE *file = fopen(path, "we");
    if (!file) return 999;
    fprintf(file, "%u\n", mode);
    fclose(file);
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
    int code = begin(__func__, NULL, NULL);
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
    int code = begin(__func__, NULL, NULL);
    if (code) return code;
    __atomic_fetch_sub(&mock_event_sets, 1, __ATOMIC_SEQ_CST);
    free(set);
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(Slot *handle, unsigned long long *types) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (!code) *types = gpu.deaf ? 0 : XID_EVENT;
    return code;
}

int nvmlDeviceRegisterEvents(Slot *handle, unsigned long long types, EventSet *set) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.deaf || types != XID_EVENT) return NOT_SUPPORTED;
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

static int any_lost(const EventSet *set) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < shown && !found; i++) {
        int at = position(slots[i].uuid);
        found = set->heard[i] && (at < 0 || state.gpu[at].lost);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned timeout_ms) {
    struct timespec start, now;
    const char *told = getenv("MOCK_NVML_EVENT_STEP_MS");
    int step = told && atoi(told) > 0 ? atoi(told) : EVENT_STEP_MS;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        int code = begin(__func__, NULL, NULL);
        if (code) return code;
        if (!opened) return UNINITIALIZED;
        if (next_event(set, event)) return OK;
        if (any_lost(set)) return LOST;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long left = (long)timeout_ms - (now.tv_sec - start.tv_sec) * 1000 - (now.tv_nsec - start.tv_nsec) / 1000000;
        if (left <= 0) return TIMEOUT;
        sleep_ms(left < step ? (int)left : step);
    }
}
