/* Stands in for libamdhip64 where Triton's HIP driver and the project's own loader open it. What it cannot answer itself
 * (what a code object holds, what a launch does) it asks the process, which installs `simulated_hooks`. */
#define __HIP_PLATFORM_AMD__
#define _GNU_SOURCE
#include <hip/hip_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    int (*load)(const void *image, unsigned long *module);
    int (*function)(unsigned long module, const char *name, unsigned long *function);
    int (*attribute)(unsigned long function, int attribute);
    int (*launch)(unsigned long function, const unsigned *grid, const unsigned *block, unsigned dynamic_lds,
                  unsigned long stream, void **params, void **extra);
    int (*is_device_pointer)(unsigned long address);
} Hooks;

typedef struct {
    int runtime_version, device_count, current_device, compute_units;
    char architecture[256];
} Machine;

Hooks simulated_hooks;
Machine simulated_machine;
static int last_error;

static int remember(int status) {
    if (status) last_error = status;
    return status;
}

const char *hipGetErrorName(hipError_t status) {
    switch ((int)status) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 98: return "hipErrorInvalidDeviceFunction";
    case 100: return "hipErrorNoDevice";
    case 101: return "hipErrorInvalidDevice";
    case 200: return "hipErrorInvalidImage";
    case 209: return "hipErrorNoBinaryForGpu";
    case 500: return "hipErrorNotFound";
    case 701: return "hipErrorLaunchOutOfResources";
    case 719: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
    }
}
const char *hipGetErrorString(hipError_t status) {
    switch ((int)status) {
    case 0: return "no error";
    case 1: return "invalid argument";
    case 2: return "out of memory";
    case 98: return "invalid device function";
    case 100: return "no ROCm-capable device is detected";
    case 101: return "invalid device ordinal";
    case 200: return "device kernel image is invalid";
    case 209: return "no kernel image is available for execution on the device";
    case 500: return "named symbol not found";
    case 701: return "too many resources requested for launch";
    case 719: return "unspecified launch failure";
    default: return "unknown error";
    }
}
hipError_t hipInit(unsigned flags) { return remember(flags ? 1 : simulated_machine.device_count ? 0 : 100); }
hipError_t hipDriverGetVersion(int *version) { *version = simulated_machine.runtime_version; return 0; }
hipError_t hipRuntimeGetVersion(int *version) { *version = simulated_machine.runtime_version; return 0; }
hipError_t hipGetDeviceCount(int *count) {
    *count = simulated_machine.device_count;
    return remember(*count ? 0 : 100);
}
hipError_t hipGetDevice(int *device) {
    *device = simulated_machine.current_device;
    return remember(simulated_machine.device_count ? 0 : 100);
}
hipError_t hipGetLastError(void) {
    int last = last_error;
    last_error = 0;
    return last;
}
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device) {
    if (device < 0 || device >= simulated_machine.device_count) return remember(101);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s", simulated_machine.architecture);
    properties->sharedMemPerBlock = 160 << 10;
    properties->regsPerBlock = 64 << 10;
    properties->multiProcessorCount = simulated_machine.compute_units;
    properties->clockRate = 2400000;
    properties->memoryClockRate = 2000000;
    properties->memoryBusWidth = 8192;
    properties->warpSize = 64;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->cooperativeLaunch = 1;
    return 0;
}
hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
    return remember(simulated_hooks.load(image, (unsigned long *)module));
}
hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned count, hipJitOption *options,
                               void **values) {
    return hipModuleLoadData(module, image);
}
hipError_t hipModuleUnload(hipModule_t module) { return 0; }
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
    return remember(simulated_hooks.function((unsigned long)module, name, (unsigned long *)function));
}
hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute, hipFunction_t function) {
    *value = simulated_hooks.attribute((unsigned long)function, attribute);
    return 0;
}
hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute, hipDeviceptr_t address) {
    if (!simulated_hooks.is_device_pointer((unsigned long)address)) return remember(1);
    *(hipDeviceptr_t *)data = address;
    return 0;
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                 unsigned by, unsigned bz, unsigned dynamic_lds, hipStream_t stream, void **params,
                                 void **extra) {
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    unsigned long handle = (unsigned long)function, queue = (unsigned long)stream;
    return remember(simulated_hooks.launch(handle, grid, block, dynamic_lds, queue, params, extra));
}
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz,
                                            unsigned bx, unsigned by, unsigned bz, unsigned dynamic_lds,
                                            hipStream_t stream, void **params) {
    return hipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, dynamic_lds, stream, params, NULL);
}
hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags,
                             hipDriverProcAddressQueryResult *result) {
    Dl_info here;
    void *self;
    const char *name = strcmp(symbol, "hipGetDeviceProperties") ? symbol : "hipGetDevicePropertiesR0600";
    if (!dladdr((void *)hipGetProcAddress, &here)) return 500;
    self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = self ? dlsym(self, name) : NULL;
    return *function ? 0 : 500;
}
