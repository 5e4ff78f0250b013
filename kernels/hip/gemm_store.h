// The store of a wave's part of C. A lane has four consecutive columns of a row in each quarter of a fragment; stores
// are 16 bytes wide, so two quarters of bf16 are brought together by swapping halves with another lane.
#pragma once

#include "gemm_tile.h"

namespace mxfp4 {

MXFP4_DEVICE u32 to_bf16(float low, float high) {
    typedef float floats2 __attribute__((ext_vector_type(2)));
    typedef __bf16 pair __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(u32, __builtin_convertvector((floats2){low, high}, pair));
}

// Every four consecutive columns of a lane. Each fragment of 16x16 has one such quad, of 32x32 four.
template <typename T> struct Quads {
    static constexpr u32 IN_FRAGMENT = T::ROWS * T::ROWS / WAVE / 4;
    static constexpr u32 COUNT = T::Columns::FRAGMENTS * IN_FRAGMENT;

    template <u32 Q> static MXFP4_DEVICE floats4 of(const typename T::Accumulator (&row)[T::Columns::FRAGMENTS]) {
        constexpr u32 FIRST = Q % IN_FRAGMENT * 4;
        const auto& sum = row[Q / IN_FRAGMENT];
        return {sum[FIRST], sum[FIRST + 1], sum[FIRST + 2], sum[FIRST + 3]};
    }
    // First column of the quad in lane 0.
    static constexpr u32 column(u32 quad) {
        return T::Columns::first_row(quad / IN_FRAGMENT) + T::Columns::row_of(quad % IN_FRAGMENT * 8);
    }
};

// Lanes of `a` and `b` so exchanged that each lane has in `a`, then `b`, what two neighbours had in one of them.
template <typename T> MXFP4_DEVICE void bring_together(u32& a, u32& b) {
    pair_of_words both;
    if constexpr (T::ROWS == 16) both = __builtin_amdgcn_permlane16_swap(a, b, false, false);
    else both = __builtin_amdgcn_permlane32_swap(a, b, false, false);
    a = both[0], b = both[1];
}

// Column of the lane in two quads that were brought together, from the first of them on.
template <typename T> MXFP4_DEVICE u32 paired_column(const Lane<T>& lane) {
    return T::ROWS == 16 ? lane.block % 2 * 16 + lane.block / 2 * 8 : lane.block * 8;
}

// sum, of the wave whose first row and column are m and n, to `out` with `stride` elements from row to row.
template <typename T, typename Element>
MXFP4_DEVICE void store_tile(Element* out, u64 stride, u32 M, u32 N, u32 m, u32 n, const Sums<T>& sum) {
    typedef Quads<T> Q;
    constexpr u32 SIZE = sizeof(Element), STEP = SIZE == 2 && Q::COUNT % 2 == 0 ? 2 : 1;  // quads in a store
    const Lane<T> lane;
    const u32 rows = left(M, m, T::WAVE_M), columns = left(N, n, T::WAVE_N);
    const u32 elements = rows > 0 && columns > 0 ? (rows - 1) * (u32)stride + columns : 0;
    const Buffer to(out, (m * stride + n) * SIZE, elements * SIZE);
    u32 offsets[Q::COUNT];
    unrolled<Q::COUNT / STEP>([&](auto unit) MXFP4_INLINE {
        constexpr u32 QUAD = unit.value * STEP;
        const u32 column = Q::column(QUAD) + (STEP == 2 ? paired_column(lane) : lane.block * 4);
        offsets[QUAD] = column < columns ? column * SIZE : OUTSIDE;
    });
    unrolled<T::Rows::FRAGMENTS>([&](auto i) MXFP4_INLINE {
        const u32 row = (T::Rows::first_row(i.value) + T::Rows::row_of(lane.row)) * (u32)stride * SIZE;
        unrolled<Q::COUNT / STEP>([&](auto unit) MXFP4_INLINE {
            constexpr u32 QUAD = unit.value * STEP;
            const floats4 x = Q::template of<QUAD>(sum[i.value]);
            const u32 offset = row + offsets[QUAD];
            if constexpr (SIZE == 4) {
                to.store(x, offset);
            } else {
                u32 low = to_bf16(x[0], x[1]), high = to_bf16(x[2], x[3]);
                if constexpr (STEP == 1) {
                    to.store((pair_of_words){low, high}, offset);
                } else {
                    const floats4 y = Q::template of<QUAD + STEP - 1>(sum[i.value]);
                    u32 next_low = to_bf16(y[0], y[1]), next_high = to_bf16(y[2], y[3]);
                    bring_together<T>(low, next_low);
                    bring_together<T>(high, next_high);
                    to.store((words4){(int)low, (int)high, (int)next_low, (int)next_high}, offset);
                }
            }
        });
    });
}

}  // namespace mxfp4
