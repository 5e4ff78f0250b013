// The tile of C of one workgroup, and the matrix instructions that compute it.
//
// The product is computed transposed, B first: a lane then holds consecutive columns of one row of C.
//
// A step is TILE_K of K and has PARTS of 128, in which a lane of the matrix instruction holds 32 values of one row:
//   16x16x128: lane l has row l % 16, block l / 16 of the part.
//   32x32x64:  lane l has row l % 32, block l / 32 of each half of the part, called a slice.

#pragma once

#include "gemm_device.h"

namespace mxfp4 {

constexpr u32 PART_K = 128;
constexpr u32 SCALED_K = 256;  // of K that one word of scales covers, for two rows that are 16 apart
constexpr u32 LDS_LINE = 16;   // 16-byte words that the LDS serves in a clock: 64 banks (AMD CDNA4 ISA, "LDS")
constexpr u32 LDS_LIMIT = 160 * 1024;
constexpr u32 REGISTERS = 512;      // of a lane, shared by the waves of one SIMD
constexpr u32 OTHER_REGISTERS = 8;  // temporaries and what the allocator cannot use, beside those counted below

// One dimension of a wave's part: EXTENT rows of A, or columns of C, by instructions of ROWS of them.
//
// A word of scales holds those of two rows 16 apart, so 16 lanes times one byte of it fit the 16-row instruction. The
// 32-row instruction takes the two rows 16 apart of two such groups of 32 in turn, if it has an even number of groups:
// lanes 0-15 then use the same byte as lanes 16-31. In all other cases the lanes shift their words.
template <u32 EXTENT, u32 ROWS> struct Side {
    static_assert(EXTENT % 32 == 0 || (ROWS == 16 && EXTENT == 16),
                  "a wave has 16 (MFMA 16 only) or 32 * i rows and columns");
    static constexpr bool PAIRED = ROWS == 32 && EXTENT % 64 == 0;
    static constexpr bool SHIFTED = EXTENT == 16 || (ROWS == 32 && !PAIRED);
    static constexpr u32 FRAGMENTS = EXTENT / ROWS;
    static constexpr u32 GROUP_ROWS = PAIRED ? 64 : 32;  // that share words of scales
    static constexpr u32 GROUPS = (EXTENT + GROUP_ROWS - 1) / GROUP_ROWS;

    // Row r of the part is MFMA row `at` of fragment I, at first_row(I) + row_of(at).
    static constexpr u32 first_row(u32 fragment) {
        return PAIRED ? fragment / 2 * 64 + fragment % 2 * 16 : fragment * ROWS;
    }
    static MXFP4_DEVICE constexpr u32 row_of(u32 at) { return PAIRED ? at / 16 * 32 + at % 16 : at; }
    static constexpr u32 group(u32 fragment) { return first_row(fragment) / GROUP_ROWS; }
    static constexpr u32 byte(u32 part, u32 fragment) { return part % 2 * 2 + (SHIFTED ? 0 : fragment % 2); }
};

template <u32 TILE_M, u32 TILE_N, u32 TILE_K, u32 SPLIT_M, u32 SPLIT_N, u32 DEPTH, u32 MFMA_ROWS> struct Tile {
    static_assert(MFMA_ROWS == 16 || MFMA_ROWS == 32, "MFMA is 16 or 32");
    static_assert(TILE_K % SCALED_K == 0, "BLOCK_K is a multiple of 256");
    static_assert(TILE_M % SPLIT_M == 0 && TILE_N % SPLIT_N == 0, "the waves divide the tile");
    static_assert(DEPTH >= 1 && DEPTH <= 4, "NUM_STAGES is 1 to 4");

    static constexpr u32 M = TILE_M, N = TILE_N, K = TILE_K, ROWS = MFMA_ROWS, STAGES = DEPTH;
    static constexpr u32 WAVE_M = TILE_M / SPLIT_M, WAVE_N = TILE_N / SPLIT_N;
    static constexpr u32 WAVES = SPLIT_M * SPLIT_N, THREADS = WAVE * WAVES;
    typedef Side<WAVE_M, ROWS> Rows;
    typedef Side<WAVE_N, ROWS> Columns;
    static constexpr u32 PARTS = K / PART_K;
    static constexpr u32 SLICES = ROWS / 16;  // matrix instructions along K in a part
    static constexpr u32 SCALE_WORDS = K / SCALED_K * SLICES;  // of a lane, for a group of rows
    typedef __attribute__((ext_vector_type(ROWS * ROWS / WAVE))) float Accumulator;

    static constexpr u32 ROW_BYTES = K / 2;
    static constexpr u32 COPY_BYTES = THREADS * LOAD_BYTES;
    static constexpr u32 COPIES = (M * ROW_BYTES + COPY_BYTES - 1) / COPY_BYTES;  // loads of a lane to fill a stage
    static constexpr u32 STAGE_BYTES = COPIES * COPY_BYTES;
    static_assert(STAGES * STAGE_BYTES <= LDS_LIMIT, "the stages exceed the LDS of a compute unit");

    static constexpr u32 READS = SLICES * Rows::FRAGMENTS, B_LOADS = SLICES * Columns::FRAGMENTS;  // of a part
    static constexpr u32 MULTIPLIES = SLICES * Rows::FRAGMENTS * Columns::FRAGMENTS;               // of a part
    static constexpr u32 GROUPS = Rows::GROUPS + Columns::GROUPS;
    static constexpr u32 SCALE_LOADS = GROUPS * SCALE_WORDS;           // of a step
    static constexpr u32 LATER_LOADS = SCALE_LOADS + PARTS * B_LOADS;  // of a step, beside the copies of A
    static constexpr u32 STEP_LOADS = COPIES + LATER_LOADS;

    // Registers for B: STAGES sets if they fit beside all else, or one.
    static constexpr u32 B_SET = PARTS * B_LOADS * 4;
    static constexpr u32 BESIDE_B = WAVE_M * WAVE_N / WAVE + (READS + 2) * 4 + STAGES * SCALE_LOADS + COPIES +
                                    PARTS * SLICES + Columns::FRAGMENTS + GROUPS + OTHER_REGISTERS;
    static constexpr u32 B_STAGES = BESIDE_B + STAGES * B_SET <= REGISTERS / ((WAVES + 3) / 4) ? STAGES : 1;

    // Where a row's 16-byte words lie in the LDS: moved by an exclusive or, so that the lanes which the LDS serves
    // together, of 16 rows at one place of K, fall on all banks.
    static MXFP4_DEVICE u32 swizzled(u32 row, u32 word) {
        // A line holds two rows of 8 words, or of 24, or a part of a row of a multiple of 16.
        return ROW_BYTES / LOAD_BYTES % LDS_LINE == 0 ? word ^ row % LDS_LINE : word ^ row / 2 % (LDS_LINE / 2);
    }
};

template <typename T> using Sums = typename T::Accumulator[T::Rows::FRAGMENTS][T::Columns::FRAGMENTS];

// What a lane has of a fragment: row `row`, and of the four blocks of a part one for each slice.
template <typename T> struct Lane {
    u32 row, block;

    MXFP4_DEVICE Lane() : row(thread() % T::ROWS), block(thread() % WAVE / T::ROWS) {}
    MXFP4_DEVICE u32 block_of(u32 slice) const { return slice * 2 + block; }
};

template <u32 A_BYTE, u32 B_BYTE>
MXFP4_DEVICE floats4 multiply(words8 b, words8 a, floats4 sum, u32 b_scale, u32 a_scale) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(b, a, sum, 4, 4, B_BYTE, b_scale, A_BYTE, a_scale);
}
template <u32 A_BYTE, u32 B_BYTE>
MXFP4_DEVICE floats16 multiply(words8 b, words8 a, floats16 sum, u32 b_scale, u32 a_scale) {
    return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(b, a, sum, 4, 4, B_BYTE, b_scale, A_BYTE, a_scale);
}

MXFP4_DEVICE words8 widened(words4 codes) {  // FP4 operands are the low half of the eight words
    return __builtin_shufflevector(codes, codes, 0, 1, 2, 3, -1, -1, -1, -1);
}

}  // namespace mxfp4
