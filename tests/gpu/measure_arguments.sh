#!/usr/bin/env bash
# usage: measure_arguments.sh LONGHAUL_MEASURE
# Wrong input exits with 2, names the option and what it wants, and leaves no file behind.
set -u
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect STATUS TEXT ARGUMENT...: the program's status and a part of what it says.
expect() {
  local status=$1 text=$2 output got
  shift 2
  output=$("$program" "$@" 2>&1)
  got=$?
  if [[ $got != "$status" || $output != *"$text"* ]]; then
    printf 'longhaul-measure %s\n  status %s, said: %s\n' "$*" "$got" "$output"
    printf '  expected status %s, %s\n' "$status" "$text"
    failures=$((failures + 1))
  fi
}

out=$folder/out.csv
expect 2 'A subcommand is required'
expect 2 '--out is required' collectives
expect 2 '--sizes: is "5"; expected MIN:MAX' collectives --out "$out" --sizes 5
expect 2 'MIN not above MAX' collectives --out "$out" --sizes 4G:1K
expect 2 'did you mean "all_reduce"' collectives --out "$out" --collectives allreduce
expect 2 '--sizes: is "x"' overlap --out "$out" --sizes 1M,x
expect 2 '--ctas: has 65; expected 0 (NCCL'"'"'s choice) to 64' overlap --out "$out" --ctas 8,65
expect 2 '--gpus: is -1' collectives --out "$out" --gpus -1
expect 2 '--fabric' collectives --out "$out" --fabric string
# Several faults at once.
expect 2 '--collectives: has "gather"' collectives --out "$out" --sizes 5 --collectives gather
expect 0 'as nccl-tests takes them' --help
if [[ -e $out ]]; then
  echo "wrong input left a file"
  failures=$((failures + 1))
fi
exit $((failures > 0))
