#!/usr/bin/env bash
# Run the paper's experiments on a machine that is lent for a limited time, and bring home what they wrote.
#
#   paper/gpu.sh OUT PIECE...
#   paper/gpu.sh out power:cubic-paper power:quadratic-paper figure-3
#
# A piece is
#   figure-1, figure-2, figure-3, appendix; figure-2-paper and figure-3-paper for the model as the paper describes it
#   DATASET[:MODEL,...][@SEED,...]          cells of table 1; by default all models and all seeds of the recipe
#   peers-DATASET[:MODEL,...][@SEED,...]    other packages on the same arrays; by default all of them, with seed 0
#
# The first call starts the pieces in a process session of their own, so that they outlive the call. They run one after
# the other, because two fits with captured steps take turns on a GPU. After a failure the next piece still runs. Every
# call waits until the pieces end, but at most WAIT seconds (default 540). Then it writes to OUT:
#   records.tar.gz               everything that has finished: tar -xzf records.tar.gz -C results
#   state.00, state.01, ...      unfinished runs, in parts of at most PART bytes (default 14M)
#   state.sha256                 the digests of the parts
#   log                          the output of the pieces
# The status is 75 while the pieces run; the same command then waits again. If the machine is gone, put the parts and
# their digests into the folder STATE (default carry/state) of another one. There, the same command continues the runs,
# and their results are the same. A peer's fit cannot be continued. At home,
# `python -m paper table-1 -o results/table-1 --seconds 0` and `python -m paper page -o results` write the pages.
#
# CUBICFLOW_DATA names the data folder, and WORK the folder of the runs (default runs/gpu). RECIPE names a TOML file that
# changes the recipe. QUICK=1 runs short forms of the experiments, which are for trying this script only. DEVICE and
# PYTHON are cuda and python3 by default.
set -uo pipefail

UNFINISHED=75
WAIT=${WAIT:-540}
PART=${PART:-14M}
PYTHON=${PYTHON:-python3}
PIECE='^([a-z0-9-]+)(:([a-z0-9-]+(,[a-z0-9-]+)*))?(@([0-9]+(,[0-9]+)*))?$'
TABLE=paper/recipes/table-1.toml

refuse() {
  echo "$1; the head of $0 says more" >&2
  exit 2
}

# A typing error should not cost time on a machine that is lent.
check_piece() {
  [[ $1 =~ $PIECE ]] || refuse "'$1' is no piece"
  local name=${BASH_REMATCH[1]} models=${BASH_REMATCH[3]} seeds=${BASH_REMATCH[6]} kind=models model
  case $name in
    figure-[123] | figure-[23]-paper | appendix)
      [[ -z $models$seeds ]] || refuse "$name has no models or seeds to choose"
      return
      ;;
    peers-*) kind=peers.models ;;
  esac
  grep -qF "[datasets.${name#peers-}]" "$TABLE" || refuse "there is no piece '$name'"
  for model in ${models//,/ }; do
    grep -qF "[$kind.$model]" "$TABLE" || refuse "there is no model '$model' for $name"
  done
}

