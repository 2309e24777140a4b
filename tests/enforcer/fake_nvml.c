/* NVML's public functions over a text file, whose path STATE is given to the compiler.
 *
 * First line: what nvmlInit_v2 returns. Then a line a GPU: what its handle returns, what its memory returns, MIG mode (-1 =
 * not supported), minor, UUID, bus, bytes of memory, name. Handles count from 1. Without WITH_MIG_MODE it is an older
 * library. */
#include <stdio.h>
#include <string.h>

#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define MOST 16

typedef struct { int handle_code, memory_code, mig_mode; unsigned minor; char uuid[96], bus[32], name[96]; unsigned long long bytes; } gpu;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;

static int initialised = 0;

static int read_gpus(gpu *gpus, int *init_code) {
    FILE *file = fopen(STATE, "r");
    int count = 0;
    *init_code = 9;
    if (!file) return 0;
    if (fscanf(file, "%d", init_code) != 1) *init_code = 9;
    while (count < MOST) {
        gpu *one = &gpus[count];
        if (fscanf(file, "%d %d %d %u %95s %31s %llu %95[^\n]", &one->handle_code, &one->memory_code, &one->mig_mode,
                   &one->minor, one->uuid, one->bus, &one->bytes, one->name) != 8) break;
        count++;
    }
    fclose(file);
    return count;
}

static int find(void *handle, gpu *one) {
    gpu gpus[MOST];
    int code, count = read_gpus(gpus, &code), place = (int)(size_t)handle;
    if (!initialised) return UNINITIALIZED;
    if (place < 1 || place > count) return INVALID_ARGUMENT;
    *one = gpus[place - 1];
    return SUCCESS;
}

static int copy(char *to, unsigned length, const char *text) {
    if (strlen(text) >= length) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    strcpy(to, text);
    return SUCCESS;
}

int nvmlInit_v2(void) {
    gpu gpus[MOST];
    int code;
    read_gpus(gpus, &code);
    initialised = code == SUCCESS;
    return code;
}
int nvmlShutdown(void) { initialised = 0; return SUCCESS; }
const char *nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : code == 999 ? "Unknown Error" : "Some Error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) { return copy(text, length, "550.54.15"); }
int nvmlDeviceGetCount_v2(unsigned *count) {
    gpu gpus[MOST];
    int code;
    if (!initialised) return UNINITIALIZED;
    *count = (unsigned)read_gpus(gpus, &code);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    gpu one;
    int code = find((void *)(size_t)(index + 1), &one);
    if (code != SUCCESS) return code;
    *handle = (void *)(size_t)(index + 1);
    return one.handle_code;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    gpu one;
    int code = find(handle, &one);
    return code != SUCCESS ? code : copy(text, length, one.uuid);
}
int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    gpu one;
    int code = find(handle, &one);
    return code != SUCCESS ? code : copy(text, length, one.name);
}
int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) {
    gpu one;
    int code = find(handle, &one);
    *minor = one.minor;
    return code;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
    gpu one;
    int code = find(handle, &one);
    if (code != SUCCESS) return code;
    if (one.memory_code != SUCCESS) return one.memory_code;
    info->total = one.bytes;
    info->free = one.bytes / 2;
    info->used = one.bytes - info->free;
    return SUCCESS;
}
#ifdef WITH_MIG_MODE
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    gpu one;
    int code = find(handle, &one);
    if (code != SUCCESS) return code;
    if (one.mig_mode < 0) return 3; /* NVML_ERROR_NOT_SUPPORTED */
    *current = (unsigned)one.mig_mode;
    *pending = 0; /* what the next reset makes of it does not matter */
    return SUCCESS;
}
#endif
int nvmlDeviceGetPciInfo_v3(void *handle, pci *info) {
    gpu one;
    int code = find(handle, &one);
    if (code != SUCCESS) return code;
    memset(info, 0, sizeof *info);
    return copy(info->bus_id, sizeof info->bus_id, one.bus);
}
