// The sum over a range of K of one workgroup: the loop of gemm_step.h, its beginning, its last steps, and a tail.
#pragma once

#include "gemm_step.h"

namespace mxfp4 {

// What the loop has issued before its first step, in an order that leaves as many loads after each copy.
template <typename T>
MXFP4_DEVICE void fill_stages(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 start, u32 steps,
                              Registers<T>& registers) {
    constexpr u32 LAST = T::PARTS - 1, STAGES = T::STAGES, B_STAGES = T::B_STAGES;
    const auto load_b = [&](auto stage, auto part, const Offsets& at) MXFP4_INLINE {
        constexpr u32 S = stage.value, P = part.value;  // the step itself loads the last part of the last set
        if constexpr (S + 1 < B_STAGES || P < LAST) operands.template load_b<P>(at.b, registers.b[S][P]);
        keep_order();
    };
    unrolled<STAGES>([&](auto stage) MXFP4_INLINE {
        constexpr u32 S = stage.value;
        const u32 k = start + S * T::K;
        const Offsets at = operands.at(k, S < steps, k, S < steps);
        if constexpr (B_STAGES == STAGES) unrolled<LAST - 1>([&](auto part) MXFP4_INLINE { load_b(stage, part, at); });
        operands.copy_a(lds + S * T::STAGE_BYTES, at.a);
        keep_order();
        if constexpr (B_STAGES == STAGES) load_b(stage, index<LAST - 1>{}, at);
        if constexpr (S + 1 < STAGES) operands.load_scales(at, registers.scales[S]);
        keep_order();
        if constexpr (B_STAGES == STAGES) load_b(stage, index<LAST>{}, at);
    });
    if constexpr (B_STAGES != STAGES) {
        const Offsets at = operands.at(start, true, start, true);
        unrolled<T::PARTS>([&](auto part) MXFP4_INLINE { load_b(index<0>{}, part, at); });
    }
    constexpr u32 OF_B = B_STAGES == STAGES ? STAGES * T::PARTS - 1 - (LAST - 1) : LAST;  // parts, since the first copy
    meet<(STAGES - 1) * (T::COPIES + T::SCALE_LOADS) + OF_B * T::B_LOADS>();
    operands.template read_a<0>(lds, registers.a[0]);
}

// `steps` whole steps from `start` on. The loop has one exit, and what does not fill it comes after it: LLVM's wait
// insertion would take a second exit for a way back.
template <typename T>
MXFP4_DEVICE void multiply_steps(Operands<T>& operands, MXFP4_LDS u8* lds, u32 start, u32 steps, Sums<T>& sum) {
    constexpr u32 STAGES = T::STAGES, LATER = STAGES - T::B_STAGES;
    Registers<T> registers;
    fill_stages<T>(operands, lds, start, steps, registers);
    const auto offsets_of = [&](u32 step) MXFP4_INLINE {  // of B: LATER steps less
        const u32 b_step = step - LATER;
        return operands.at(start + step * T::K, step < steps, start + b_step * T::K, b_step < steps);
    };
    u32 done = 0;
    Offsets before = offsets_of(STAGES - 1);
    const auto run = [&](auto stage, auto ends) MXFP4_INLINE {
        const Offsets ahead = offsets_of(done + stage.value + STAGES);
        Step<T, stage.value, ends.value != 0>::run(operands, lds, before, ahead, registers, sum);
        before = ahead;
    };
    if (steps >= STAGES) do {
        unrolled<STAGES>([&](auto stage) MXFP4_INLINE { run(stage, index<0>{}); });
        done += STAGES;
    } while (done + STAGES <= steps);
    unrolled<STAGES - 1>([&](auto stage) MXFP4_INLINE { if (done + stage.value < steps) run(stage, index<1>{}); });
}

// The rest of [k, K), shorter than a step. The codes of A beyond it are those of another row: they meet zeros of B, and
// scales that are not NaN.
template <typename T>
MXFP4_DEVICE void multiply_tail(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 k, u32 K, Sums<T>& sum) {
    const Offsets at = operands.at(k, true, k, true);
    meet<0>();
    operands.copy_a(lds, at.a);
    Scales<T> scales;
    operands.load_scales(at, scales);
    for (u32 word = 0; word < T::SCALE_WORDS; word++) {  // each has the scales of two parts
        const u32 first = k + word / T::SLICES * SCALED_K + operands.lane.block_of(word % T::SLICES) * BLOCK;
        const u32 mask = first + PART_K < K ? 0xFFFFFFFF : first < K ? 0xFFFF : 0;
        for (u32 group = 0; group < T::GROUPS; group++) scales.words[group][word] &= mask;
    }
    scales.shift(operands.a_shift, operands.b_shift);
    meet<0>();
    unrolled<T::PARTS>([&](auto part) MXFP4_INLINE {
        constexpr u32 P = part.value;
        if (k + P * PART_K < K) {
            PartOfA<T> a;
            PartOfB<T> b;
            operands.template read_a<P>(lds, a);
            operands.template load_b<P>(at.b, b, K - k - P * PART_K);
            unrolled<T::MULTIPLIES>([&](auto number) MXFP4_INLINE {
                multiply_one<T, P, number.value>(a, b, scales, sum);
            });
        }
    });
}

// sum += A @ B.T over [start, end).
template <typename T>
MXFP4_DEVICE void multiply_range(Operands<T>& operands, MXFP4_LDS u8* lds, u32 start, u32 end, Sums<T>& sum) {
    const u32 steps = (end - start) / T::K, k = start + steps * T::K;
    if (steps > 0) multiply_steps<T>(operands, lds, start, steps, sum);
    if (k < end) multiply_tail<T>(operands, lds, k, end, sum);
    wait_for_loads<0>();  // after the end the LDS belongs to another workgroup
}

}  // namespace mxfp4
