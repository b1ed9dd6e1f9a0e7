/*
 * A stand-in for libnvidia-ml.so.1: H200s that do what a control file says, so that NVIDIA's binding, the exporter and
 * its peers can be shown lost GPUs, hangs, resets and drivers that were replaced, each in a real process.
 *
 * NVML_STUB names the file, tests/nvml_stub/__init__.py says what its lines mean. Every call looks whether the file
 * was replaced (one stat) and otherwise reads an immutable parsed version of it. Old versions are kept: a call that
 * hangs may still read one, and counters and sample buffers remember the load that it told of.
 *
 * Structs and numbers are NVML's, as far as they are used here; its header is not ours to copy.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int uint;
typedef unsigned long long ull;
typedef uintptr_t Handle; /* opaque to callers */

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, TIMEOUT = 10,
       VERSION_MISMATCH = 25,
       HANG = -1 /* not NVML's: the call blocks for as long as the file says so */ };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])
#define EACH(type, item, array, count) (const struct type *item = (array); item < (array) + (count); item++)

/* ---- The control file ---- */

enum { MAX_GPUS = 64, MAX_INSTANCES = 7, MAX_LINES = 256, MAX_WORDS = MAX_GPUS + 1, EVERY_GPU = -1, NO_GPU = -2 };

struct control {
    const struct control *previous;
    struct stat file;
    int64_t since;                                          /* when the file was written, as of now_us() */
    int gpus, enumerated, order[MAX_GPUS], index[MAX_GPUS]; /* by index, and by GPU: -1 is not enumerated */
    uint busy[MAX_GPUS], instances[MAX_GPUS], reasons[MAX_GPUS], generation;
    bool gpm_off;
    char version[32];
    int rules, processes, events, fields;
    struct rule { const char *call; int gpu, code; } rule[2 * MAX_LINES]; /* NULL is every call that concerns the GPU */
    struct process { int gpu; uint pid; ull bytes; } process[MAX_LINES];
    struct event { int gpu; ull xid, sequence; } event[MAX_LINES];
    struct set_field { int gpu; uint id; ull value; } field[MAX_LINES];
};

static const char *control_path;
static _Atomic int64_t told; /* up to when counters were read: no later file changes what they grew by until then */

static _Noreturn void fail(const char *what, const char *detail)
{
    fprintf(stderr, "nvml stub: %s: %s: %s\n", control_path ? control_path : "NVML_STUB is not set", what, detail);
    abort();
}

static ull number(const char *word, ull limit)
{
    char *end;
    ull value = strtoull(word, &end, 10);
    if (end == word || *end || value > limit) fail("not a number in range", word);
    return value;
}

static uint small(const char *word) { return (uint)number(word, UINT32_MAX); }

static int gpu_of(const struct control *c, const char *word)
{
    int gpu = (int)number(word, MAX_GPUS);
    if (gpu >= c->gpus) fail("no such GPU", word);
    return gpu;
}

static int scope_of(const struct control *c, const char *word)
{
    return strcmp(word, "*") ? gpu_of(c, word) : EVERY_GPU;
}

static const char *exported(const char *call)
{
    Dl_info own;
    void *library = dladdr(&control_path, &own) ? dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!library || strncmp(call, "nvml", 4) || !dlsym(library, call)) fail("no such call", call);
    dlclose(library);
    return strdup(call);
}

static void enumerate(struct control *c, int gpu)
{
    if (c->index[gpu] >= 0) fail("a GPU is there twice", "order");
    c->index[gpu] = c->enumerated;
    c->order[c->enumerated++] = gpu;
}

static void add_rule(struct control *c, const char *call, int gpu, int code)
{
    c->rule[c->rules++] = (struct rule){call, gpu, code};
}

