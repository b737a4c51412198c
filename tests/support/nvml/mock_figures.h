/* What the GPUs of mock_nvml.c do: the functions that tell the figures of its state file. */

#define MEMORY_2 0x02000028
#define TEMPERATURE_1 0x0100000c
#define MARGIN_1 0x01000008
#define UTILISATION_1 0x01000018
#define NOT_AVAILABLE (~0ULL) /* NVML's word for an unknown amount of memory */

enum { MEMORY_TEMPERATURE_FIELD = 82, RECOVERY_ACTION = 230 };
enum { SLOWDOWN_THRESHOLD = 1, SM_CLOCK = 1, MEMORY_CLOCK = 2, UNSIGNED_INT = 1, ANOTHER_VERSION = 25 };

static int is_mig(const Gpu *gpu) { return gpu->mig == 1; }

static int tell(long long figure, unsigned *into) {
    if (figure == UNKNOWN) return NOT_SUPPORTED;
    *into = (unsigned)figure;
    return OK;
}

/* --- memory */

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

int nvmlDeviceGetMemoryInfo(Slot *handle, Memory *memory) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (!gpu.memory) return NOT_SUPPORTED;
    unsigned long long taken = (unsigned long long)(gpu.used + (gpu.reserved == UNKNOWN ? 0 : gpu.reserved));
    *memory = (Memory){gpu.memory, gpu.memory - taken, taken};
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(Slot *handle, Memory2 *memory) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (memory->version != MEMORY_2) return ANOTHER_VERSION;
    if (!gpu.memory || gpu.reserved == UNKNOWN) return NOT_SUPPORTED;
    memory->total = gpu.memory;
    memory->reserved = (unsigned long long)gpu.reserved;
    memory->used = (unsigned long long)gpu.used;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

/* --- utilisation */

typedef struct {
    unsigned gpu, memory;
} Rates;

int nvmlDeviceGetUtilizationRates(Slot *handle, Rates *rates) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (is_mig(&gpu) || gpu.util == UNKNOWN) return NOT_SUPPORTED;
    *rates = (Rates){(unsigned)gpu.util, (unsigned)gpu.memory_util};
    return OK;
}

int nvmlDeviceGetEncoderUtilization(Slot *handle, unsigned *percent, unsigned *period_us) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    *period_us = 167000;
    return code ? code : is_mig(&gpu) ? NOT_SUPPORTED : tell(gpu.encoder, percent);
}

int nvmlDeviceGetDecoderUtilization(Slot *handle, unsigned *percent, unsigned *period_us) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    *period_us = 167000;
    return code ? code : is_mig(&gpu) ? NOT_SUPPORTED : tell(gpu.decoder, percent);
}

/* --- temperature, power, clocks, errors */

typedef struct {
    unsigned version, sensor;
    int degrees;
} Temperature;

typedef struct {
    unsigned version;
    int degrees;
} Margin;

int nvmlDeviceGetTemperature(Slot *handle, unsigned sensor, unsigned *degrees) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : sensor ? INVALID : tell(gpu.temp, degrees);
}

int nvmlDeviceGetTemperatureV(Slot *handle, Temperature *temperature) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (temperature->version != TEMPERATURE_1) return ANOTHER_VERSION;
    return temperature->sensor ? INVALID : tell(gpu.temp, (unsigned *)&temperature->degrees);
}

int nvmlDeviceGetTemperatureThreshold(Slot *handle, unsigned which, unsigned *degrees) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : which != SLOWDOWN_THRESHOLD ? NOT_SUPPORTED : tell(gpu.slowdown, degrees);
}

int nvmlDeviceGetMarginTemperature(Slot *handle, Margin *margin) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    return margin->version != MARGIN_1 ? ANOTHER_VERSION : tell(gpu.margin, (unsigned *)&margin->degrees);
}

int nvmlDeviceGetPowerUsage(Slot *handle, unsigned *milliwatts) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : tell(gpu.power, milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(Slot *handle, unsigned *milliwatts) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : tell(gpu.powercap, milliwatts);
}

int nvmlDeviceGetTotalEnergyConsumption(Slot *handle, unsigned long long *millijoules) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.energy == UNKNOWN) return NOT_SUPPORTED;
    *millijoules = (unsigned long long)gpu.energy;
    return OK;
}

int nvmlDeviceGetClockInfo(Slot *handle, unsigned which, unsigned *mhz) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    return which == SM_CLOCK ? tell(gpu.sm_clock, mhz) : which == MEMORY_CLOCK ? tell(gpu.memory_clock, mhz) : INVALID;
}

int nvmlDeviceGetPcieReplayCounter(Slot *handle, unsigned *count) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    return code ? code : tell(gpu.replays, count);
}

