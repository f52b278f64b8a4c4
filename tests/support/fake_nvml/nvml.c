/* A libnvidia-ml.so.1 for tests. Every call reads its answer from the key=value file that
 * FAKE_NVML_STATE names: count=2, gpu0.util=97, gpu0.ret=15 (any code of nvmlReturn_t),
 * init_ret=18, hang_ms=30000. The functions are those that nvidia-ml-py binds, no more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u32 gpu, memory; } utilization_t;
typedef struct { u32 version, sensor; int temperature; } temperature_v1;
typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } process_t;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { u32 field, scope; long long stamp, latency; u32 type, ret; u64 value; } field_t;

enum { NO_SUPPORT = 3, SMALL = 7, VERSION = 25 };

static int text(const char *key, char *into, int size) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t n = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file))
        if (!strncmp(line, key, n) && line[n] == '=') {
            line[strcspn(line, "\n")] = 0;
            snprintf(into, size, "%s", line + n + 1);
            found = 1;
        }
    fclose(file);
    return found;
}

static long long number(const char *key, long long otherwise) {
    char value[64];
    return text(key, value, sizeof value) ? strtoll(value, NULL, 0) : otherwise;
}

static const char *name_of(void *gpu, const char *what) {
    static __thread char key[64];
    snprintf(key, sizeof key, "gpu%d.%s", (int)(size_t)gpu - 1, what);
    return key;
}

static long long of(void *gpu, const char *what, long long otherwise) {
    return number(name_of(gpu, what), otherwise);
}

static int hang(void) {
    usleep(number("hang_ms", 0) * 1000);
    return (int)number("init_ret", 0);
}

#define ASK(gpu) do { int ret = (int)of(gpu, "ret", 0); if (ret) return ret; } while (0)

int nvmlInitWithFlags(u32 flags) { (void)flags; return hang(); }
int nvmlInit_v2(void) { return hang(); }
int nvmlShutdown(void) { return 0; }

int nvmlSystemGetDriverVersion(char *into, u32 size) {
    if (!text("driver", into, size)) snprintf(into, size, "580.65.06");
    return 0;
}
int nvmlSystemGetNVMLVersion(char *into, u32 size) {
    if (!text("nvml", into, size)) snprintf(into, size, "13.580.65.06");
    return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *into) { *into = (int)number("cuda", 13000); return 0; }
int nvmlDeviceGetCount_v2(u32 *into) { *into = (u32)number("count", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, void **into) {
    if (index >= number("count", 1)) return 2;
    *into = (void *)(size_t)(index + 1);
    ASK(*into);
    return 0;
}
int nvmlDeviceGetName(void *gpu, char *into, u32 size) {
    ASK(gpu);
    if (!text(name_of(gpu, "name"), into, size)) snprintf(into, size, "NVIDIA Fake GPU");
    return 0;
}
int nvmlDeviceGetUUID(void *gpu, char *into, u32 size) {
    ASK(gpu);
    if (!text(name_of(gpu, "uuid"), into, size))
        snprintf(into, size, "GPU-00000000-0000-0000-0000-%012d", (int)(size_t)gpu - 1);
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *gpu, pci_t *into) {
    ASK(gpu);
    memset(into, 0, sizeof *into);
    into->bus = (u32)of(gpu, "bus", 0x3a + (size_t)gpu);
    snprintf(into->bus_id, sizeof into->bus_id, "00000000:%02X:00.0", into->bus);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *gpu, memory_v1 *into) {
    ASK(gpu);
    into->total = of(gpu, "memory_total", 80LL << 30);
    into->used = of(gpu, "memory_used", 1LL << 30);
    into->free = into->total - into->used;
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *gpu, memory_v2 *into) {
    memory_v1 plain;
    int ret = nvmlDeviceGetMemoryInfo(gpu, &plain);
    if (into->version != (sizeof *into | 2u << 24)) return VERSION;
    into->total = plain.total, into->used = plain.used, into->free = plain.free;
    into->reserved = 0;
    return ret;
}
int nvmlDeviceGetUtilizationRates(void *gpu, utilization_t *into) {
    ASK(gpu);
    into->gpu = (u32)of(gpu, "util", 0);
    into->memory = (u32)of(gpu, "memory_util", 0);
    return 0;
}
int nvmlDeviceGetTemperature(void *gpu, u32 sensor, u32 *into) {
    (void)sensor;
    ASK(gpu);
    *into = (u32)of(gpu, "temperature", 40);
    return 0;
}
int nvmlDeviceGetTemperatureV(void *gpu, temperature_v1 *into) {
    ASK(gpu);
    if (into->version != (sizeof *into | 1u << 24)) return VERSION;
    into->temperature = (int)of(gpu, "temperature", 40);
    return 0;
}

/* Those that give one number. */
#define NUMBER(function, type, key, otherwise) \
    int function(void *gpu, type *into) { ASK(gpu); *into = (type)of(gpu, key, otherwise); return 0; }
NUMBER(nvmlDeviceGetPowerUsage, u32, "power_mw", 90000)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, u32, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, u32, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "clock_reasons", 1)
NUMBER(nvmlDeviceGetPersistenceMode, u32, "persistence", 1)

int nvmlDeviceGetTotalEccErrors(void *gpu, u32 kind, u32 counter, u64 *into) {
    (void)counter;
    ASK(gpu);
    if (!of(gpu, "has_ecc", 1)) return NO_SUPPORT;
    *into = of(gpu, kind ? "ecc_uncorrected" : "ecc_corrected", 0);
    return 0;
}
int nvmlDeviceGetRemappedRows(void *gpu, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    ASK(gpu);
    *corrected = (u32)of(gpu, "remapped_corrected", 0);
    *uncorrected = (u32)of(gpu, "remapped_uncorrected", 0);
    *pending = (u32)of(gpu, "remap_pending", 0);
    *failed = (u32)of(gpu, "remap_failed", 0);
    return 0;
}
int nvmlDeviceGetFieldValues(void *gpu, int count, field_t *values) {
    ASK(gpu);
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "field%u", values[i].field);
        long long value = of(gpu, key, values[i].field == 230 ? 0 : -1);
        values[i].ret = value < 0 ? NO_SUPPORT : 0;
        values[i].value = (u64)value;
    }
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, u32 *count, process_t *into) {
    ASK(gpu);
    long long pid = of(gpu, "pid", 0);
    u32 room = *count;
    *count = pid ? 1 : 0;
    if (!pid) return 0;
    if (room < 1) return SMALL;
    into[0].pid = (u32)pid;
    into[0].used = of(gpu, "memory_used", 1LL << 30);
    return 0;
}
const char *nvmlErrorString(int code) { (void)code; return "fake"; }