static void take_line(struct control *c, char **w, int words)
{
#define LINE(keyword, arguments) (!strcmp(w[0], keyword) && words == 1 + (arguments))
    if (LINE("gpus", 1)) c->gpus = (int)number(w[1], MAX_GPUS);
    else if (LINE("order", words - 1)) for (int i = 1; i < words; i++) enumerate(c, gpu_of(c, w[i]));
    else if (LINE("generation", 1)) c->generation = small(w[1]);
    else if (LINE("version", 1)) snprintf(c->version, sizeof c->version, "%s", w[1]);
    else if (LINE("mig", 2)) c->instances[gpu_of(c, w[1])] = (uint)number(w[2], MAX_INSTANCES);
    else if (LINE("busy", 2)) c->busy[gpu_of(c, w[1])] = (uint)number(w[2], 100);
    else if (LINE("reasons", 2)) c->reasons[gpu_of(c, w[1])] = small(w[2]);
    else if (LINE("gpm", 1) && !strcmp(w[1], "off")) c->gpm_off = true;
    else if (LINE("error", 2)) add_rule(c, NULL, gpu_of(c, w[1]), (int)small(w[2]));
    else if (LINE("hang", 1)) add_rule(c, NULL, gpu_of(c, w[1]), HANG);
    else if (LINE("call-error", 3)) add_rule(c, exported(w[1]), scope_of(c, w[2]), (int)small(w[3]));
    else if (LINE("hang-call", 2)) add_rule(c, exported(w[1]), scope_of(c, w[2]), HANG);
    else if (LINE("init", 1) || LINE("hang-init", 0))
        for (int i = 0; i < 2; i++)
            add_rule(c, i ? "nvmlInitWithFlags" : "nvmlInit_v2", EVERY_GPU, words == 1 ? HANG : (int)small(w[1]));
    else if (LINE("events-error", 1))
        for (int i = 0; i < 2; i++)
            add_rule(c, i ? "nvmlEventSetWait" : "nvmlEventSetWait_v2", EVERY_GPU, (int)small(w[1]));
    else if (LINE("pid", 3))
        c->process[c->processes++] = (struct process){gpu_of(c, w[1]), small(w[2]), number(w[3], UINT64_MAX)};
    else if (LINE("xid", 3))
        c->event[c->events++] = (struct event){gpu_of(c, w[1]), small(w[2]), number(w[3], UINT64_MAX)};
    else if (LINE("field", 3))
        c->field[c->fields++] = (struct set_field){gpu_of(c, w[1]), small(w[2]), number(w[3], UINT64_MAX)};
    else fail("unknown line, or a wrong number of words", w[0]);
}

static const struct control *parse(const struct control *previous)
{
    struct control *c = calloc(1, sizeof *c);
    FILE *file = fopen(control_path, "r");
    char line[1024];
    if (!c || !file || fstat(fileno(file), &c->file)) fail("cannot be read", "control file");
    *c = (struct control){.previous = previous, .file = c->file, .gpus = 1, .version = "580.159.04"};
    c->since = c->file.st_mtim.tv_sec * 1000000LL + c->file.st_mtim.tv_nsec / 1000;
    if (c->since < told) c->since = told; /* the file system's clock is coarse */
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) c->busy[gpu] = 50, c->index[gpu] = -1;
    for (int lines = 0; fgets(line, sizeof line, file); lines++) {
        char *word[MAX_WORDS], *rest = line;
        int words = 0;
        while (words < MAX_WORDS && (word[words] = strtok_r(rest, " \n", &rest))) words++;
        if (lines == MAX_LINES) fail("too many lines", "control file");
        if (words) take_line(c, word, words);
    }
    fclose(file);
    for (int gpu = 0, all = !c->enumerated; all && gpu < c->gpus; gpu++) enumerate(c, gpu);
    return c;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_size == b->st_size && a->st_ino == b->st_ino;
}

static const struct control *control(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct control *current;
    struct stat now;
    if (!control_path || stat(control_path, &now)) fail("cannot be found", "control file");
    pthread_mutex_lock(&lock);
    if (!current || !same(&now, &current->file)) current = parse(current);
    const struct control *c = current;
    pthread_mutex_unlock(&lock);
    return c;
}

/* ---- Time and load ---- */

enum { HANG_US = 20000 }; /* how often a call that hangs looks at the file */

static int64_t boot; /* as of now_us(): where the counters began */

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

__attribute__((constructor)) static void start(void)
{
    struct timespec up;
    clock_gettime(CLOCK_BOOTTIME, &up);
    boot = now_us() - (up.tv_sec * 1000000LL + up.tv_nsec / 1000);
    control_path = getenv("NVML_STUB");
}

static void nap(int64_t us) { usleep((useconds_t)us); }

static uint busy_at(const struct control *c, int gpu, int64_t when)
{
    while (c->previous && c->since > when) c = c->previous;
    return c->busy[gpu];
}

