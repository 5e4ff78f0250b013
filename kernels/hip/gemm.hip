// C [M, N] = A @ B.T for packed row-major A [M, K/2], shuffled B [N, K/2] and the shuffled scales of both. CDNA 4 only.
//
// BLOCK_M, BLOCK_N  the tile of a workgroup. A wave takes BLOCK_M / WAVES_M rows, BLOCK_N / WAVES_N columns: 16 (with
//                   MFMA 16) or a multiple of 32.
// BLOCK_K           a multiple of 256: K of a step.
// WAVES_M, WAVES_N  at most 16 waves. Up to 4 have 512 registers each, up to 8 have 256, up to 16 have 128.
// NUM_STAGES        1 to 4: buffers of A in the LDS, NUM_STAGES * BLOCK_M * BLOCK_K / 2 bytes of 160 KB (a buffer is at
//                   least 1 KB a wave), and sets of registers for the scales and, where they fit, for B.
// MFMA              16 or 32: rows of the matrix instruction.
// STORE             0: bf16 to out [M, N], rows stride_om apart. 1: fp32 to slice blockIdx.y of out [split_k, M, N].
//
// What spills is right but slow; that is mostly a question of a wave's rows * columns / 64 accumulators, of which one
// with 512 registers can have 192, one with 256 can have 128.
//
// M is any, N and K are multiples of 64, K < 2^23, and a tile of C spans less than 2 GB. Scales of rows that are not
// there and of blocks beyond K may be anything.
// Grid: (tiles, split_k). A slice of K is ceil(ceil(K / BLOCK_K) / split_k) steps; empty slices are stored as zeros.

#include "gemm_loop.h"
#include "gemm_store.h"

namespace mxfp4 {

// The tile of a workgroup: the map of kernels.launches.coverage.TileCoverage.
struct Place {
    u32 tile_m, tile_n, split;

    MXFP4_DEVICE Place(u32 num_m, u32 num_n, u32 split_k, u32 group_m, u32 num_xcds) {
        u32 pid = __builtin_amdgcn_workgroup_id_x();
        split = __builtin_amdgcn_workgroup_id_y();
        if (num_xcds > 1) {
            const u32 tiles = num_m * num_n, total = tiles * split_k;
            const u32 linear = split * tiles + pid, xcd = linear % num_xcds, share = total / num_xcds;
            pid = xcd * share + smaller(xcd, total - share * num_xcds) + linear / num_xcds;
            split = pid / tiles;
            pid -= split * tiles;
        }
        if (group_m > 1) {
            const u32 group = pid / (group_m * num_n), first = group * group_m;
            const u32 height = smaller(num_m - first, group_m), inside = pid - group * group_m * num_n;
            tile_n = inside / height;
            tile_m = first + inside - tile_n * height;
        } else {
            tile_m = pid / num_n;
            tile_n = pid - tile_m * num_n;
        }
    }
};

}  // namespace mxfp4

MXFP4_KERNEL(64 * WAVES_M * WAVES_N)
mxfp4_gemm(const u8* codes, const u8* a_scale, const u8* b, const u8* b_scale, void* out, int M, int N, int K,
           int stride_om, int split_k, int group_m, int num_xcds) {
    using namespace mxfp4;
    typedef Tile<BLOCK_M, BLOCK_N, BLOCK_K, WAVES_M, WAVES_N, NUM_STAGES, MFMA> T;
    __attribute__((shared)) static u8 lds[T::STAGES * T::STAGE_BYTES] __attribute__((aligned(1024)));

    const u32 num_m = ((u32)M + BLOCK_M - 1) / BLOCK_M, num_n = ((u32)N + BLOCK_N - 1) / BLOCK_N;
    const Place place(num_m, num_n, split_k, group_m, num_xcds);
    const u32 steps = ((u32)K + BLOCK_K - 1) / BLOCK_K;
    const u32 share = (split_k > 1 ? (steps + split_k - 1) / split_k : steps) * BLOCK_K;
    const u32 start = smaller(place.split * share, (u32)K), end = smaller(start + share, (u32)K);
    const u32 wave = uniform(thread() / WAVE);
    const u32 m = place.tile_m * BLOCK_M, n = place.tile_n * BLOCK_N;
    const u32 wave_m = wave / WAVES_N * T::WAVE_M, wave_n = n + wave % WAVES_N * T::WAVE_N;

    Operands<T> operands(codes, a_scale, b, b_scale, M, N, K, m, wave, wave_m, wave_n);
    Sums<T> sum = {};
    multiply_range<T>(operands, (MXFP4_LDS u8*)lds, start, end, sum);
    if constexpr (STORE == 0)
        store_tile<T>((u16*)out, (u64)stride_om, M, N, m + wave_m, wave_n, sum);
    else
        store_tile<T>((float*)out + (u64)place.split * (u32)M * (u32)N, (u64)(u32)N, M, N, m + wave_m, wave_n, sum);
}
