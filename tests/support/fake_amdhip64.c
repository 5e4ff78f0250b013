/* Stands in for libamdhip64: keeps what it is asked to load and launch, and fails where a test says so. */
#include <stddef.h>
#include <string.h>

#define MAX_LAUNCHES 64
#define MAX_ARGUMENT_BYTES 1024

typedef struct {
    unsigned long function, stream, argument_bytes, kernel_params;
    unsigned grid[3], block[3], shared_bytes;
    int device;
    unsigned char arguments[MAX_ARGUMENT_BYTES];
} Launch;

typedef struct {
    char failing[64]; /* name of the call that fails */
    int status;       /* what it returns */
    int last_error, device, loaded, unloaded, launches;
    unsigned char image[64]; /* its start: how long it is, nobody tells */
    char symbol[256];
    Launch launch[MAX_LAUNCHES];
} State;

State fake_state;

static int answer(const char *call) {
    if (strcmp(fake_state.failing, call) == 0) fake_state.last_error = fake_state.status;
    return strcmp(fake_state.failing, call) == 0 ? fake_state.status : 0;
}

const char *hipGetErrorName(int status) {
    return status == 100 ? "hipErrorNoDevice" : status == 209 ? "hipErrorNoBinaryForGpu"
         : status == 400 ? "hipErrorInvalidHandle" : status == 500 ? "hipErrorNotFound" : NULL;
}

const char *hipGetErrorString(int status) {
    return status == 100 ? "no ROCm-capable device is detected" : status == 400 ? "invalid resource handle" : "said so";
}

int hipInit(unsigned flags) { return flags ? 1 : answer("hipInit"); }
int hipGetLastError(void) {
    int last = fake_state.last_error;
    fake_state.last_error = 0;
    return last;
}
int hipGetDevice(int *device) {
    *device = fake_state.device;
    return answer("hipGetDevice");
}
int hipModuleLoadData(void **module, const void *image) {
    int status = answer("hipModuleLoadData");
    if (status) return status;
    memcpy(fake_state.image, image, sizeof fake_state.image);
    *module = (void *)(0x7000000000 + 0x100L * ++fake_state.loaded);
    return 0;
}
int hipModuleUnload(void *module) {
    fake_state.unloaded += module == (void *)(0x7000000000 + 0x100L * fake_state.loaded);
    return answer("hipModuleUnload");
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
    strncpy(fake_state.symbol, name, sizeof fake_state.symbol - 1);
    *function = (void *)((unsigned long)module + 1);
    return answer("hipModuleGetFunction");
}
int hipFuncGetAttribute(int *value, int attribute, void *function) {
    *value = 10 * attribute;
    return function == NULL ? 1 : answer("hipFuncGetAttribute");
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared_bytes, void *stream, void **params, void **extra) {
    Launch *launch;
    size_t bytes;
    if (extra == NULL || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3) return 1;
    bytes = *(size_t *)extra[3];
    if (bytes > MAX_ARGUMENT_BYTES) return 1;
    launch = &fake_state.launch[__atomic_fetch_add(&fake_state.launches, 1, __ATOMIC_SEQ_CST) % MAX_LAUNCHES];
    *launch = (Launch){(unsigned long)function, (unsigned long)stream, bytes, (unsigned long)params,
                       {gx, gy, gz}, {bx, by, bz}, shared_bytes, fake_state.device, {0}};
    memcpy(launch->arguments, extra[1], bytes);
    return answer("hipModuleLaunchKernel");
}