/* The integral of the load, with which every counter grows: none falls when the load does. */
static double busy_seconds(const struct control *c, int gpu, int64_t end)
{
    double seconds = 0;
    if (end > told) told = end;
    for (; c; c = c->previous) {
        int64_t from = c->previous ? c->since : boot;
        seconds += c->busy[gpu] / 100.0 * (double)(end - from) / 1e6;
        end = from;
    }
    return seconds;
}

/* ---- How every call begins: what the file says about it, and whether it takes this handle ---- */

enum scope { ANY, INSTANCE, GPU, GPU_WITHOUT_MIG };

struct target { const struct control *control; int gpu, instance; }; /* instance 0 is the whole GPU, the first is 1 */

static atomic_int references; /* of nvmlInit */

static Handle handle_of(const struct control *c, int gpu, int instance)
{
    return (Handle)(c->generation + 1) << 16 | (Handle)(gpu + 1) << 8 | (Handle)instance;
}

static bool decode(Handle handle, struct target *t)
{
    const struct control *c = t->control;
    t->gpu = (int)(handle >> 8 & 0xFF) - 1;
    t->instance = handle & 0xFF;
    return t->gpu >= 0 && t->gpu < c->gpus && c->index[t->gpu] >= 0 && t->instance <= (int)c->instances[t->gpu] &&
           handle == handle_of(c, t->gpu, t->instance);
}

static int verdict(const struct control *c, const char *call, int gpu)
{
    for EACH(rule, r, c->rule, c->rules)
        if ((r->gpu == EVERY_GPU || r->gpu == gpu) && (!r->call || !strcmp(r->call, call))) return r->code;
    return SUCCESS;
}

static int enter_call(const char *call, int gpu, struct target *t)
{
    for (;; nap(HANG_US)) {
        *t = (struct target){control(), gpu, 0};
        if (!references && strncmp(call, "nvmlInit", 8)) return UNINITIALIZED;
        int code = verdict(t->control, call, gpu);
        if (code != HANG) return code;
    }
}

static int enter_device(const char *call, enum scope scope, Handle handle, struct target *t)
{
    for (;; nap(HANG_US)) {
        t->control = control();
        if (!references) return UNINITIALIZED;
        if (!decode(handle, t)) return INVALID_ARGUMENT;
        int code = verdict(t->control, call, t->gpu);
        bool supported = scope == ANY || (scope == INSTANCE) == (t->instance > 0);
        if (scope == GPU_WITHOUT_MIG && t->control->instances[t->gpu]) supported = false;
        if (code != HANG) return code || supported ? code : NOT_SUPPORTED;
    }
}

/* One exported call each: parameters in brackets, then what it does, which may return a code or succeeds. */
#define UNPACK(...) __VA_ARGS__
#define CALL_OF(gpu_number, name, parameters, ...)                                                                    \
    int name parameters                                                                                               \
    {                                                                                                                 \
        struct target t;                                                                                              \
        int code = enter_call(__func__, gpu_number, &t);                                                              \
        if (code) return code;                                                                                        \
        __VA_ARGS__;                                                                                                  \
        return SUCCESS;                                                                                               \
    }
#define CALL(name, parameters, ...) CALL_OF(NO_GPU, name, parameters, __VA_ARGS__)
#define DEVICE(scope, name, parameters, ...)                                                                          \
    int name(Handle device, UNPACK parameters)                                                                        \
    {                                                                                                                 \
        struct target t;                                                                                              \
        int code = enter_device(__func__, scope, device, &t);                                                         \
        if (code) return code;                                                                                        \
        __VA_ARGS__;                                                                                                  \
        return SUCCESS;                                                                                               \
    }
#define VALUE(scope, name, type, ...) DEVICE(scope, name, (type *out), *out = __VA_ARGS__)
#define PAIR(scope, name, type, first, second) DEVICE(scope, name, (type *a, type *b), *a = (first), *b = (second))
#define TEXT(scope, name, ...) DEVICE(scope, name, (char *out, uint size), return put(out, size, __VA_ARGS__))
/* By the kind of thing that is asked for. */
#define KIND(scope, name, kinds, value)                                                                               \
    DEVICE(scope, name, (uint kind, uint *out), if (kind >= (kinds)) return INVALID_ARGUMENT; *out = (value))

