// A tile of C and the operands of one workgroup: sizes, addresses, matrix instructions.
//
// The product is computed transposed, B first: a lane then holds consecutive columns of one row of C.
//
// A step is BLOCK_K of K and has PARTS of 128, in which a lane of the matrix instruction holds 32 values of one row:
//   16x16x128: lane l has row l % 16, block l / 16 of the part.
//   32x32x64:  lane l has row l % 32, block l / 32 of each half of the part.

#pragma once

#include "gemm_device.h"

namespace mxfp4 {

constexpr u32 PART_K = 128;
constexpr u32 SCALED_K = 256;  // of K that one word of scales covers, for two rows
constexpr u32 LDS_LINE = 16;   // 16-byte words that the LDS serves in a clock: 64 banks

template <u32 TILE_M, u32 TILE_N, u32 TILE_K, u32 SPLIT_M, u32 SPLIT_N, u32 STAGES_, u32 ROWS> struct Tile {
    static_assert(ROWS == 16 || ROWS == 32, "MFMA is 16 or 32");
    static_assert(TILE_K % SCALED_K == 0, "TILE_K is a multiple of 256");
    static_assert(TILE_M % SPLIT_M == 0 && TILE_N % SPLIT_N == 0, "the waves divide the tile");
    static_assert(STAGES_ >= 1 && STAGES_ <= 4, "1 to 4 stages");

    static constexpr u32 ROWS_OF_A = TILE_M, FRAGMENT_ROWS = ROWS, STEP_K = TILE_K, STAGES = STAGES_;
    static constexpr u32 THREADS = WAVE * SPLIT_M * SPLIT_N;
    static constexpr u32 WAVE_M = TILE_M / SPLIT_M, WAVE_N = TILE_N / SPLIT_N;
    static_assert(WAVE_M % 32 == 0 || (ROWS == 16 && WAVE_M == 16), "a wave has 16 (MFMA 16 only) or 32 * i rows");
    static_assert(WAVE_N % 32 == 0 || (ROWS == 16 && WAVE_N == 16), "a wave has 16 (MFMA 16 only) or 32 * i columns");
    static constexpr u32 FRAGMENTS_M = WAVE_M / ROWS, FRAGMENTS_N = WAVE_N / ROWS;
    static constexpr u32 PARTS = TILE_K / PART_K;
    static constexpr u32 SLICES = ROWS / 16;  // matrix instructions along K in a part
    static constexpr u32 GROUPS_M = (WAVE_M + 31) / 32, GROUPS_N = (WAVE_N + 31) / 32;  // of rows that share scales
    static constexpr u32 SCALE_WORDS = TILE_K / SCALED_K * SLICES;                     // of a lane, for a group

    static constexpr u32 ROW_BYTES = TILE_K / 2;
    static constexpr u32 COPY_BYTES = THREADS * LOAD_BYTES;
    static constexpr u32 COPIES = (TILE_M * ROW_BYTES + COPY_BYTES - 1) / COPY_BYTES;  // loads of a lane to fill a stage
    static constexpr u32 STAGE_BYTES = COPIES * COPY_BYTES;
    static constexpr u32 LDS_BYTES = STAGES * STAGE_BYTES;
    static_assert(LDS_BYTES <= 160 * 1024, "the stages exceed the LDS of a compute unit");

    static constexpr u32 B_LOADS = FRAGMENTS_N * SLICES;                         // of a part
    static constexpr u32 SCALE_LOADS = (GROUPS_M + GROUPS_N) * SCALE_WORDS;      // of a step
    static constexpr u32 LATER_LOADS = SCALE_LOADS + PARTS * B_LOADS;            // of a step, beside A
    static constexpr u32 STEP_LOADS = COPIES + LATER_LOADS;

    typedef __attribute__((ext_vector_type(ROWS * ROWS / 64))) float Accumulator;

    // Group of rows that share words of scales, and the byte of such a word, shifted by `shift`, for a fragment.
    static constexpr u32 group(u32 fragment) { return fragment * ROWS / 32; }
    template <u32 PART, u32 FRAGMENT> static constexpr u32 SCALE_BYTE = PART % 2 * 2 + (ROWS == 16 ? FRAGMENT % 2 : 0);
    static constexpr bool SHIFTED_M = ROWS == 32 || WAVE_M == 16, SHIFTED_N = ROWS == 32 || WAVE_N == 16;

    // Where a row's 16-byte words lie in the LDS: rotated by an exclusive or, so that the lanes which the LDS serves
    // together, of 16 rows at one place of K, fall on all banks.
    static MXFP4_DEVICE u32 swizzled(u32 row, u32 word) {
        constexpr u32 WORDS = ROW_BYTES / LOAD_BYTES;
        return WORDS < LDS_LINE ? word ^ (row * WORDS / LDS_LINE % WORDS) : word ^ row % LDS_LINE;
    }
};

template <typename T> using Sums = typename T::Accumulator[T::FRAGMENTS_M][T::FRAGMENTS_N];

// Which 32 values of K of a part the lane holds in slice `slice`, and which row of a fragment.
template <typename T> struct Lane {
    u32 id, row, block;

    MXFP4_DEVICE explicit Lane(u32 id) : id(id), row(id % (16 * T::SLICES)), block(id / (16 * T::SLICES)) {}
    MXFP4_DEVICE u32 group(u32 slice) const { return slice * 2 + block; }  // of 4 in a part
};

template <u32 A_BYTE, u32 B_BYTE> MXFP4_DEVICE floats4 multiply(words8 b, words8 a, floats4 sum, u32 b_scale, u32 a_scale) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(b, a, sum, 4, 4, B_BYTE, b_scale, A_BYTE, a_scale);
}
template <u32 A_BYTE, u32 B_BYTE> MXFP4_DEVICE floats16 multiply(words8 b, words8 a, floats16 sum, u32 b_scale, u32 a_scale) {
    return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(b, a, sum, 4, 4, B_BYTE, b_scale, A_BYTE, a_scale);
}

MXFP4_DEVICE words8 widened(words4 codes) {  // FP4 operands are the low half of the eight words
    return __builtin_shufflevector(codes, codes, 0, 1, 2, 3, -1, -1, -1, -1);
}

}  // namespace mxfp4
