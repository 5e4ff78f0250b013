// MXFP4 on the device: what the kernels of this folder share. Needs no header of HIP or CUDA.
//
// Formats: OCP Microscaling Formats v1.0 (E2M1 codes, E8M0 scales). The exponent rule is "even" of
// kernels/mxfp4/numerics.py, the byte order that of kernels/mxfp4/layouts.py. A bf16 is its 16 bits; its magnitude is
// the low 15 of them.
//
// MXFP4_PORTABLE=1 chooses the integer arithmetic on CDNA 4 too. Elsewhere there is nothing else.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if defined(__HIP__)
#define MXFP4_DEVICE __attribute__((device, always_inline)) inline
#define MXFP4_KERNEL(threads) \
    extern "C" __attribute__((global, visibility("default"), amdgpu_flat_work_group_size(threads, threads))) void
#else  // nvcc
#define MXFP4_DEVICE __device__ __forceinline__
#define MXFP4_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#endif

#if defined(__gfx950__) && !defined(MXFP4_PORTABLE)
#define MXFP4_HARDWARE 1
#else
#define MXFP4_HARDWARE 0
#endif

namespace mxfp4 {

constexpr u32 BLOCK = 32;  // values of K that share a scale
constexpr u32 INF = 0x7F80;

template <typename T> MXFP4_DEVICE constexpr T larger(T a, T b) { return a > b ? a : b; }
template <typename T> MXFP4_DEVICE constexpr T smaller(T a, T b) { return a < b ? a : b; }

MXFP4_DEVICE u32 workgroup() {
#if defined(__HIP__)
    return __builtin_amdgcn_workgroup_id_x();
#else
    return blockIdx.x;
#endif
}

MXFP4_DEVICE u32 thread() {
#if defined(__HIP__)
    return __builtin_amdgcn_workitem_id_x();
#else
    return threadIdx.x;
#endif
}

// Maximum of each half of a and b, as unsigned.
MXFP4_DEVICE u32 max_halves(u32 a, u32 b) {
#if defined(__HIP__)
    typedef u16 halves __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(halves, a), __builtin_bit_cast(halves, b)));
#else
    return __vmaxu2(a, b);
#endif
}