#define BUSY (t.control->busy[t.gpu]) /* percent */
#define REASONS (BUSY ? t.control->reasons[t.gpu] : 1) /* 1 is idle */
#define MIG (t.control->instances[t.gpu] > 0)
#define CELSIUS (39 + BUSY * 3 / 10)

__attribute__((format(printf, 3, 4))) static int put(char *out, uint size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, size, format, arguments);
    va_end(arguments);
    return length < (int)size ? SUCCESS : INSUFFICIENT_SIZE;
}

/* ---- The library, and handles ---- */

CALL(nvmlInit_v2, (void), references++)
CALL(nvmlInitWithFlags, (uint flags), (void)flags, references++)
CALL(nvmlShutdown, (void), references--)
CALL(nvmlSystemGetDriverVersion, (char *out, uint size), return put(out, size, "%s", t.control->version))
CALL(nvmlSystemGetNVMLVersion, (char *out, uint size), return put(out, size, "13.%s", t.control->version))
CALL(nvmlSystemGetCudaDriverVersion, (int *out), *out = 13000)
CALL(nvmlSystemGetCudaDriverVersion_v2, (int *out), *out = 13000)
CALL(nvmlDeviceGetCount_v2, (int *out), *out = t.control->enumerated)

const char *nvmlErrorString(int code) { return code ? "the stub's error" : "Success"; }

static int at_index(const struct control *c, uint index)
{
    return index < (uint)c->enumerated ? c->order[index] : NO_GPU;
}

CALL_OF(at_index(control(), index), nvmlDeviceGetHandleByIndex_v2, (uint index, Handle *out),
        if (t.gpu == NO_GPU) return INVALID_ARGUMENT;
        *out = handle_of(t.control, t.gpu, 0))

#define UUID(gpu, instance) "%s-00000000-0000-0000-%04d-%012d", (instance) ? "MIG" : "GPU", instance, gpu

static bool named(const char *uuid, int gpu, int instance)
{
    char own[80];
    return !put(own, sizeof own, UUID(gpu, instance)) && !strcmp(uuid, own);
}

static Handle with_uuid(const struct control *c, const char *uuid)
{
    for (int i = 0; i < c->enumerated; i++)
        for (int gpu = c->order[i], k = 0; k <= (int)c->instances[gpu]; k++)
            if (named(uuid, gpu, k)) return handle_of(c, gpu, k);
    return 0;
}

static int by_uuid(const char *call, const char *uuid, Handle *out)
{
    struct target t;
    *out = with_uuid(control(), uuid);
    return *out ? enter_device(call, ANY, *out, &t) : NOT_FOUND;
}

struct uuid { uint version, type; char text[44]; }; /* type 1 is ASCII */

CALL(nvmlDeviceGetHandleByUUID, (const char *uuid, Handle *out), return by_uuid(__func__, uuid, out))
CALL(nvmlDeviceGetHandleByUUIDV, (const struct uuid *uuid, Handle *out),
     return uuid->type == 1 ? by_uuid(__func__, uuid->text, out) : NOT_SUPPORTED)
DEVICE(GPU, nvmlDeviceGetMigDeviceHandleByIndex, (uint index, Handle *out),
       if (index >= t.control->instances[t.gpu]) return NOT_FOUND;
       *out = handle_of(t.control, t.gpu, (int)index + 1))
VALUE(INSTANCE, nvmlDeviceGetDeviceHandleFromMigDeviceHandle, Handle, handle_of(t.control, t.gpu, 0))

/* ---- Single values ---- */

enum { IDLE_MW = 80145, LOAD_MW = 619855, SUPPORTED_EVENTS = 0xB, XID_EVENT = 0x8 };

static const uint IDLE_CLOCK[] = {345, 345, 3201, 765}, MAX_CLOCK[] = {1980, 1980, 3201, 1980}; /* MHz, by domain */

struct utilization { uint gpu, memory; };
struct temperature { uint version, sensor; int celsius; };
struct pci { char legacy_id[16]; uint domain, bus, device, device_id, subsystem_id; char id[32]; };
struct attributes { uint multiprocessors, engines[5], gpu_slices, compute_slices; ull memory_mib; };

static uint power_mw(uint busy) { return IDLE_MW + busy * LOAD_MW / 100; }

