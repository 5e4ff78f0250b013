// The operands of one wave: buffers, the offsets of its lanes, and how they are loaded.
#pragma once

#include "gemm_tile.h"

namespace mxfp4 {

template <typename T> using PartOfA = words4[T::Rows::FRAGMENTS][T::SLICES];
template <typename T> using PartOfB = words4[T::Columns::FRAGMENTS][T::SLICES];

// Scales of a step: words of A's groups of rows, then of B's.
template <typename T> struct Scales {
    u32 words[T::GROUPS][T::SCALE_WORDS];

    MXFP4_DEVICE void shift(u32 by_a, u32 by_b) {
        unrolled<T::GROUPS * T::SCALE_WORDS>([&](auto number) MXFP4_INLINE {
            constexpr u32 GROUP = number.value / T::SCALE_WORDS, WORD = number.value % T::SCALE_WORDS;
            if constexpr (GROUP < T::Rows::GROUPS && T::Rows::SHIFTED) words[GROUP][WORD] >>= by_a;
            if constexpr (GROUP >= T::Rows::GROUPS && T::Columns::SHIFTED) words[GROUP][WORD] >>= by_b;
        });
    }
};

// Scalar offsets of a step in the four buffers. All lanes are outside of the buffers where there is no such step.
struct Offsets { u32 a, b, a_scale, b_scale; };

template <typename T> struct Operands {
    Lane<T> lane;
    u32 wave;
    Buffer a, b, a_scale, b_scale;
    u32 copy_offset[T::COPIES];                // of the lane in `a`
    u32 read_offset[T::PARTS][T::SLICES];      // of the lane in a stage
    u32 b_offset[T::Columns::FRAGMENTS];       // of the lane in `b`
    u32 scale_offset[T::GROUPS];               // of the lane in `a_scale` or `b_scale`
    u32 a_shift, b_shift;                      // from a word of scales to the lane's own bytes, where SHIFTED

    static MXFP4_DEVICE u32 padded_rows(u32 rows) { return (rows + 255) / 256 * 256; }
    static MXFP4_DEVICE u32 padded_groups(u32 K) { return (K / BLOCK + 7) / 8 * 8; }

    // For rows of A from m + wave_m and rows of B from n on; m is the first row of the workgroup.
    MXFP4_DEVICE Operands(const u8* codes, const u8* a_scales, const u8* weight, const u8* b_scales, u32 M, u32 N,
                          u32 K, u32 m, u32 wave, u32 wave_m, u32 n)
        : wave(wave), a(codes, (u64)m * (K / 2), left(M, m, T::M) * (K / 2)),
          b(weight, (u64)n * (K / 2), left(N, n, T::WAVE_N) * (K / 2)),
          a_scale(scales_of(a_scales, M, m + wave_m, T::WAVE_M, K)), b_scale(scales_of(b_scales, N, n, T::WAVE_N, K)) {
        constexpr u32 WORDS = T::ROW_BYTES / LOAD_BYTES;
        for (u32 i = 0; i < T::COPIES; i++) {
            const u32 word = i * T::THREADS + thread(), row = word / WORDS;
            const bool inside = (i + 1) * T::THREADS <= T::M * WORDS || row < T::M;
            copy_offset[i] = choose(inside, row * (K / 2) + T::swizzled(row, word % WORDS) * LOAD_BYTES, OUTSIDE);
        }
        const u32 row = T::Rows::row_of(lane.row), column = T::Columns::row_of(lane.row);
        for (u32 part = 0; part < T::PARTS; part++)
            for (u32 slice = 0; slice < T::SLICES; slice++)
                read_offset[part][slice] = (wave_m + row) * T::ROW_BYTES +
                                           T::swizzled(row, part * 4 + lane.block_of(slice)) * LOAD_BYTES;
        for (u32 j = 0; j < T::Columns::FRAGMENTS; j++)  // 16 rows of B take 8 * K bytes, a block of them 256
            b_offset[j] = (T::Columns::first_row(j) + column) / 16 * 8 * K + lane.block * 256 +
                          lane.row % 16 * LOAD_BYTES;
        for (u32 group = 0; group < T::GROUPS; group++) {
            const bool of_a = group < T::Rows::GROUPS;
            const u32 first = of_a ? group * T::Rows::GROUP_ROWS + row / 32 * 32
                                   : (group - T::Rows::GROUPS) * T::Columns::GROUP_ROWS + column / 32 * 32;
            scale_offset[group] = first * padded_groups(K) + lane.block * 64 + lane.row % 16 * 4;
        }
        a_shift = (T::SLICES == 2 ? lane.row / 16 : (m + wave_m) / 16 % 2) * 8;
        b_shift = (T::SLICES == 2 ? lane.row / 16 : n / 16 % 2) * 8;
    }

    static MXFP4_DEVICE Buffer scales_of(const u8* scales, u32 rows, u32 first, u32 most, u32 K) {
        const u32 group = first / 32 * 32, groups = padded_groups(K);
        return {scales, (u64)group * groups, left(padded_rows(rows), group, (most + 31) / 32 * 32) * groups};
    }

    // Offsets of the step at k, and of that of B at b_k.
    MXFP4_DEVICE Offsets at(u32 k, bool inside, u32 b_k, bool b_inside) const {
        return {choose(inside, k / 2, a.bytes), choose(b_inside, b_k * 8, b.bytes), choose(inside, k, a_scale.bytes),
                choose(inside, k, b_scale.bytes)};
    }

    // Keeps the optimiser from adding the constant parts of offsets ahead of a loop, each into a register of its own.
    MXFP4_DEVICE void forget_offsets() {
        unrolled<T::Columns::FRAGMENTS>([&](auto j) MXFP4_INLINE { asm("" : "+v"(b_offset[j.value])); });
        unrolled<T::GROUPS>([&](auto group) MXFP4_INLINE { asm("" : "+v"(scale_offset[group.value])); });
    }

    template <u32 NUMBER> MXFP4_DEVICE void copy_a(MXFP4_LDS u8* stage, u32 at) const {
        a.load_to_lds(stage + NUMBER * T::COPY_BYTES + wave * (WAVE * LOAD_BYTES), copy_offset[NUMBER], at);
    }
    MXFP4_DEVICE void copy_a(MXFP4_LDS u8* stage, u32 at) const {
        unrolled<T::COPIES>([&](auto number) MXFP4_INLINE { copy_a<number.value>(stage, at); });
    }

    template <u32 PART, u32 NUMBER> MXFP4_DEVICE void read_a(const MXFP4_LDS u8* stage, PartOfA<T>& to) const {
        constexpr u32 I = NUMBER % T::Rows::FRAGMENTS, SLICE = NUMBER / T::Rows::FRAGMENTS;
        const MXFP4_LDS u8* from = stage + read_offset[PART][SLICE] + T::Rows::first_row(I) * T::ROW_BYTES;
        to[I][SLICE] = read_lds((const MXFP4_LDS words4*)from);
    }
    template <u32 PART> MXFP4_DEVICE void read_a(const MXFP4_LDS u8* stage, PartOfA<T>& to) const {
        unrolled<T::READS>([&](auto number) MXFP4_INLINE { read_a<PART, number.value>(stage, to); });
    }

    template <u32 PART, u32 NUMBER> MXFP4_DEVICE void load_b(u32 at, PartOfB<T>& to) const {
        constexpr u32 J = NUMBER % T::Columns::FRAGMENTS, SLICE = NUMBER / T::Columns::FRAGMENTS;
        to[J][SLICE] = b.load16(b_offset[J] + PART * 1024 + SLICE * 512, at);
    }
    template <u32 PART> MXFP4_DEVICE void load_b(u32 at, PartOfB<T>& to) const {
        unrolled<T::B_LOADS>([&](auto number) MXFP4_INLINE { load_b<PART, number.value>(at, to); });
    }
    // The same with 0 for all but the first `values` of K.
    template <u32 PART> MXFP4_DEVICE void load_b(u32 at, PartOfB<T>& to, u32 values) const {
        for (u32 j = 0; j < T::Columns::FRAGMENTS; j++)
            for (u32 slice = 0; slice < T::SLICES; slice++) {
                const u32 offset = b_offset[j] + PART * 1024 + slice * 512;
                to[j][slice] = b.load16(lane.block_of(slice) * BLOCK < values ? offset : OUTSIDE, at);
            }
    }

    template <u32 NUMBER> MXFP4_DEVICE void load_scale(const Offsets& at, Scales<T>& to) const {
        constexpr u32 GROUP = NUMBER % T::GROUPS, WORD = NUMBER / T::GROUPS;
        const u32 offset = scale_offset[GROUP] + WORD / T::SLICES * 256 + WORD % T::SLICES * 128;
        if constexpr (GROUP < T::Rows::GROUPS) to.words[GROUP][WORD] = a_scale.load4(offset, at.a_scale);
        else to.words[GROUP][WORD] = b_scale.load4(offset, at.b_scale);
    }
    MXFP4_DEVICE void load_scales(const Offsets& at, Scales<T>& to) const {
        unrolled<T::SCALE_LOADS>([&](auto number) MXFP4_INLINE { load_scale<number.value>(at, to); });
    }
};

}  // namespace mxfp4
