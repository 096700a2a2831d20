#!/usr/bin/env bash
# Run the paper's experiments in parallel on one GPU. Each call ends within ten minutes; repeating the call continues.
#
#   paper/gpu.sh OUT LANE...
#   paper/gpu.sh out bsds300:cubic bsds300:quadratic figure-3 miniboone@0 miniboone@1 \
#       peers-miniboone:nflows-cubic,zuko-maf+figure-2
#
# All lanes run at the same time, one process each: the models are small, and a single one leaves the GPU mostly idle. A
# lane is a list of pieces joined by +. The pieces run one after the other; after a failure the next piece still runs. A
# piece is
#   figure-1, figure-2, figure-3, appendix
#   DATASET[:MODEL,...][@SEED,...]          cells of table 1; by default all models and all seeds of the recipe
#   peers-DATASET[:MODEL,...][@SEED,...]    other packages on the same arrays; by default all of them, with seed 0
#
# A peer's fit cannot be resumed, and begins only if there is enough time for it. It belongs at the head of a lane.
#
# CUBICFLOW_DATA names the data folder. BUDGET is the time of this call in seconds (default 540). A lane that needs more
# time saves its work and ends with status 75; the same command continues. All records are under RESULTS (default
# results), and cells that have a record there are not run again. QUICK=1 runs short forms of the experiments, which are
# for trying this script only. DEVICE and PYTHON are cuda and python3 by default.
#
# The command writes two files to OUT. lanes.log is the output of the lanes, each line prefixed with its lane's number.
# results.tar.gz is the content of RESULTS without the weights: tar -xzf results.tar.gz -C results
set -uo pipefail