static ull energy_mj(const struct target *t, int64_t now)
{
    return (ull)((double)(now - boot) / 1e6 * IDLE_MW + busy_seconds(t->control, t->gpu, now) * LOAD_MW);
}

TEXT(ANY, nvmlDeviceGetName, "NVIDIA H200%s", t.instance ? " MIG 1g.18gb" : "")
TEXT(ANY, nvmlDeviceGetUUID, UUID(t.gpu, t.instance))
TEXT(GPU, nvmlDeviceGetSerial, "16500000%05d", t.gpu)
TEXT(GPU, nvmlDeviceGetVbiosVersion, "96.00.A5.00.1A")
VALUE(ANY, nvmlDeviceGetIndex, uint, (uint)(t.instance ? t.instance - 1 : t.control->index[t.gpu]))
VALUE(ANY, nvmlDeviceGetArchitecture, uint, 9)
VALUE(ANY, nvmlDeviceIsMigDeviceHandle, uint, t.instance > 0)
VALUE(INSTANCE, nvmlDeviceGetGpuInstanceId, uint, (uint)t.instance)
VALUE(INSTANCE, nvmlDeviceGetComputeInstanceId, uint, 0)
VALUE(GPU, nvmlDeviceGetMaxMigDeviceCount, uint, MIG ? MAX_INSTANCES : 0)
VALUE(GPU, nvmlDeviceGetMinorNumber, uint, (uint)t.gpu)
VALUE(GPU, nvmlDeviceGetBrand, uint, 14)
VALUE(GPU, nvmlDeviceGetPowerUsage, uint, power_mw(BUSY))
VALUE(GPU, nvmlDeviceGetEnforcedPowerLimit, uint, 700000)
VALUE(GPU, nvmlDeviceGetPowerManagementLimit, uint, 700000)
VALUE(GPU, nvmlDeviceGetTotalEnergyConsumption, ull, energy_mj(&t, now_us()))
VALUE(GPU, nvmlDeviceGetPerformanceState, uint, 0)
VALUE(GPU, nvmlDeviceGetPersistenceMode, uint, 1)
VALUE(GPU, nvmlDeviceGetComputeMode, uint, 0)
VALUE(GPU, nvmlDeviceGetCurrPcieLinkGeneration, uint, 5)
VALUE(GPU, nvmlDeviceGetMaxPcieLinkGeneration, uint, 5)
VALUE(GPU, nvmlDeviceGetCurrPcieLinkWidth, uint, 16)
VALUE(GPU, nvmlDeviceGetMaxPcieLinkWidth, uint, 16)
VALUE(GPU, nvmlDeviceGetPcieReplayCounter, uint, 2)
VALUE(GPU, nvmlDeviceGetCurrentClocksEventReasons, ull, REASONS)
VALUE(GPU, nvmlDeviceGetCurrentClocksThrottleReasons, ull, REASONS)
VALUE(GPU, nvmlDeviceGetSupportedEventTypes, ull, SUPPORTED_EVENTS)
VALUE(GPU_WITHOUT_MIG, nvmlDeviceGetUtilizationRates, struct utilization, (struct utilization){BUSY, BUSY / 2})
PAIR(ANY, nvmlDeviceGetCudaComputeCapability, int, 9, 0)
PAIR(GPU, nvmlDeviceGetEccMode, uint, 1, 1)
PAIR(GPU, nvmlDeviceGetMigMode, uint, MIG, MIG)
PAIR(GPU_WITHOUT_MIG, nvmlDeviceGetEncoderUtilization, uint, 0, 100000)
PAIR(GPU_WITHOUT_MIG, nvmlDeviceGetDecoderUtilization, uint, 0, 100000)
KIND(GPU, nvmlDeviceGetTemperature, 1, CELSIUS)
KIND(GPU, nvmlDeviceGetClockInfo, 4, BUSY ? MAX_CLOCK[kind] : IDLE_CLOCK[kind])
KIND(GPU, nvmlDeviceGetMaxClockInfo, 4, MAX_CLOCK[kind])
KIND(GPU, nvmlDeviceGetPcieThroughput, 2, BUSY * 3000) /* KiB/s; the real one takes 20 ms */
DEVICE(GPU, nvmlDeviceGetFanSpeed, (uint *out), (void)out; return NOT_SUPPORTED)
DEVICE(GPU, nvmlDeviceGetRemappedRows, (uint *a, uint *b, uint *c, uint *d), *a = *b = *c = *d = 0)
DEVICE(GPU, nvmlDeviceGetTotalEccErrors, (uint type, uint counter, ull *out),
       if (type > 1 || counter > 1) return INVALID_ARGUMENT;
       *out = 0)