// Maximum over LANES (1, 2, 4, 8) neighbouring lanes, in each of them. All lanes of the wave must be here.
template <u32 LANES> MXFP4_DEVICE u32 max_of_lanes(u32 value) {
    static_assert(LANES == 1 || LANES == 2 || LANES == 4 || LANES == 8, "");
#if defined(__HIP__)
    // DPP controls: quad_perm [1,0,3,2], quad_perm [2,3,0,1], row_half_mirror (by then each four lanes agree).
    if constexpr (LANES > 1) value = larger(value, (u32)__builtin_amdgcn_mov_dpp((int)value, 0xB1, 0xF, 0xF, true));
    if constexpr (LANES > 2) value = larger(value, (u32)__builtin_amdgcn_mov_dpp((int)value, 0x4E, 0xF, 0xF, true));
    if constexpr (LANES > 4) value = larger(value, (u32)__builtin_amdgcn_mov_dpp((int)value, 0x141, 0xF, 0xF, true));
#else
    for (u32 distance = 1; distance < LANES; distance *= 2)
        value = larger(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
#endif
    return value;
}

// WORDS (2 or 4) consecutive words. The address is a multiple of 2 bytes: `aligned` says whether it is one of
// 4 * WORDS too, as NVIDIA's wide loads demand. AMD's do not.
template <u32 WORDS> MXFP4_DEVICE void load_words(const u16* from, [[maybe_unused]] bool aligned, u32* words) {
    static_assert(WORDS == 2 || WORDS == 4, "");
#if defined(__HIP__)
    typedef u32 wide __attribute__((ext_vector_type(WORDS), aligned(2)));
    const wide loaded = *(const wide*)from;
#pragma unroll
    for (u32 i = 0; i < WORDS; i++) words[i] = loaded[i];
#else
    if (!aligned) {
#pragma unroll
        for (u32 i = 0; i < WORDS; i++) words[i] = from[2 * i] | (u32)from[2 * i + 1] << 16;
    } else if (WORDS == 4) {
        const uint4 loaded = *(const uint4*)from;
        words[0] = loaded.x, words[1] = loaded.y, words[WORDS - 2] = loaded.z, words[WORDS - 1] = loaded.w;
    } else {
        const uint2 loaded = *(const uint2*)from;
        words[0] = loaded.x, words[1] = loaded.y;
    }
#endif
}

// BYTES (1, 2 or a multiple of 4 up to 16) from `words` to an address that is a multiple of BYTES.
template <u32 BYTES> MXFP4_DEVICE void store_bytes(u8* to, const u32* words) {
    static_assert(BYTES == 1 || BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16, "");
    if constexpr (BYTES == 1) *to = (u8)words[0];
    if constexpr (BYTES == 2) *(u16*)to = (u16)words[0];
    if constexpr (BYTES == 4) *(u32*)to = words[0];
    if constexpr (BYTES > 4) {
        struct alignas(BYTES) wide { u32 word[BYTES / 4]; } all;
#pragma unroll
        for (u32 i = 0; i < BYTES / 4; i++) all.word[i] = words[i];
        *(wide*)to = all;
    }
}

// Offset in bytes of the scale of block `group` of `row` in the shuffled layout.
MXFP4_DEVICE u64 scale_offset(u32 row, u32 group, u32 padded_groups) {
    const u32 inside = (group / 8) * 256 + (group % 4) * 64 + (row % 16) * 4 + (group / 4 % 2) * 2 + row / 16 % 2;
    return (u64)(row / 32) * (32 * padded_groups) + inside;  // only the row's part can exceed 32 bits
}

// E8M0 byte of a block whose largest magnitude is `amax`.
MXFP4_DEVICE u32 scale_byte(u32 amax) {
    const u32 exponent = (amax + 0x20) >> 7;  // rounds up from mantissa 1.75
    u32 byte = larger(exponent, 2u) - 2;
    byte = exponent >= 255 ? 254 : byte;  // Inf, and what rounds up to it, take the largest scale
    return amax > INF ? 255 : byte;
}

// E2M1 magnitude of |x| / 2^(byte - 127) to nearest even, for a block with 3 <= byte <= 253: no subnormal is large
// enough to matter and none is infinite.
MXFP4_DEVICE u32 code_of_ordinary(u32 magnitude, u32 byte) {
    // The quotient as a float with E2M1's bias and bf16's seven fraction bits; below 1 its exponent is <= 0.
    const int scaled = (int)magnitude - ((int)byte - 1) * 0x80;
    const int normal = (scaled + 0x1F + (scaled >> 6 & 1)) >> 6;  // to one fraction bit, ties to even
    const int subnormal = (scaled > -0x80) + (scaled >= 0x40);    // above .25, from .75
    return (u32)larger(normal, subnormal);
}

// The same for every block without NaN, through fixed point: about twice the work.
MXFP4_DEVICE u32 code_of_any(u32 magnitude, u32 byte) {
    const u32 exponent = larger(magnitude >> 7, 1u);
    const u32 significand = magnitude - (exponent - 1) * 0x80;  // |x| = significand * 2^(exponent - 134)
    const u32 quotient = significand << 20 >> smaller(byte + 2 - exponent, 31u);  // in 2^-25; exact from .25 on
    const u32 above = (quotient >= 2u << 25) + (quotient >= 4u << 25);  // each doubles the distance of the codes
    const u32 steps = quotient >> above;
    const u32 code = 2 * above + ((steps + 0x7FFFFF + (steps >> 24 & 1)) >> 24);  // at most 7: |x| < 7 scales
    return magnitude >= INF ? 7 : code;
}

// Pairs of bf16 in COUNT (2 or 4) words to COUNT bytes of two codes, the first code and byte lowest.
template <u32 COUNT> MXFP4_DEVICE u32 pack_portably(const u32* pairs, u32 byte) {
    u32 packed = 0;
    const bool ordinary = byte - 3 <= 250;
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const u32 low = pairs[i] & 0x7FFF, high = pairs[i] >> 16 & 0x7FFF;
        const u32 codes = ordinary ? code_of_ordinary(low, byte) | code_of_ordinary(high, byte) << 4
                                   : code_of_any(low, byte) | code_of_any(high, byte) << 4;
        packed |= (codes | (pairs[i] >> 12 & 0x8) | (pairs[i] >> 24 & 0x80)) << 8 * i;
    }
    return packed;
}

#if MXFP4_HARDWARE
// The same by CDNA 4's conversion, which reads the exponent field of the scale only, so that byte 0 is 2^-127 as well.
template <u32 COUNT> MXFP4_DEVICE u32 pack_in_hardware(const u32* pairs, u32 byte) {
    typedef __bf16 pair __attribute__((ext_vector_type(2)));
    const float scale = __builtin_bit_cast(float, byte << 23);
    u32 packed = pairs[0];  // whose bytes are all replaced, so that no register needs clearing
    packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(packed, __builtin_bit_cast(pair, pairs[0]), scale, 0);
    packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(packed, __builtin_bit_cast(pair, pairs[1]), scale, 1);
    if constexpr (COUNT == 4) {
        packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(packed, __builtin_bit_cast(pair, pairs[2]), scale, 2);
        packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(packed, __builtin_bit_cast(pair, pairs[3]), scale, 3);
    }
    return packed;
}
#endif

template <u32 COUNT> MXFP4_DEVICE u32 pack_codes(const u32* pairs, u32 byte) {
    static_assert(COUNT == 2 || COUNT == 4, "");
#if MXFP4_HARDWARE
    return pack_in_hardware<COUNT>(pairs, byte);
#else
    return pack_portably<COUNT>(pairs, byte);
#endif
}

}  // namespace mxfp4
