// The loop over K of one workgroup.
//
// A goes through the LDS, in STAGES buffers, by loads that write there directly; B and all scales go straight to
// registers, in STAGES sets. While a part is multiplied, loads for STAGES steps later are issued into what the
// part before has left free, and the next part of A is read from the LDS. So a load has STAGES - 1 to STAGES
// steps of time, and a step has one barrier: before the first read of the next step's A, when everybody has read the
// last part of the present one. (With one stage there is a second barrier, and nobody to hide the loads behind but
// other workgroups.)

#pragma once

#include "gemm_operands.h"

namespace mxfp4 {

// Of `total` things, how many come before turn `turn` of `turns`, the first at once.
MXFP4_DEVICE constexpr u32 share(u32 total, u32 turn, u32 turns) { return (turn * total + turns - 1) / turns; }

template <typename T> struct Registers {
    PartOfA<T> a[2];
    PartOfB<T> b[T::STAGES][T::PARTS];
    Scales<T> scales[T::STAGES];
};

template <typename T, u32 PART>
MXFP4_DEVICE void multiply_part(const PartOfA<T>& a, const PartOfB<T>& b, const Scales<T>& scales, Sums<T>& sum) {
    unrolled<T::SLICES>([&](auto slice) MXFP4_INLINE {
        unrolled<T::FRAGMENTS_M>([&](auto i) MXFP4_INLINE {
            unrolled<T::FRAGMENTS_N>([&](auto j) MXFP4_INLINE {
                constexpr u32 I = i.value, J = j.value, S = slice.value, WORD = PART / 2 * T::SLICES + S;
                constexpr u32 A_BYTE = T::template SCALE_BYTE<PART, T::WAVE_M == 16 ? 0 : I>;
                constexpr u32 B_BYTE = T::template SCALE_BYTE<PART, T::WAVE_N == 16 ? 0 : J>;
                sum[I][J] = multiply<A_BYTE, B_BYTE>(widened(b[J][S]), widened(a[I][S]), sum[I][J],
                                                     scales.b[T::group(J)][WORD], scales.a[T::group(I)][WORD]);
            });
        });
    });
}

// Asks the scheduler to spread loads, LDS reads and copies to the LDS between the matrix instructions of a part, each as
// early as it can.
template <typename T, u32 LOADS, u32 READS, u32 COPIES> MXFP4_DEVICE void interleave() {
    constexpr u32 MATRIX = 0x8, LOAD = 0x20, COPY = 0x40, READ = 0x100;  // classes of sched_group_barrier
    constexpr u32 COUNT = T::SLICES * T::FRAGMENTS_M * T::FRAGMENTS_N;
    unrolled<COUNT>([&](auto i) MXFP4_INLINE {
        constexpr u32 I = i.value;
        constexpr u32 BEGIN = share(COPIES + LOADS, I, COUNT), END = share(COPIES + LOADS, I + 1, COUNT);
        constexpr u32 COPIES_HERE = smaller(END, COPIES) - smaller(BEGIN, COPIES);
        constexpr u32 READS_HERE = share(READS, I + 1, COUNT) - share(READS, I, COUNT);
        __builtin_amdgcn_sched_group_barrier(MATRIX, 1, 0);
        if constexpr (READS_HERE > 0) __builtin_amdgcn_sched_group_barrier(READ, READS_HERE, 0);
        if constexpr (COPIES_HERE > 0) __builtin_amdgcn_sched_group_barrier(COPY, COPIES_HERE, 0);
        if constexpr (END - BEGIN > COPIES_HERE) __builtin_amdgcn_sched_group_barrier(LOAD, END - BEGIN - COPIES_HERE, 0);
    });
}

// The barrier of a step in stage S, after which the next step's A can be read and the copy STAGES later begins.
template <typename T, u32 S>
MXFP4_DEVICE void turn(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 ahead, PartOfA<T>& next) {
    MXFP4_LDS u8* const stage = lds + S * T::STAGE_BYTES;
    if constexpr (T::STAGES == 1) {
        meet<MOST_LOADS>();
        operands.copy_a(stage, ahead);
        meet<0>();
        operands.template read_a<0>(stage, next);
    } else {
        meet<(T::STAGES - 2) * T::STEP_LOADS + T::LATER_LOADS>();
        operands.copy_a(stage, ahead);
        keep_order_of_loads();  // that the next waits count on
        operands.template read_a<0>(lds + (S + 1) % T::STAGES * T::STAGE_BYTES, next);
    }
}

// One step, whose operands lie in stage S. Issues the loads of the step `ahead`, which is STAGES steps later, and what
// is left of the one before that.
template <typename T, u32 S>
MXFP4_DEVICE void step(const Operands<T>& operands, MXFP4_LDS u8* lds, const Offsets& before, const Offsets& ahead,
                       Registers<T>& registers, Sums<T>& sum) {
    constexpr u32 LAST = T::PARTS - 1, PREVIOUS = (S + T::STAGES - 1) % T::STAGES;
    Scales<T> scales;
    unrolled<T::PARTS>([&](auto part) MXFP4_INLINE {
        constexpr u32 P = part.value;
        if constexpr (P == LAST) {
            turn<T, S>(operands, lds, ahead.a, registers.a[0]);
        } else {
            fence();
            operands.template read_a<P + 1>(lds + S * T::STAGE_BYTES, registers.a[(P + 1) % 2]);
        }
        if constexpr (P == 0) {
            operands.load_scales(before, registers.scales[PREVIOUS]);
            operands.template load_b<LAST>(before.b, registers.b[PREVIOUS][LAST]);
            scales = registers.scales[S];
            scales.shift(operands.a_shift, operands.b_shift);
        } else {
            operands.template load_b<P - 1>(ahead.b, registers.b[S][P - 1]);
        }
        multiply_part<T, P>(registers.a[P % 2], registers.b[S][P], scales, sum);
        constexpr u32 COPIES = P == LAST && T::STAGES > 1 ? T::COPIES : 0;
        interleave<T, T::B_LOADS + (P == 0 ? T::SCALE_LOADS : 0), T::FRAGMENTS_M * T::SLICES, COPIES>();
    });
}

// The same without loads, for one of the last steps; whether another FOLLOWS.
template <typename T, u32 S>
MXFP4_DEVICE void last_step(const Operands<T>& operands, MXFP4_LDS u8* lds, Registers<T>& registers, Sums<T>& sum) {
    constexpr u32 LAST = T::PARTS - 1;
    Scales<T> scales = registers.scales[S];
    scales.shift(operands.a_shift, operands.b_shift);
    unrolled<T::PARTS>([&](auto part) MXFP4_INLINE {
        constexpr u32 P = part.value;
        if constexpr (P < LAST) {
            fence();
            operands.template read_a<P + 1>(lds + S * T::STAGE_BYTES, registers.a[(P + 1) % 2]);
        } else if constexpr (S + 2 < T::STAGES) {
            meet<(T::STAGES - 2 - S) * T::STEP_LOADS + T::B_LOADS>();
            operands.template read_a<0>(lds + (S + 1) * T::STAGE_BYTES, registers.a[0]);
        }
        multiply_part<T, P>(registers.a[P % 2], registers.b[S][P], scales, sum);
    });
}

// What the loop has issued before its first step, in the order in which it would have: all of the first STAGES steps but
// the last part of the last one.
template <typename T>
MXFP4_DEVICE void fill_stages(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 start, u32 steps, Registers<T>& registers) {
    unrolled<T::STAGES>([&](auto stage) MXFP4_INLINE {
        constexpr u32 S = stage.value, LAST = T::PARTS - 1;
        const Offsets at = operands.at(start + S * T::STEP_K, S < steps);
        unrolled<LAST>([&](auto part) MXFP4_INLINE {
            constexpr u32 P = part.value;
            if constexpr (P + 1 == LAST) operands.copy_a(lds + S * T::STAGE_BYTES, at.a);
            keep_order_of_loads();
            operands.template load_b<P>(at.b, registers.b[S][P]);
            keep_order_of_loads();
        });
        if constexpr (S + 1 < T::STAGES) {
            operands.load_scales(at, registers.scales[S]);
            keep_order_of_loads();
            operands.template load_b<LAST>(at.b, registers.b[S][LAST]);
            keep_order_of_loads();
        }
    });
    meet<(T::STAGES - 1) * T::STEP_LOADS + T::B_LOADS>();
    operands.template read_a<0>(lds, registers.a[0]);
}

// `steps` whole steps from `start` on. The loop has one exit, and what does not fill it comes after it: the wait insertion
// would take a second exit for a way back.
template <typename T>
MXFP4_DEVICE void multiply_steps(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 start, u32 steps, Sums<T>& sum) {
    constexpr u32 STAGES = T::STAGES;
    Registers<T> registers;
    fill_stages<T>(operands, lds, start, steps, registers);
    Offsets before = operands.at(start + (STAGES - 1) * T::STEP_K, STAGES - 1 < steps);
    u32 done = 0;
    if (steps >= STAGES) do {
        unrolled<STAGES>([&](auto stage) MXFP4_INLINE {
            constexpr u32 S = stage.value;
            const Offsets ahead = operands.at(start + (done + S + STAGES) * T::STEP_K, done + S + STAGES < steps);
            step<T, S>(operands, lds, before, ahead, registers, sum);
            before = ahead;
        });
        done += STAGES;
    } while (done + STAGES <= steps);
    unrolled<STAGES - 1>([&](auto stage) MXFP4_INLINE {
        if (done + stage.value < steps) last_step<T, stage.value>(operands, lds, registers, sum);
    });
}

// The rest of [k, K), shorter than a step. The codes of A beyond it are those of another row: they meet zeros of B.
template <typename T>
MXFP4_DEVICE void multiply_tail(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 k, u32 K, Sums<T>& sum) {
    const Offsets at = operands.at(k, true);
    meet<0>();
    operands.copy_a(lds, at.a);
    Scales<T> scales;
    operands.load_scales(at, scales);
    u32 words[T::SCALE_WORDS];
    unrolled<T::SCALE_WORDS>([&](auto word) MXFP4_INLINE {  // a word has the scales of two parts
        constexpr u32 FIRST = word.value / T::SLICES * SCALED_K, SLICE = word.value % T::SLICES;
        const u32 low = k + FIRST + operands.lane.group(SLICE) * BLOCK < K ? 0xFFFF : 0;
        words[word.value] = k + FIRST + PART_K + operands.lane.group(SLICE) * BLOCK < K ? 0xFFFFFFFF : low;
    });
    scales.mask(words);
    scales.shift(operands.a_shift, operands.b_shift);
    meet<0>();
    unrolled<T::PARTS>([&](auto part) MXFP4_INLINE {
        constexpr u32 P = part.value;
        if (k + P * PART_K < K) {
            PartOfA<T> a;
            PartOfB<T> b;
            operands.template read_a<P>(lds, a);
            operands.template load_b<P>(at.b, b, K - k - P * PART_K);
            multiply_part<T, P>(a, b, scales, sum);
        }
    });
}

// sum += A @ B.T over [start, end).
template <typename T>
MXFP4_DEVICE void multiply_range(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 start, u32 end, Sums<T>& sum) {
    const u32 steps = (end - start) / T::STEP_K;
    if (steps > 0) multiply_steps<T>(operands, lds, start, steps, sum);
    const u32 k = start + steps * T::STEP_K;
    if (k < end) multiply_tail<T>(operands, lds, k, end, sum);
    wait_for_loads<0>();  // the LDS is another workgroup's after this one's end
}

}  // namespace mxfp4
