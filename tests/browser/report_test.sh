#!/bin/sh
# Opens the report of the test fixtures in headless Chromium, wide and narrow, and checks what the page's probe saw: no
# fault on the console, no request, the expected number of marks, tables that sort, a timeline that zooms and explains.
# Leaves screenshots, light and dark, beside the page for a person.
#
# usage: report_test.sh RENDER-REPORT FOLDER; exit 77 skips.
set -u

render=$1
folder=$2
browser=${CHROMIUM:-chromium}
if ! command -v "$browser" >/dev/null; then
  echo "skipped: no $browser (Debian package chromium)"
  exit 77
fi

mkdir -p "$folder" || exit 1
folder=$(cd "$folder" && pwd) || exit 1
page=$folder/report.html
"$render" "$page" || exit 1
profile=$(mktemp -d) || exit 1
trap 'rm -rf "$profile"' EXIT

# run WINDOW-SIZE OPTION...
run() {
  window=$1
  shift
  rm -rf "$profile/browser"
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
    --user-data-dir="$profile/browser" --window-size="$window" "$@" "file://$page" 2>"$profile/log"
}

failures=0
# expect LINE: the probe must have left it.
expect() {
  if ! grep -qxF -- "$1" "$profile/probe"; then
    echo "FAIL at $size: no line \"$1\""
    failures=$((failures + 1))
  fi
}

for size in 1280,1200 600,1200; do
  run "$size" --virtual-time-budget=5000 --dump-dom >"$profile/dom"
  sed -n '/<pre id="probe">/,/<\/pre>/p' "$profile/dom" >"$profile/probe"
  if ! [ -s "$profile/probe" ]; then
    echo "FAIL at $size: the page left no probe"
    cat "$profile/log"
    exit 1
  fi
  expect 'ready true'
  expect 'timeline-rows 8'
  expect 'marks 20'
  expect 'strokes 20'
  expect 'drawn true'
  expect 'sorted-up no-shards,flashcp,allgather-cp,csbp'
  expect 'sorted-down allgather-cp,flashcp,no-shards,csbp'
  expect 'zoomed true'
  expect 'whole-again true'
  expect 'tip qkv (forward); layer 0, chunk 0; start 0.0 µs; takes 100.0 µs'
  expect 'overflow false'
  expect 'requests 0'
  expect 'faults 0 '
done
[ "$failures" -eq 0 ] || { cat "$profile/probe" && exit 1; }

for size in 1280 600; do
  run "$size,3200" --screenshot="$folder/report-$size-light.png" >/dev/null
  run "$size,3200" --blink-settings=preferredColorScheme=0 --screenshot="$folder/report-$size-dark.png" >/dev/null
done
for image in report-1280-light report-1280-dark report-600-light report-600-dark; do
  [ -s "$folder/$image.png" ] || { echo "FAIL: no screenshot $image.png" && exit 1; }
done
if cmp -s "$folder/report-1280-light.png" "$folder/report-1280-dark.png"; then
  echo "FAIL: light and dark look the same"
  exit 1
fi
echo "the page works; screenshots are in $folder"
