// What the GEMM needs of CDNA 4: buffer loads and stores, loads into LDS, waits and the scheduler's fences.
//
// An access outside of a buffer reads 0 or stores nothing: that is how the tails of M and N are handled. Source of the
// range rule (offset of lane and instruction against bytes - scalar offset) and of the wait counter's encoding: AMD
// CDNA4 ISA, "Buffer addressing" and "S_WAITCNT".

#pragma once

#include "mxfp4.h"

#define MXFP4_LDS __attribute__((address_space(3)))
#define MXFP4_INLINE __attribute__((always_inline))

namespace mxfp4 {

typedef int words4 __attribute__((ext_vector_type(4)));
typedef int words8 __attribute__((ext_vector_type(8)));
typedef float floats4 __attribute__((ext_vector_type(4)));
typedef float floats16 __attribute__((ext_vector_type(16)));
typedef u32 pair_of_words __attribute__((ext_vector_type(2)));

constexpr u32 OUTSIDE = 0x80000000;  // offset of a lane that no buffer here is long enough for
constexpr u32 WAVE = 64;
constexpr u32 LOAD_BYTES = 16;       // of a lane, by the widest load
constexpr u32 RAW_BUFFER = 0x20000;  // last word of a buffer resource: 32-bit data, no swizzle
constexpr u32 MOST_LOADS = 63;       // that a wave can have in flight and still count

// A loop whose counter is a constant in its body, which is called with index<0> ... index<COUNT - 1>. Other loops, and
// branches, make blocks, between which the optimiser moves matrix instructions before it has unrolled them.
template <int I> struct index { static constexpr int value = I; };
template <typename T, T... I> struct counter {
    template <typename F> static MXFP4_DEVICE void run(F&& body) { (body(index<I>{}), ...); }
};
template <u32 COUNT, typename F> MXFP4_DEVICE void unrolled(F&& body) {
    __make_integer_seq<counter, int, COUNT>::run(body);
}

#if !__has_builtin(__builtin_amdgcn_raw_ptr_buffer_load_lds)  // clang 20: by the name of the instruction in LLVM
__attribute__((device)) void __builtin_amdgcn_raw_ptr_buffer_load_lds(
    __amdgpu_buffer_rsrc_t, MXFP4_LDS void*, int bytes, int lane, int scalar, int constant,
    int cache) __asm("llvm.amdgcn.raw.ptr.buffer.load.lds");
#endif

// A part of a tensor, at most 2 GB, which starts at an address that is the same for all lanes.
struct Buffer {
    __amdgpu_buffer_rsrc_t resource;
    u32 bytes;

    MXFP4_DEVICE Buffer(const void* start, u64 offset, u32 bytes)
        : resource(__builtin_amdgcn_make_buffer_rsrc((u8*)start + offset, 0, bytes, RAW_BUFFER)), bytes(bytes) {}

    // `scalar` is at most `bytes`.
    MXFP4_DEVICE words4 load16(u32 lane, u32 scalar) const {
        return __builtin_bit_cast(words4, __builtin_amdgcn_raw_buffer_load_b128(resource, lane, scalar, 0));
    }
    MXFP4_DEVICE u32 load4(u32 lane, u32 scalar) const {
        return __builtin_amdgcn_raw_buffer_load_b32(resource, lane, scalar, 0);
    }
    // 16 bytes of each lane to `to` + 16 * lane of the LDS.
    MXFP4_DEVICE void load_to_lds(MXFP4_LDS u8* to, u32 lane, u32 scalar) const {
        __builtin_amdgcn_raw_ptr_buffer_load_lds(resource, to, LOAD_BYTES, lane, scalar, 0, 0);
    }
    template <typename T> MXFP4_DEVICE void store(T value, u32 lane) const {
        if constexpr (sizeof(T) == 16)
            __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(words4, value), resource, lane, 0, 0);
        else
            __builtin_amdgcn_raw_buffer_store_b64(__builtin_bit_cast(pair_of_words, value), resource, lane, 0, 0);
    }
};

// 16 bytes of the LDS. That nothing else points there (`restrict`) is said for the compiler's wait insertion: it would
// let every read of the LDS wait for all loads into the LDS. wait_for_loads and barriers order these accesses instead.
MXFP4_DEVICE words4 read_lds(const MXFP4_LDS words4* __restrict from) { return *from; }

// Until at most YOUNGER of this wave's latest loads and stores are in flight, and no read of the LDS.
template <u32 YOUNGER> MXFP4_DEVICE void wait_for_loads() {
    constexpr u32 COUNT = YOUNGER < MOST_LOADS ? YOUNGER : MOST_LOADS, EXPORTS = 7;  // of those there are none
    __builtin_amdgcn_s_waitcnt((COUNT & 15) | (COUNT >> 4) << 14 | EXPORTS << 4);
}

// Nothing moves across, neither in the optimiser nor in the instruction scheduler.
MXFP4_DEVICE void fence() {
    asm volatile("" ::: "memory");
    __builtin_amdgcn_sched_barrier(0);
}

// No instruction moves across, in the instruction scheduler.
MXFP4_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

// All waves of the workgroup, each with at most YOUNGER of its latest loads in flight. None still reads the LDS: a load
// that lies outside of its buffer could come back, and overwrite what is read, sooner than the read.
template <u32 YOUNGER> MXFP4_DEVICE void meet() {
    fence();
    wait_for_loads<YOUNGER>();
    __builtin_amdgcn_s_barrier();
    fence();
}

// How many of the `most` rows from `first` on an operand of `rows` rows has.
MXFP4_DEVICE u32 left(u32 rows, u32 first, u32 most) { return first < rows ? smaller(rows - first, most) : 0; }

// One of two values, without a branch at any time.
MXFP4_DEVICE u32 choose(bool first, u32 a, u32 b) { return first ? a : b; }

// A value that is the same in all lanes, in a scalar register.
MXFP4_DEVICE u32 uniform(u32 value) { return (u32)__builtin_amdgcn_readfirstlane((int)value); }

}  // namespace mxfp4