run_piece() {
  [[ $1 =~ $PIECE ]]
  local name=${BASH_REMATCH[1]} models=${BASH_REMATCH[3]} seeds=${BASH_REMATCH[6]} status=0 model seed
  local command=("$PYTHON" -m paper table-1)
  case $name in
    figure-* | appendix) command=("$PYTHON" -m paper "${name%-paper}") ;;
    peers-*)
      command=("$PYTHON" -m paper peers)
      seeds=${seeds:-0}
      ;;
  esac
  case $name in
    figure-* | appendix)
      command+=(-o "$WORK/$name")
      [[ $name != *-paper ]] || command+=(--paper)
      ;;
    *) command+=(-o "$WORK/table-1" --dataset "${name#peers-}") ;;
  esac
  for model in ${models//,/ }; do command+=(--model "$model"); done
  command+=(--device "${DEVICE:-cuda}" ${RECIPE:+--recipe "$RECIPE"} ${QUICK:+--quick})
  if [[ -z $seeds ]]; then
    "${command[@]}"
    return
  fi
  for seed in ${seeds//,/ }; do "${command[@]}" --seed "$seed" || status=$?; done
  return "$status"
}

run_pieces() {
  local status=0 code piece
  for piece in "$@"; do
    echo "$piece: begun after $SECONDS s"
    run_piece "$piece"
    code=$?
    echo "$piece: status $code after $SECONDS s"
    ((code == 0)) || status=$code
  done
  echo "$status" >"$WORK/status"
}

running() {
  local state
  [[ -e $WORK/pid && ! -e $WORK/status ]] || return 1
  { read -r _ _ state _ <"/proc/$(cat "$WORK/pid")/stat"; } 2>/dev/null && [[ $state != Z ]]
}

start() {
  local state=${STATE:-carry/state}
  if [[ ! -e $WORK/pid && -e $state/state.sha256 ]]; then
    (cd "$state" && sha256sum --check --quiet state.sha256) || refuse "$state lacks a part of the unfinished runs"
    (cd "$state" && cut -c 67- state.sha256 | xargs cat) | tar -xf - -C "$WORK" || exit 2
    echo "continued from $state"
  fi
  rm -f "$WORK/status"
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} MPLBACKEND=Agg PYTHONUNBUFFERED=1 WORK=$WORK \
    setsid bash paper/gpu.sh --pieces "$@" >>"$WORK/log" 2>&1 </dev/null &
  echo $! >"$WORK/pid"
}

# Pack a copy, because the pieces go on. A checkpoint is replaced as a whole, so a copy of it is whole. The lines of
# metrics are copied last: lines after the checkpoint are dropped when the run continues.
pack() {
  local copy=$WORK.copy run unfinished=()
  rm -rf "$copy" "$OUT"/state.*
  cp -a "$WORK" "$copy" 2>/dev/null # a file that was replaced meanwhile is in the copy under its other name
  tar -czf "$OUT/records.tar.gz" -C "$copy" --exclude=run --exclude=runs --exclude=./log --exclude=./pid \
    --exclude=./status --exclude='./table-1/table-1.*' .
  while read -r run; do
    [[ -e $copy/$run/../record.json ]] && continue # a cell with a record is finished
    [[ -e $copy/$run/checkpoint.safetensors ]] && rm -f "$copy/$run"/{checkpoint-previous,model}.safetensors
    if [[ -e $WORK/$run/metrics.jsonl ]]; then
      cp "$WORK/$run/metrics.jsonl" "$copy/$run/"
      echo "$run: $(tail -n 1 "$copy/$run/metrics.jsonl")"
    fi
    unfinished+=("$run")
  done < <(cd "$copy" && find . -type d \( -name run -o -path './figure-*/runs' \) -prune)
  if ((${#unfinished[@]})); then
    tar -cf - --exclude=lock -C "$copy" "${unfinished[@]}" | split -b "$PART" -d - "$OUT/state."
    (cd "$OUT" && sha256sum state.[0-9]* >state.sha256)
  fi
  cp "$WORK/log" "$OUT/log"
  rm -rf "$copy"
}

cd "$(dirname "$0")/.." || exit 2
if [[ ${1:-} == --pieces ]]; then
  run_pieces "${@:2}"
  exit
fi
(($# >= 2)) || refuse "usage: $0 OUT PIECE..."
OUT=$(cd "$OLDPWD" && mkdir -p "$1" && cd "$1" && pwd) || exit 2
shift
for piece in "$@"; do check_piece "$piece"; done
mkdir -p "${WORK:=runs/gpu}" && WORK=$(cd "$WORK" && pwd) || exit 2
WORK=${WORK#"$PWD"/} # a record has its command, and a path in this folder means the same on every machine
running || start "$@"
while running && ((SECONDS < WAIT)); do sleep 0.5; done
pack
tail -n 5 "$WORK/log" | cut -c -300
if running; then exit $UNFINISHED; fi
[[ -e $WORK/status ]] || refuse "the pieces were killed; the same command starts them again"
exit "$(cat "$WORK/status")"
