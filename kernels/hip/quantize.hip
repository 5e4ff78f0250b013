// Quantises A [M, K] of bf16 to packed E2M1 codes [M, K/2] and E8M0 scales in the shuffled layout.
//
// QUANT_VECTOR  4, 8, 16, 32: values of a block that one lane holds; 32 / QUANT_VECTOR neighbouring lanes, a team,
//               share a block. Loads have up to 16 bytes: with 4 and 8 a wave reads whole consecutive cache lines.
// QUANT_GROUPS  1, 2, 4: blocks of a team. Two are 16 rows apart, four also 4 blocks apart: their scale bytes are
//               neighbours in the shuffled layout and go out in one store.
// QUANT_THREADS 64 to 1024: of a workgroup, which works on 8 blocks along K and as many rows as that gives.
//
// Scale bytes between K/32 and the next multiple of 8 become 0, those of rows >= M are 0 or left as they are.
// The grid is that of kernels.launches.coverage.QuantizeCoverage; K is a multiple of 64.

#include "mxfp4.h"

namespace mxfp4 {

constexpr u32 TILE_GROUPS = 8;   // blocks along K in a tile of the shuffled scales
constexpr u32 PAIRED_ROWS = 16;  // distance of two rows whose scale bytes are neighbours
constexpr u32 PAIRED_GROUPS = 4;

struct Matrices {
    const u16* a;
    u8* codes;
    u8* scales;
    u32 M, K, stride_am;
};

template <u32 VECTOR> MXFP4_DEVICE void load_values(const Matrices& of, u32 row, u32 k, u32* words) {
    constexpr u32 LOAD = VECTOR > 8 ? 8 : VECTOR;  // values of an instruction
    const bool aligned = ((u64)of.a | 2 * (u64)of.stride_am) % (2 * LOAD) == 0;
#pragma unroll
    for (u32 i = 0; i < VECTOR; i += LOAD)
        load_words<LOAD / 2>(of.a + (u64)row * of.stride_am + k + i, aligned, words + i / 2);
}

template <u32 VECTOR> MXFP4_DEVICE u32 block_amax(const u32* words) {
    u32 pairs = words[0] & 0x7FFF7FFF;
#pragma unroll
    for (u32 i = 1; i < VECTOR / 2; i++) pairs = max_halves(pairs, words[i] & 0x7FFF7FFF);
    return max_of_lanes<BLOCK / VECTOR>(larger(pairs & 0xFFFF, pairs >> 16));
}

template <u32 VECTOR> MXFP4_DEVICE void store_codes(const Matrices& of, u32 row, u32 k, const u32* words, u32 byte) {
    constexpr u32 COUNT = VECTOR > 4 ? 4 : 2;  // pairs of values that make one word of codes
    u32 packed[VECTOR / 2 / COUNT];
#pragma unroll
    for (u32 i = 0; i < VECTOR / 2 / COUNT; i++) packed[i] = pack_codes<COUNT>(words + COUNT * i, byte);
    store_bytes<VECTOR / 2>(of.codes + (u64)row * (of.K / 2) + k / 2, packed);
}

template <u32 THREADS, u32 GROUPS, u32 VECTOR> MXFP4_DEVICE void quantize(const Matrices& of) {
    static_assert(VECTOR == 4 || VECTOR == 8 || VECTOR == 16 || VECTOR == 32, "QUANT_VECTOR");
    static_assert(GROUPS == 1 || GROUPS == 2 || GROUPS == 4, "QUANT_GROUPS");
    static_assert(THREADS >= 64 && THREADS <= 1024 && THREADS % 64 == 0, "QUANT_THREADS");
    constexpr u32 LANES = BLOCK / VECTOR;
    constexpr u32 ROWS_EACH = GROUPS > 1 ? 2 : 1, GROUPS_EACH = GROUPS / ROWS_EACH;
    constexpr u32 TEAMS_K = TILE_GROUPS / GROUPS_EACH, TEAMS_M = THREADS / LANES / TEAMS_K;

    const u32 groups = of.K / BLOCK, tiles_k = (groups + TILE_GROUPS - 1) / TILE_GROUPS;
    const u32 tile_m = workgroup() / tiles_k, tile_k = workgroup() - tile_m * tiles_k;
    const u32 lane = thread() % LANES, team = thread() / LANES;
    const u32 team_m = tile_m * TEAMS_M + team / TEAMS_K;
    const u32 row = GROUPS > 1 ? team_m / PAIRED_ROWS * (2 * PAIRED_ROWS) + team_m % PAIRED_ROWS : team_m;
    const u32 group = tile_k * TILE_GROUPS + team % TEAMS_K;

    u32 words[GROUPS][VECTOR / 2];
#pragma unroll
    for (u32 i = 0; i < GROUPS; i++) {  // all loads are under way before the first is waited for
        const u32 m = row + i % ROWS_EACH * PAIRED_ROWS, g = group + i / ROWS_EACH * PAIRED_GROUPS;
        load_values<VECTOR>(of, smaller(m, of.M - 1), smaller(g, groups - 1) * BLOCK + lane * VECTOR, words[i]);
    }
    u32 bytes = 0;
#pragma unroll
    for (u32 i = 0; i < GROUPS; i++) {
        const u32 m = row + i % ROWS_EACH * PAIRED_ROWS, g = group + i / ROWS_EACH * PAIRED_GROUPS;
        const u32 byte = scale_byte(block_amax<VECTOR>(words[i]));
        if (m >= of.M || g >= groups) continue;
        bytes |= byte << 8 * i;
        store_codes<VECTOR>(of, m, g * BLOCK + lane * VECTOR, words[i], byte);
    }
    if (lane == 0 && row < of.M)
        store_bytes<GROUPS>(of.scales + scale_offset(row, group, tiles_k * TILE_GROUPS), &bytes);
}

}  // namespace mxfp4

MXFP4_KERNEL(QUANT_THREADS)
mxfp4_quantize(
    const u16* __restrict__ a_ptr, u8* __restrict__ codes_ptr, u8* __restrict__ scale_ptr, int M, int K, int stride_am
) {
    mxfp4::quantize<QUANT_THREADS, QUANT_GROUPS, QUANT_VECTOR>(
        {a_ptr, codes_ptr, scale_ptr, (u32)M, (u32)K, (u32)stride_am}
    );
}