int nvmlDeviceGetRemappedRows(Slot *handle, unsigned *correctable, unsigned *other, unsigned *waits, unsigned *failed) {
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    if (gpu.correctable == UNKNOWN) return NOT_SUPPORTED;
    *correctable = (unsigned)gpu.correctable;
    *other = (unsigned)gpu.uncorrectable;
    *waits = 0;
    *failed = (unsigned)gpu.remap_failure;
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
    Gpu gpu;
    int code = about(__func__, handle, &gpu);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        long long value = UNKNOWN;
        if (fields[i].field == MEMORY_TEMPERATURE_FIELD) value = gpu.memtemp;
        if (fields[i].field == RECOVERY_ACTION && gpu.action >= 0) value = gpu.action;
        fields[i].code = value == UNKNOWN ? NOT_SUPPORTED : OK;
        fields[i].type = UNSIGNED_INT;
        fields[i].value.wide = value == UNKNOWN ? 1 : (unsigned)value; /* 1: not to be read */
    }
    return OK;
}

/* --- processes */

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} Running;

static int running(const char *function, Slot *handle, int kind, unsigned *count, Running *into) {
    Gpu gpu;
    int code = about(function, handle, &gpu);
    if (code) return code;
    if (!gpu.tells) return NOT_SUPPORTED;
    unsigned room = *count, found = 0;
    for (int i = 0; i < gpu.processes; i++) {
        const Process *process = &gpu.process[i];
        if (process->kind != kind) continue;
        if (into && found < room) {
            unsigned long long bytes = process->bytes == UNKNOWN ? NOT_AVAILABLE : (unsigned long long)process->bytes;
            into[found] = (Running){process->pid, bytes, ~0U, ~0U};
        }
        found++;
    }
    *count = found;
    return found > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Slot *handle, unsigned *count, Running *into) {
    return running(__func__, handle, COMPUTES, count, into);
}

int nvmlDeviceGetComputeRunningProcesses_v3(Slot *handle, unsigned *count, Running *into) {
    return running(__func__, handle, COMPUTES, count, into);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(Slot *handle, unsigned *count, Running *into) {
    return running(__func__, handle, DRAWS, count, into);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Slot *handle, unsigned *count, Running *into) {
    return running(__func__, handle, DRAWS, count, into);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v2(Slot *handle, unsigned *count, Running *into) {
    return running(__func__, handle, OF_MPS, count, into);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Slot *handle, unsigned *count, Running *into) {
    return running(__func__, handle, OF_MPS, count, into);
}

/* Those that are newer than `seen`; a process that computes now has a new one at every call. */
static int new_samples(const Gpu *gpu, unsigned long long seen, Sample *into) {
    struct timespec now;
    int found = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < gpu->samples; i++)
        if (gpu->sample[i].at > seen) into[found++] = gpu->sample[i];
    for (int i = 0; i < gpu->processes; i++)
        if (gpu->process[i].sm != UNKNOWN) {
            unsigned long long at = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
            into[found++] = (Sample){gpu->process[i].pid, at, (unsigned)gpu->process[i].sm};
        }
    return found;
}

static int utilisation(const char *function, Slot *handle, unsigned long long seen, Sample *into, unsigned *found) {
    Gpu gpu;
    int code = about(function, handle, &gpu);
    if (code) return code;
    if (is_mig(&gpu) || !(gpu.tells || gpu.samples)) return NOT_SUPPORTED;
    *found = (unsigned)new_samples(&gpu, seen, into);
    return *found ? OK : NOT_FOUND;
}

typedef struct {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
} Utilisation;

int nvmlDeviceGetProcessUtilization(Slot *handle, Utilisation *into, unsigned *count, unsigned long long seen) {
    Sample samples[2 * MOST_PROCESSES];
    unsigned found, room = *count;
    int code = utilisation(__func__, handle, seen, samples, &found);
    if (code) return code;
    *count = found;
    if (!into || room < found) return TOO_SMALL;
    for (unsigned i = 0; i < found; i++) into[i] = (Utilisation){samples[i].pid, samples[i].at, samples[i].sm, 0, 0, 0};
    return OK;
}

typedef struct {
    unsigned long long at;
    unsigned pid, sm, memory, encoder, decoder, jpeg, flow;
} NewUtilisation;

typedef struct {
    unsigned version, count;
    unsigned long long seen;
    NewUtilisation *into;
} Utilisations;

int nvmlDeviceGetProcessesUtilizationInfo(Slot *handle, Utilisations *asked) {
    Sample samples[2 * MOST_PROCESSES];
    unsigned found, room = asked->count;
    if (asked->version != UTILISATION_1) return ANOTHER_VERSION;
    int code = utilisation(__func__, handle, asked->seen, samples, &found);
    if (code) return code;
    asked->count = found;
    if (!asked->into || room < found) return TOO_SMALL;
    for (unsigned i = 0; i < found; i++)
        asked->into[i] = (NewUtilisation){samples[i].at, samples[i].pid, samples[i].sm, 0, 0, 0, 0, 0};
    return OK;
}
