// The operands of one wave: buffers, the offsets of its lanes, and how they are loaded.
#pragma once

#include "gemm_tile.h"

namespace mxfp4 {

template <typename T> using PartOfA = words4[T::FRAGMENTS_M][T::SLICES];
template <typename T> using PartOfB = words4[T::FRAGMENTS_N][T::SLICES];

template <typename T> struct Scales {
    u32 a[T::GROUPS_M][T::SCALE_WORDS], b[T::GROUPS_N][T::SCALE_WORDS];

    MXFP4_DEVICE void shift(u32 by_a, u32 by_b) {
        unrolled<T::SCALE_WORDS>([&](auto word) MXFP4_INLINE {
            if constexpr (T::SHIFTED_M) for (u32 i = 0; i < T::GROUPS_M; i++) a[i][word.value] >>= by_a;
            if constexpr (T::SHIFTED_N) for (u32 j = 0; j < T::GROUPS_N; j++) b[j][word.value] >>= by_b;
        });
    }
    MXFP4_DEVICE void mask(const u32 (&words)[T::SCALE_WORDS]) {
        unrolled<T::SCALE_WORDS>([&](auto word) MXFP4_INLINE {
            for (u32 i = 0; i < T::GROUPS_M; i++) a[i][word.value] &= words[word.value];
            for (u32 j = 0; j < T::GROUPS_N; j++) b[j][word.value] &= words[word.value];
        });
    }
};

// Scalar offsets of a step in the four buffers. All lanes are outside of the buffers where there is no such step.
struct Offsets { u32 a, b, a_scale, b_scale; };

template <typename T> struct Operands {
    Lane<T> lane;
    u32 wave, K;
    Buffer a, b, a_scale, b_scale;
    u32 copy_offset[T::COPIES];                // of the lane in `a`
    u32 read_offset[T::PARTS][T::SLICES];      // of the lane in a stage
    u32 b_offset[T::FRAGMENTS_N];              // of the lane in `b`
    u32 a_scale_offset[T::GROUPS_M], b_scale_offset[T::GROUPS_N];
    u32 a_shift, b_shift;                      // from a word of scales to the lane's own bytes

    static MXFP4_DEVICE u32 padded(u32 rows) { return (rows + 255) / 256 * 256; }

    MXFP4_DEVICE Operands(const u8* codes, const u8* a_scales, const u8* weight, const u8* b_scales, u32 M, u32 N, u32 K,
                          u32 m, u32 wave, u32 wave_m, u32 n)
        : lane(thread() % WAVE), wave(wave), K(K),
          a(codes, (u64)m * (K / 2), left(M, m, T::ROWS_OF_A) * (K / 2)),
          b(weight, (u64)n * (K / 2), left(N, n, T::WAVE_N) * (K / 2)),
          a_scale(a_scales, (u64)((m + wave_m) / 32 * 32) * groups(K),
                  left(padded(M), (m + wave_m) / 32 * 32, 32 * T::GROUPS_M) * groups(K)),
          b_scale(b_scales, (u64)(n / 32 * 32) * groups(K), left(padded(N), n / 32 * 32, 32 * T::GROUPS_N) * groups(K)) {
        constexpr u32 WORDS = T::ROW_BYTES / LOAD_BYTES;
        unrolled<T::COPIES>([&](auto i) MXFP4_INLINE {
            const u32 word = i.value * T::THREADS + thread(), row = word / WORDS;
            const u32 offset = row * (K / 2) + T::swizzled(row, word % WORDS) * LOAD_BYTES;
            copy_offset[i.value] = row < T::ROWS_OF_A ? offset : OUTSIDE;
        });
        unrolled<T::PARTS>([&](auto part) MXFP4_INLINE {
            unrolled<T::SLICES>([&](auto slice) MXFP4_INLINE {
                const u32 word = T::swizzled(lane.row, part.value * 4 + lane.group(slice.value));
                read_offset[part.value][slice.value] = (wave_m + lane.row) * T::ROW_BYTES + word * LOAD_BYTES;
            });
        });
        unrolled<T::FRAGMENTS_N>([&](auto j) MXFP4_INLINE {
            b_offset[j.value] = (j.value * T::SLICES + lane.row / 16) * 8 * K + lane.row % 16 * LOAD_BYTES + lane.block * 256;
        });
        const u32 word = lane.block * 64 + lane.row % 16 * 4;
        unrolled<T::GROUPS_M>([&](auto i) MXFP4_INLINE { a_scale_offset[i.value] = i.value * 32 * groups(K) + word; });
        unrolled<T::GROUPS_N>([&](auto j) MXFP4_INLINE { b_scale_offset[j.value] = j.value * 32 * groups(K) + word; });
        a_shift = (T::SLICES == 2 ? lane.row / 16 : (m + wave_m) / 16 % 2) * 8;
        b_shift = (T::SLICES == 2 ? lane.row / 16 : n / 16 % 2) * 8;
    }

    static MXFP4_DEVICE u32 groups(u32 K) { return (K / 32 + 7) / 8 * 8; }

    // Offsets at `k`, or outside of all buffers.
    MXFP4_DEVICE Offsets at(u32 k, bool inside) const {
        return {inside ? k / 2 : a.bytes, inside ? k * 8 : b.bytes, inside ? k : a_scale.bytes, inside ? k : b_scale.bytes};
    }

    MXFP4_DEVICE void copy_a(MXFP4_LDS u8* stage, u32 at) const {
        unrolled<T::COPIES>([&](auto i) MXFP4_INLINE {
            a.load_to_lds(stage + i.value * T::COPY_BYTES + wave * (WAVE * LOAD_BYTES), copy_offset[i.value], at);
        });
    }

    template <u32 PART> MXFP4_DEVICE void read_a(const MXFP4_LDS u8* stage, PartOfA<T>& to) const {
        unrolled<T::FRAGMENTS_M>([&](auto i) MXFP4_INLINE {
            unrolled<T::SLICES>([&](auto slice) MXFP4_INLINE {
                constexpr u32 FRAGMENT = i.value * T::FRAGMENT_ROWS * T::ROW_BYTES;
                to[i.value][slice.value] =
                    read_lds((const MXFP4_LDS words4*)(stage + read_offset[PART][slice.value] + FRAGMENT));
            });
        });
    }

    template <u32 PART> MXFP4_DEVICE void load_b(u32 at, PartOfB<T>& to) const {
        unrolled<T::FRAGMENTS_N>([&](auto j) MXFP4_INLINE {
            unrolled<T::SLICES>([&](auto slice) MXFP4_INLINE {
                to[j.value][slice.value] = b.load16(b_offset[j.value] + PART * 1024 + slice.value * 512, at);
            });
        });
    }
    // The same with 0 for all but the first `values` of K.
    template <u32 PART> MXFP4_DEVICE void load_b(u32 at, PartOfB<T>& to, u32 values) const {
        unrolled<T::FRAGMENTS_N>([&](auto j) MXFP4_INLINE {
            unrolled<T::SLICES>([&](auto slice) MXFP4_INLINE {
                const u32 offset = b_offset[j.value] + PART * 1024 + slice.value * 512;
                to[j.value][slice.value] = b.load16(lane.group(slice.value) * BLOCK < values ? offset : OUTSIDE, at);
            });
        });
    }

    MXFP4_DEVICE void load_scales(const Offsets& at, Scales<T>& to) const {
        unrolled<T::SCALE_WORDS>([&](auto word) MXFP4_INLINE {
            constexpr u32 OFFSET = word.value / T::SLICES * 256 + word.value % T::SLICES * 128;
            unrolled<T::GROUPS_M>([&](auto i) MXFP4_INLINE {
                to.a[i.value][word.value] = a_scale.load4(a_scale_offset[i.value] + OFFSET, at.a_scale);
            });
            unrolled<T::GROUPS_N>([&](auto j) MXFP4_INLINE {
                to.b[j.value][word.value] = b_scale.load4(b_scale_offset[j.value] + OFFSET, at.b_scale);
            });
        });
    }
};

}  // namespace mxfp4