DEVICE(GPU, nvmlDeviceGetTemperatureV, (struct temperature *out),
       if (out->version != (1 << 24 | sizeof *out)) return VERSION_MISMATCH;
       if (out->sensor) return INVALID_ARGUMENT;
       out->celsius = (int)CELSIUS)
DEVICE(GPU, nvmlDeviceGetPciInfo_v3, (struct pci *out),
       *out = (struct pci){.bus = 0x10 + (uint)t.gpu, .device_id = 0x233510DE, .subsystem_id = 0x18BF10DE};
       put(out->legacy_id, sizeof out->legacy_id, "0000:%02X:00.0", out->bus);
       put(out->id, sizeof out->id, "00000000:%02X:00.0", out->bus))
DEVICE(INSTANCE, nvmlDeviceGetAttributes_v2, (struct attributes *out),
       *out = (struct attributes){16, {1, 1, 0, 1, 0}, 1, 1, 17971})

/* ---- Memory and processes; under MIG all processes are in the first instance ---- */

static const ull MEMORY_TOTAL = 150754820096, MEMORY_RESERVED = 644939776;
static const uint NONE = UINT32_MAX; /* the instance's number where there is none */

struct memory { ull total, free, used; };
struct memory_v2 { uint version; ull total, reserved, free, used; };
struct running { uint pid; ull bytes; uint gpu_instance, compute_instance; };

static bool holds(const struct target *t, const struct process *p) { return p->gpu == t->gpu && t->instance <= 1; }

static struct memory_v2 memory_of(const struct target *t)
{
    ull parts = t->instance ? 8 : 1;
    struct memory_v2 m = {2 << 24 | sizeof m, MEMORY_TOTAL / parts, MEMORY_RESERVED / parts, 0, 0};
    for EACH(process, p, t->control->process, t->control->processes) m.used += holds(t, p) ? p->bytes : 0;
    m.free = m.total - m.reserved - m.used;
    return m;
}

DEVICE(ANY, nvmlDeviceGetMemoryInfo, (struct memory *out),
       struct memory_v2 m = memory_of(&t);
       *out = (struct memory){m.total, m.free, m.used + m.reserved}) /* the old meaning of `used` */
DEVICE(ANY, nvmlDeviceGetMemoryInfo_v2, (struct memory_v2 *out),
       if (out->version != (2 << 24 | sizeof *out)) return VERSION_MISMATCH;
       *out = memory_of(&t))
DEVICE(ANY, nvmlDeviceGetComputeRunningProcesses_v3, (uint *count, struct running *out),
       uint room = *count;
       *count = 0;
       for EACH(process, p, t.control->process, t.control->processes)
           if (holds(&t, p) && (*count)++ < room)
               out[*count - 1] = (struct running){p->pid, p->bytes, MIG ? 1 : NONE, MIG ? 0 : NONE};
       if (*count > room) return INSUFFICIENT_SIZE)
DEVICE(ANY, nvmlDeviceGetGraphicsRunningProcesses_v3, (uint *count, struct running *out), (void)out, *count = 0)
DEVICE(GPU_WITHOUT_MIG, nvmlDeviceGetProcessUtilization, (void *out, uint *count, ull after),
       (void)out, (void)count, (void)after; return NOT_FOUND) /* as while no process computes */

/* ---- The sample buffer and the field values ---- */

enum value_type { UINT = 1, ULL = 3 };
union value { double d; uint u; ull ull; };

struct sample { ull when; union value value; };

enum { GPU_UTILIZATION = 1, SAMPLES = 71, SAMPLE_US = 200000 };

static uint copy_samples(const struct target *t, ull after, struct sample *out, uint room)
{
    int64_t newest = now_us() / SAMPLE_US;
    uint count = 0;
    for (int64_t tick = newest - SAMPLES + 1; tick <= newest && count < room; tick++)
        if ((ull)(tick * SAMPLE_US) > after)
            out[count++] = (struct sample){(ull)(tick * SAMPLE_US),
                                           {.ull = busy_at(t->control, t->gpu, tick * SAMPLE_US)}};
    return count;
}

