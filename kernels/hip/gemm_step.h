// One step of the loop over K, as a fixed sequence of instructions.
//
// A goes through the LDS, in STAGES buffers, by loads that write there directly; B and all scales go straight to
// registers, in B_STAGES and STAGES sets. While a part is multiplied, loads for STAGES steps later are issued into what
// the part before has left free, and the next part of A is read from the LDS. So a load has STAGES - 1 to STAGES steps
// of time (one of B about B_STAGES), and a step has one barrier: before the first read of the next step's A, when
// everybody has read the last part of the present one. (With one stage there is a second barrier, and only other
// workgroups hide the loads.)

#pragma once

#include "gemm_operands.h"

namespace mxfp4 {

// Which of TOTAL things fall to turn TURN of TURNS, the first at once.
template <u32 TOTAL, u32 TURN, u32 TURNS> struct Share {
    static constexpr u32 FIRST = (TURN * TOTAL + TURNS - 1) / TURNS;
    static constexpr u32 COUNT = ((TURN + 1) * TOTAL + TURNS - 1) / TURNS - FIRST;
};

// Which LDS reads of the next part fall to turn TURN. Fragment r of A is free after r + 1 rows of matrix instructions;
// the read is two rows earlier, so that none is in flight for long at the end of the part.
template <typename T, u32 TURN> struct ReadsOf {
    static constexpr u32 before(u32 turn) {
        constexpr u32 ROW = T::Columns::FRAGMENTS;
        return turn == 0 ? 0 : smaller(T::READS, (turn + ROW - 1) / ROW + 1);
    }
    static constexpr u32 FIRST = before(TURN), COUNT = before(TURN + 1) - FIRST;
};

template <typename T> struct Registers {
    PartOfA<T> a[2];
    PartOfB<T> b[T::B_STAGES][T::PARTS];
    Scales<T> scales[T::STAGES];
};

// Matrix instruction NUMBER of part PART.
template <typename T, u32 PART, u32 NUMBER>
MXFP4_DEVICE void multiply_one(const PartOfA<T>& a, const PartOfB<T>& b, const Scales<T>& scales, Sums<T>& sum) {
    constexpr u32 J = NUMBER % T::Columns::FRAGMENTS, I = NUMBER / T::Columns::FRAGMENTS % T::Rows::FRAGMENTS;
    constexpr u32 SLICE = NUMBER / T::Columns::FRAGMENTS / T::Rows::FRAGMENTS, WORD = PART / 2 * T::SLICES + SLICE;
    sum[I][J] = multiply<T::Rows::byte(PART, I), T::Columns::byte(PART, J)>(
        widened(b[J][SLICE]), widened(a[I][SLICE]), sum[I][J],
        scales.words[T::Rows::GROUPS + T::Columns::group(J)][WORD], scales.words[T::Rows::group(I)][WORD]);
}

// A step whose operands lie in stage S; ENDS: one of the last steps, S after the loop, for which all but the B of
// B_STAGES = 1 has been loaded.
template <typename T, u32 S, bool ENDS> struct Step {
    static constexpr u32 LAST = T::PARTS - 1;
    static constexpr bool NEXT_IS_COPIED = !ENDS || S + 2 < T::STAGES;
    static constexpr u32 B_LOADS = ENDS && T::B_STAGES == T::STAGES ? 0 : T::B_LOADS;

    // Loads of a part: of scales or into the LDS first, then of B.
    static constexpr u32 first_loads(u32 part) {
        return ENDS || T::STAGES == 1 ? 0 : part == 0 ? T::SCALE_LOADS : part == LAST ? T::COPIES : 0;
    }
    static constexpr u32 loads(u32 part) { return first_loads(part) + B_LOADS; }

    // How many loads a wave has certainly issued since the copy of the next step's A. That copy is STAGES - 1 steps
    // old, or of fill_stages, which loads one set of B only. After the loop S is the number of steps since.
    static constexpr u32 loads_since_copy() {
        constexpr u32 STEPS = ENDS ? T::STAGES - 2 - S : T::STAGES - 2;  // of the loop that are between
        constexpr u32 HERE = (ENDS ? 0 : T::SCALE_LOADS) + (ENDS ? S * T::PARTS + LAST : LAST) * B_LOADS;
        constexpr u32 LOOPED = T::B_LOADS + STEPS * T::STEP_LOADS + HERE;
        constexpr u32 FILLED = LAST * T::B_LOADS + STEPS * (T::COPIES + T::SCALE_LOADS) + HERE;
        return T::B_STAGES == T::STAGES ? LOOPED : smaller(LOOPED, FILLED);
    }

    // The barrier before A of the next step is read, and this step's buffer filled anew.
    static MXFP4_DEVICE void turn(const Operands<T>& operands, MXFP4_LDS u8* lds, u32 ahead) {
        if constexpr (T::STAGES == 1) {
            meet<MOST_LOADS>();
            operands.copy_a(lds, ahead);
            meet<0>();
        } else {
            meet<loads_since_copy()>();
        }
    }

    // Load NUMBER of part PART. The step `ahead` is STAGES (of B: B_STAGES) steps later, `before` one less.
    template <u32 PART, u32 NUMBER>
    static MXFP4_DEVICE void issue(const Operands<T>& operands, MXFP4_LDS u8* lds, const Offsets& before,
                                   const Offsets& ahead, Registers<T>& registers) {
        constexpr u32 FIRST = first_loads(PART), PREVIOUS = S + T::STAGES - 1;
        if constexpr (PART == 0 && NUMBER < FIRST)
            operands.template load_scale<NUMBER>(before, registers.scales[PREVIOUS % T::STAGES]);
        else if constexpr (PART == 0)
            operands.template load_b<LAST, NUMBER - FIRST>(before.b, registers.b[PREVIOUS % T::B_STAGES][LAST]);
        else if constexpr (NUMBER < FIRST)
            operands.template copy_a<NUMBER>(lds + S * T::STAGE_BYTES, ahead.a);
        else
            operands.template load_b<PART - 1, NUMBER - FIRST>(ahead.b, registers.b[S % T::B_STAGES][PART - 1]);
    }

    // Each load and LDS read has its place behind a matrix instruction.
    template <u32 PART>
    static MXFP4_DEVICE void part(const Operands<T>& operands, MXFP4_LDS u8* lds, const Offsets& before,
                                  const Offsets& ahead, const Scales<T>& scales, Registers<T>& registers,
                                  Sums<T>& sum) {
        constexpr u32 NEXT = (PART + 1) % T::PARTS, STAGE = (S + (PART + 1) / T::PARTS) % T::STAGES;  // of NEXT
        constexpr bool READS = PART < LAST || NEXT_IS_COPIED;
        if constexpr (PART == LAST && READS) turn(operands, lds, ahead.a);
        else fence();
        unrolled<T::MULTIPLIES>([&](auto number) MXFP4_INLINE {
            typedef ReadsOf<T, number.value> Reads;
            typedef Share<loads(PART), number.value, T::MULTIPLIES> Loads;
            multiply_one<T, PART, number.value>(registers.a[PART % 2], registers.b[S % T::B_STAGES][PART], scales, sum);
            unrolled<READS ? Reads::COUNT : 0>([&](auto read) MXFP4_INLINE {
                constexpr u32 READ = Reads::FIRST + read.value;
                operands.template read_a<NEXT, READ>(lds + STAGE * T::STAGE_BYTES, registers.a[NEXT % 2]);
            });
            unrolled<Loads::COUNT>([&](auto load) MXFP4_INLINE {
                constexpr u32 NUMBER = Loads::FIRST + load.value;
                issue<PART, NUMBER>(operands, lds, before, ahead, registers);
                if constexpr (NUMBER + 1 == first_loads(PART)) keep_order();  // loads_since_copy counts on it
            });
            keep_order();
        });
    }

    static MXFP4_DEVICE void run(Operands<T>& operands, MXFP4_LDS u8* lds, const Offsets& before, const Offsets& ahead,
                                 Registers<T>& registers, Sums<T>& sum) {
        if constexpr (T::STAGES == 1) operands.load_scales(before, registers.scales[S]);
        Scales<T> scales = registers.scales[S];
        scales.shift(operands.a_shift, operands.b_shift);
        operands.forget_offsets();
        unrolled<T::PARTS>([&](auto number) MXFP4_INLINE {
            part<number.value>(operands, lds, before, ahead, scales, registers, sum);
        });
    }
};

}  // namespace mxfp4
