#!/usr/bin/env bash
# The paper's experiments on one GPU, in pieces that each end within ten minutes and go on when they are called again.
#
#   benchmarks/reproduce_gpu.sh OUT PIECE...        e.g.  benchmarks/reproduce_gpu.sh "$OUT" miniboone bsds300
#
# PIECE is one of
#   splines         figure-1 and the appendix
#   plane           figure-2
#   miniboone       all models and all seeds on MINIBOONE
#   bsds300         cubic and quadratic, ours and the paper's, on BSDS300
#   bsds300-rest    the other models on BSDS300
#   images          figure-3
#   peers-miniboone, peers-bsds300    nflows and zuko on the same arrays; one fit takes up to [peers] seconds
#   all             all of the above, in this order
#
# CUBICFLOW_DATA names the data folder. BUDGET is the time of this call in seconds (default 540); a piece that needs more
# ends with status 75, and the same command goes on. Everything lies under RESULTS (default results): cells that have a
# record there are not run again. OUT gets results.tar.gz, all of it but the weights; unpack it over the repository.
set -uo pipefail

OUT=${1:?where results.tar.gz goes}
shift
RESULTS=${RESULTS:-results}
BUDGET=${BUDGET:-540}
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
UNFINISHED=75
status=0

give_up() { ((status)) || status=$UNFINISHED; }

# What runs out of time is no failure: the rest of the call is skipped, and what is there is packed.
run() {
  local left=$((BUDGET - SECONDS))
  if ((status != 0 || left < 5)); then give_up; return; fi
  "$PYTHON" -m cubicflow reproduce "$@" --device "$DEVICE" --seconds "$left" || status=$?
}

# A peer's fit cannot be stopped and resumed: it begins only if it can end.
peer() {
  local dataset=$1 model=$2 fit_seconds=${PEER_SECONDS:-500}
  if [[ -z $(find "$RESULTS/table-1/cells/$dataset/$model" -name record.json 2>/dev/null) ]]; then
    if ((status != 0 || BUDGET - SECONDS < fit_seconds)); then give_up; return; fi
    "$PYTHON" -m benchmarks.peer_densities -o "$RESULTS/table-1" --dataset "$dataset" --model "$model" --seed 0 \
      --device "$DEVICE" || status=$?
  fi
}

models() { printf -- '--model %s ' "$@"; }

piece() {
  local table=(table-1 -o "$RESULTS/table-1" --dataset)
  case $1 in
    splines) run figure-1 -o "$RESULTS/figure-1" && run appendix -o "$RESULTS/appendix" ;;
    plane) run figure-2 -o "$RESULTS/figure-2" ;;
    miniboone) run "${table[@]}" miniboone ;;
    bsds300) run "${table[@]}" bsds300 $(models cubic-paper quadratic-paper cubic quadratic) ;;
    bsds300-rest) run "${table[@]}" bsds300 ;;
    images) run figure-3 -o "$RESULTS/figure-3" ;;
    peers-*)
      for model in nflows-cubic nflows-rational-quadratic zuko-maf zuko-naf zuko-cnf; do peer "${1#peers-}" "$model"; done
      ;;
    all)
      for name in splines plane miniboone bsds300 images bsds300-rest peers-miniboone peers-bsds300; do piece "$name"; done
      ;;
    *) echo "there is no piece $1; the head of this file names them" >&2; exit 2 ;;
  esac
}

for name in "$@"; do piece "$name"; done
"$PYTHON" -m cubicflow reproduce page -o "$RESULTS"
tar -czf "$OUT/results.tar.gz" --exclude=run --exclude=runs "$RESULTS"
ls -l "$OUT/results.tar.gz"
exit "$status"