DEVICE(GPU_WITHOUT_MIG, nvmlDeviceGetSamples, (uint kind, ull after, uint *type, uint *count, struct sample *out),
       if (kind != GPU_UTILIZATION) return NOT_SUPPORTED;
       *type = UINT;
       *count = out ? copy_samples(&t, after, out, *count) : SAMPLES;
       if (!*count) return NOT_FOUND)

struct field_value { uint id, scope; int64_t when, latency; uint type; int code; union value value; };

enum { LINKS = 18, AVERAGE_POWER = 185, INSTANT_POWER = 186 };
static const uint EVERY_LINK = UINT32_MAX;

/* A counter gains `rate` in a second in which the GPU is fully busy; one of links has a value for each, and a sum. */
static const struct field { uint id; enum value_type type; ull value; double rate; bool links; } FIELDS[] = {
    {.id = 74, ULL, .rate = 1e7}, {.id = 76, ULL},                /* clocks held down, ns: power cap, sync boost, */
    {.id = 269, ULL, .rate = 1e6}, {.id = 270, ULL}, {.id = 271, ULL}, /* software thermal, hardware thermal, brake */
    {.id = 82, UINT, 46}, {.id = 91, UINT, LINKS}, {.id = 94, UINT, 2}, /* memory's temperature, links, PCIe replays */
    {.id = 138, ULL, .rate = 5e5, .links = true}, {.id = 139, ULL, .rate = 5e5, .links = true}, /* NVLink, KiB */
    {.id = 142, UINT}, {.id = 143, UINT}, {.id = 144, UINT}, {.id = 145, UINT}, /* remapped rows */
    {.id = AVERAGE_POWER, UINT}, {.id = INSTANT_POWER, UINT},
    {.id = 197, ULL, .rate = 3e8}, {.id = 198, ULL, .rate = 3e8}, /* PCIe, bytes */
    {.id = 230, UINT},                                            /* recovery action */
};

