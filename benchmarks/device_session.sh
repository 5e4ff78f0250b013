#!/usr/bin/env bash
# What is measured on a GPU, in three parts that each fit ten minutes. Usage: device_session.sh PART OUTPUT_FOLDER
#   1  probe (2 min), faults (3 min), one short sweep (1.5 min), comparison with triton.autotune on one shape (1.5 min)
#   2  three shapes swept exhaustively over benchmarks/recorded_spaces, about 1,500 candidates each (9 min)
#   3  the ten competition shapes (5 min), table, one shape again in a new process, comparison (2 min)
# Every step has a time limit and a log; a step that fails does not stop the next one. Needs torch, Triton, Optuna,
# SQLAlchemy and the project's other dependencies in the interpreter that PYTHON names (default: python3).
set -u
cd "$(dirname "$0")/.."
part=$1 out=$2
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
mkdir -p "$out"

step() { # name, seconds, command...
    local name=$1 limit=$2
    shift 2
    echo "== $name ($(date +%T))"
    timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1
    echo "== $name ended with code $?"
    tail -n 40 "$out/$name.log"
}

nvidia-smi 2>/dev/null | sed -n 3,15p
case $part in
1)
    step probe 170 "$python" benchmarks/device_probe.py --shapes few --output "$out/probe.json"
    step faults 240 "$python" benchmarks/device_faults.py --output "$out/faults.json"
    step sweep 120 "$python" run_search.py sweep 16x2112x7168 --target local --trials 150 --time-budget 60 --results "$out/short"
    step compare 150 "$python" benchmarks/device_compare.py --results "$out/short" --autotune 1 --rounds 10 --output "$out/compare"
    ;;
2)
    step record 560 "$python" benchmarks/device_record.py --output "$out/recorded" --budget-s 500 --results "$out/studies"
    ;;
3)
    shapes=configs/shapes/gpumode.yaml
    step sweep 330 "$python" run_search.py sweep --shapes $shapes --target local --trials 400 --time-budget 270 --results "$out/sweep"
    step export 30 "$python" run_search.py export --results "$out/sweep" --output "$out/sm_90.yaml"
    step results 30 "$python" run_search.py inspect --results "$out/sweep" --to "$out/sweep.parquet"
    step again 90 "$python" run_search.py sweep 16x2112x7168 --target local --trials 400 --time-budget 45 --seed 7 --results "$out/again"
    step compare 150 "$python" benchmarks/device_compare.py --results "$out/sweep" --shapes $shapes --autotune 1 --output "$out/compare"
    ;;
*)
    echo "part must be 1, 2 or 3" >&2
    exit 2
    ;;
esac