if (($# < 2)); then
  echo "usage: $0 OUT LANE...; the head of this file says what a lane is" >&2
  exit 2
fi
mkdir -p "$1" || exit 2
OUT=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.." || exit 2
RESULTS=${RESULTS:-results}
BUDGET=${BUDGET:-540}
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
UNFINISHED=75
STARTING=10 # seconds; time of the Python imports, before the clock of --seconds starts
GRACE=20    # seconds that a lane may overrun before it is killed
LOG=$OUT/lanes.log
RECIPE=paper/recipes/table-1.toml
PIECE='^([a-z0-9-]+)(:([a-z0-9-]+(,[a-z0-9-]+)*))?(@([0-9]+(,[0-9]+)*))?$'
flags=(--device "$DEVICE")
if [[ -n ${QUICK:-} ]]; then flags+=(--quick); fi

# --- check the arguments before anything runs: a typing error should not cost ten minutes ---

refuse() {
  echo "$1; the head of this file says what a lane is" >&2
  exit 2
}

check_piece() {
  [[ $1 =~ $PIECE ]] || refuse "'$1' is no piece"
  local name=${BASH_REMATCH[1]} models=${BASH_REMATCH[3]} seeds=${BASH_REMATCH[6]} kind=models model
  case $name in
    figure-[123] | appendix)
      [[ -z $models$seeds ]] || refuse "$name has no models or seeds to choose"
      return
      ;;
    peers-*) kind=peers.models ;;
  esac
  grep -qF "[datasets.${name#peers-}]" "$RECIPE" || refuse "there is no piece '$name'"
  for model in ${models//,/ }; do
    grep -qF "[$kind.$model]" "$RECIPE" || refuse "there is no model '$model' for $name"
  done
}

for lane in "$@"; do
  [[ -n ${lane//[+ ]/} ]] || refuse "'$lane' is no lane"
  for piece in ${lane//+/ }; do check_piece "$piece"; done
done

# --- run a lane ---

# in_time COMMAND...: run COMMAND with the remaining time as its --seconds, and kill it if it overruns.
in_time() {
  local left=$((BUDGET - SECONDS - STARTING))
  if ((left < STARTING)); then
    echo "no time is left for: $*"
    return $UNFINISHED
  fi
  timeout --foreground --kill-after=5 $((BUDGET - SECONDS + GRACE)) "$@" "${flags[@]}" --seconds "$left"
}

run_piece() {
  [[ $1 =~ $PIECE ]]
  local name=${BASH_REMATCH[1]} models=${BASH_REMATCH[3]} seeds=${BASH_REMATCH[6]} status=0 code seed model
  local command=("$PYTHON" -m paper)
  case $name in
    figure-* | appendix)
      in_time "${command[@]}" "$name" -o "$RESULTS/$name"
      return
      ;;
    peers-*)
      command+=(peers -o "$RESULTS/table-1")
      seeds=${seeds:-0}
      ;;
    *) command+=(table-1 -o "$RESULTS/table-1") ;;
  esac
  command+=(--dataset "${name#peers-}")
  for model in ${models//,/ }; do command+=(--model "$model"); done
  if [[ -z $seeds ]]; then
    in_time "${command[@]}"
    return
  fi
  for seed in ${seeds//,/ }; do
    in_time "${command[@]}" --seed "$seed"
    code=$?
    status=$(worse "$status" "$code")
  done
  return "$status"
}

# Print the worse of two statuses: a failure is worse than unfinished, and unfinished is worse than success.
worse() {
  if (($1 == 0 || ($1 == UNFINISHED && $2 != 0))); then echo "$2"; else echo "$1"; fi
}

run_lane() {
  local status=0 code piece
  for piece in ${1//+/ }; do
    echo "$piece: begun after $SECONDS s"
    run_piece "$piece"
    code=$?
    echo "$piece: status $code after $SECONDS s"
    status=$(worse "$status" "$code")
  done
  return "$status"
}

# --- NVIDIA's MPS runs kernels of several processes at once; without MPS the processes take turns ---

start_mps() {
  if [[ $DEVICE != cuda* || -n ${CUDA_MPS_PIPE_DIRECTORY:-} ]] || ! command -v nvidia-cuda-mps-control; then return; fi
  export CUDA_MPS_PIPE_DIRECTORY=$work/pipe CUDA_MPS_LOG_DIRECTORY=$work/log
  mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  own_mps=yes
  if nvidia-cuda-mps-control -d &&
    timeout 60 "$PYTHON" -c 'import torch; assert torch.ones(9, device="cuda").sum().item() == 9'; then return; fi
  cat "$CUDA_MPS_LOG_DIRECTORY"/*
  stop_mps
}

stop_mps() {
  if [[ -z ${own_mps:-} ]]; then return; fi
  echo 'quit -t 5' | timeout 20 nvidia-cuda-mps-control
  unset own_mps CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

work=$(mktemp -d)
trap 'stop_mps >>"$LOG" 2>&1; rm -rf "$work"' EXIT

# --- run ---

export CUBICFLOW_LANES=$# OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} MPLBACKEND=Agg PYTHONUNBUFFERED=1
: >"$LOG"
# Draw and cache the image patches first. Otherwise every lane would draw them at the same time.
if [[ " $*" == *bsds300* ]]; then
  "$PYTHON" -c 'from paper.data import load_benchmark; load_benchmark("bsds300")' >>"$LOG" 2>&1 &
fi
start_mps >>"$LOG" 2>&1
wait
if [[ -n ${own_mps:-} ]]; then sharing="through MPS"; else sharing="without MPS"; fi
echo "$# lanes on $DEVICE, $sharing, begun after $SECONDS s" | tee -a "$LOG"

number=0
for lane in "$@"; do
  number=$((number + 1))
  {
    began=$SECONDS
    run_lane "$lane" 2>&1 | sed -u "s/^/[$number] /" >>"$LOG"
    echo "${PIPESTATUS[0]} $((SECONDS - began))" >"$work/$number"
  } &
done
wait
stop_mps >>"$LOG" 2>&1
unset CUBICFLOW_LANES

# --- rebuild the table, then write the page and the archive; lanes that end together overwrite each other's table ---

status=0
number=0
for lane in "$@"; do
  number=$((number + 1))
  read -r code seconds <"$work/$number"
  echo "--- lane $number, $lane: status $code, $seconds s"
  grep "^\[$number\] " "$LOG" | tail -n 5 | cut -c -300
  status=$(worse "$status" "$code")
done
if [[ -d $RESULTS/table-1/cells ]]; then
  "$PYTHON" -m paper table-1 -o "$RESULTS/table-1" "${flags[@]}" --seconds 0 >"$work/table" 2>&1
  code=$?
  if ((code != UNFINISHED)); then # the table itself lists the cells that are missing
    cat "$work/table"
    status=$(worse "$status" "$code")
  fi
fi
"$PYTHON" -m paper page -o "$RESULTS" || status=$(worse "$status" $?)
tar -czf "$OUT/results.tar.gz" --exclude=run --exclude=runs -C "$RESULTS" . || status=$(worse "$status" $?)
ls -l "$OUT"
echo "status $status after $SECONDS s"
exit "$status"