static int field_value(const struct target *t, struct field_value *out)
{
    for EACH(field, f, FIELDS, LENGTH(FIELDS)) {
        if (f->id != out->id) continue;
        if (f->links ? out->scope >= LINKS && out->scope != EVERY_LINK : out->scope) return INVALID_ARGUMENT;
        double rate = f->rate * (out->scope == EVERY_LINK ? LINKS : 1);
        bool power = f->id == AVERAGE_POWER || f->id == INSTANT_POWER;
        out->when = now_us();
        out->type = f->type;
        out->value.ull = power ? power_mw(t->control->busy[t->gpu]) : f->value;
        out->value.ull += (ull)(rate * busy_seconds(t->control, t->gpu, out->when));
        for EACH(set_field, set, t->control->field, t->control->fields)
            if (set->gpu == t->gpu && set->id == f->id) out->value.ull = set->value;
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

DEVICE(GPU, nvmlDeviceGetFieldValues, (int count, struct field_value *values),
       for (int i = 0; i < count; i++) values[i].code = field_value(&t, &values[i]))

/* ---- Events: a set delivers what happens after a GPU's registration, for as long as that handle is valid ---- */

struct event_set { Handle device[MAX_GPUS]; ull seen[MAX_GPUS]; };
struct event_data { Handle device; ull type, data; uint gpu_instance, compute_instance; };

static void register_events(struct event_set *set, Handle device, const struct target *t)
{
    set->device[t->gpu] = device;
    for EACH(event, e, t->control->event, t->control->events)
        if (e->gpu == t->gpu && e->sequence > set->seen[t->gpu]) set->seen[t->gpu] = e->sequence;
}

static int next_event(struct event_set *set, const struct control *c, struct event_data *out)
{
    for EACH(event, e, c->event, c->events) {
        struct target t = {.control = c};
        if (!decode(set->device[e->gpu], &t) || e->sequence <= set->seen[e->gpu]) continue;
        set->seen[e->gpu] = e->sequence;
        *out = (struct event_data){set->device[e->gpu], XID_EVENT, e->xid, NONE, NONE};
        return SUCCESS;
    }
    return TIMEOUT;
}

/* Sleeps until the control file is replaced: a wait costs no more than the one of a real driver. */
static void await_change(int64_t us)
{
    static _Thread_local struct pollfd watch = {.fd = -1, .events = POLLIN};
    char seen[4096];
    if (watch.fd < 0) {
        char *path = strdup(control_path);
        watch.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        inotify_add_watch(watch.fd, dirname(path), IN_MOVED_TO | IN_CLOSE_WRITE);
        free(path);
        return; /* it may have been replaced before it was watched */
    }
    poll(&watch, 1, (int)(us / 1000) + 1);
    while (read(watch.fd, seen, sizeof seen) > 0) continue;
}

static int wait_event(const char *call, struct event_set *set, struct event_data *out, uint milliseconds)
{
    for (int64_t left, end = now_us() + milliseconds * 1000LL;; await_change(left)) {
        struct target t;
        int code = enter_call(call, NO_GPU, &t);
        if (!code) code = next_event(set, t.control, out);
        left = end - now_us();
        if (code != TIMEOUT || left <= 0) return code;
    }
}

CALL(nvmlEventSetCreate, (struct event_set **out), *out = calloc(1, sizeof **out))
CALL(nvmlEventSetFree, (struct event_set *set), free(set))
DEVICE(GPU, nvmlDeviceRegisterEvents, (ull types, struct event_set *set),
       if (types & ~(ull)SUPPORTED_EVENTS) return NOT_SUPPORTED;
       if (types & XID_EVENT) register_events(set, device, &t))

#define WAIT(name)                                                                                                    \
    int name(struct event_set *set, struct event_data *out, uint ms) { return wait_event(__func__, set, out, ms); }

WAIT(nvmlEventSetWait)
WAIT(nvmlEventSetWait_v2)

/* ---- GPM: a sample holds the load's integral, a metric is its mean slope between two ---- */

struct gpm_support { uint version, supported; };
struct gpm_sample { int gpu, instance; int64_t when; double busy_seconds; };
struct gpm_metric { uint id; int code; double value; const char *name, *long_name, *unit; };
struct gpm_metrics { uint version, count; const struct gpm_sample *from, *to; struct gpm_metric metric[]; };

static const struct gpm { uint id; double fully_busy; } METRICS[] = {
    {1, 100}, {2, 60}, {3, 25}, {5, 20}, {10, 55}, /* percent: graphics, SM, occupancy, any tensor, DRAM */
    {20, 300}, {21, 300}, {60, 8500}, {61, 8500},  /* MiB/s: PCIe sent and received, NVLink received and sent */
};

static int take_sample(const struct target *t, uint instance, struct gpm_sample *out)
{
    if (t->control->gpm_off) return NOT_SUPPORTED;
    *out = (struct gpm_sample){t->gpu, (int)instance, now_us(), 0};
    out->busy_seconds = busy_seconds(t->control, t->gpu, out->when);
    return SUCCESS;
}

static void fill_metric(struct gpm_metric *out, double load)
{
    out->code = NOT_SUPPORTED;
    for EACH(gpm, m, METRICS, LENGTH(METRICS))
        if (m->id == out->id) out->code = SUCCESS, out->value = m->fully_busy * load;
}

CALL(nvmlGpmSampleAlloc, (struct gpm_sample **out), *out = calloc(1, sizeof **out))
CALL(nvmlGpmSampleFree, (struct gpm_sample *sample), free(sample))
CALL(nvmlGpmMetricsGet, (struct gpm_metrics *out),
     const struct gpm_sample *a = out->from; const struct gpm_sample *b = out->to;
     if (out->version != 1) return VERSION_MISMATCH;
     if (!a->when || b->when <= a->when || a->gpu != b->gpu || a->instance != b->instance) return INVALID_ARGUMENT;
     double load = (b->busy_seconds - a->busy_seconds) / (double)(b->when - a->when) * 1e6;
     for (uint i = 0; i < out->count; i++) fill_metric(&out->metric[i], load))
DEVICE(GPU, nvmlGpmQueryDeviceSupport, (struct gpm_support *out),
       if (out->version != 1) return VERSION_MISMATCH;
       out->supported = !t.control->gpm_off)
DEVICE(GPU, nvmlGpmSampleGet, (struct gpm_sample *out), return take_sample(&t, 0, out))
DEVICE(GPU, nvmlGpmMigSampleGet, (uint instance, struct gpm_sample *out),
       if (instance < 1 || instance > t.control->instances[t.gpu]) return INVALID_ARGUMENT;
       return take_sample(&t, instance, out))
