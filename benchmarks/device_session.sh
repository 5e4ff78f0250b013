#!/usr/bin/env bash
# What is measured on a GPU, in parts that each fit ten minutes. Usage: device_session.sh PART OUTPUT_FOLDER
#   1  probe (2 min), faults (3 min), one short sweep (1.5 min), comparison with triton.autotune on one shape (2 min)
#   2  three shapes swept exhaustively over benchmarks/recorded_spaces, about 1,500 candidates each (9 min)
#   3  the ten competition shapes (4.5 min), table, verify, comparison with the defaults and torch (3 min)
#   4  the GPU tests (1.2 min), four shapes swept twice in two processes and whether they agree (2.5 min)
#   5  faults and a killed sweep (1.5 min), a full disk (1.5 min)
#   6  on a machine with several GPUs: the GPU tests that need two, sweeps on one and on all, a killed sweep (9 min)
# OUTPUT_FOLDER gets part1.tar.gz (part2, part3) with the logs, JSON, CSV, Parquet and studies of every step so far.
# Every step has a time limit and a log; a step that fails does not stop the next one. Needs torch, Triton, Optuna,
# SQLAlchemy and the project's other dependencies in the interpreter that PYTHON names (default: python3).
set -u
cd "$(dirname "$0")/.."
part=$1 out=$2
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
mkdir -p "$out"
work=$(mktemp -d)

step() { # name, seconds, command...
    local name=$1 limit=$2
    shift 2
    echo "== $name ($(date +%T))"
    timeout --kill-after=10 "$limit" "$@" >"$work/$name.log" 2>&1
    echo "== $name ended with code $?"
    tail -n 40 "$work/$name.log"
    tar czf "$work.tar.gz" -C "$work" . && mv "$work.tar.gz" "$out/part$part.tar.gz" # what there is so far
}

(amd-smi static --asic --board || nvidia-smi) 2>/dev/null | sed -n 3,15p
case $part in
1)
    step probe 120 "$python" benchmarks/device_probe.py --shapes few --output "$work/probe.json"
    step faults 210 "$python" benchmarks/device_faults.py --output "$work/faults.json"
    step sweep 100 "$python" run_search.py sweep 16x2112x7168 --target local --trials 150 --time-budget 60 --results "$work/short"
    step compare 140 "$python" benchmarks/device_compare.py --results "$work/short" --autotune 1 --rounds 10 --output "$work/compare"
    ;;
2)
    step record 570 "$python" benchmarks/device_record.py --output "$work/recorded" --budget-s 500 --results "$work/studies"
    ;;
3)
    shapes=configs/shapes/gpumode.yaml
    step sweep 270 "$python" run_search.py sweep --shapes $shapes --target local --trials 400 --time-budget 200 --results "$work/sweep"
    step export 20 "$python" run_search.py export --results "$work/sweep" --output "$work/sm_90.yaml"
    step verify 60 "$python" run_search.py verify --table "$work/sm_90.yaml" --on device
    step results 20 "$python" run_search.py inspect --results "$work/sweep" --to "$work/sweep.parquet"
    step compare 200 "$python" benchmarks/device_compare.py --results "$work/sweep" --shapes $shapes --autotune 1 --rounds 15 --output "$work/compare"
    ;;
4)
    four=(16x2112x7168 32x2880x512 16x3072x1536 64x7168x2048)
    step gputests 150 "$python" -m pytest -q -rs -p no:cacheprovider tests/gpu
    step sweep 100 "$python" run_search.py sweep "${four[@]}" --target local --trials 400 --time-budget 60 --results "$work/sweep"
    step again 80 "$python" run_search.py sweep "${four[@]}" --target local --trials 400 --time-budget 45 --seed 7 --results "$work/again"
    step agreement 50 "$python" benchmarks/device_agreement.py --results "$work/sweep" --again "$work/again" --output "$work/agreement.csv"
    ;;
5)
    step faults 150 "$python" benchmarks/device_faults.py --output "$work/faults.json"
    step full_disk 150 "$python" benchmarks/full_disk.py --target local --jobs 4 --output "$work/full_disk.json"
    ;;
6)
    step gputests 60 "$python" -m pytest -q -rs -p no:cacheprovider tests/gpu -k "another_gpu or every_family"
    step gpus 420 "$python" benchmarks/device_gpus.py --output "$work/gpus"
    step killed 100 "$python" benchmarks/device_faults.py --killed-only --output "$work/killed.json"
    ;;
*)
    echo "part must be 1 to 6" >&2
    exit 2
    ;;
esac
