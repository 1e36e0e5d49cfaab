#!/bin/sh
# Builds the plain and the compiled wheel with `python -m build`, installs each into a fresh environment and runs it there.
# Wants a package index (PIP_INDEX_URL, PIP_FIND_LINKS and PIP_NO_INDEX count) and, for the compiled one, a C compiler.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/wheels}
rm -rf "$out" && mkdir -p "$out" && out=$(cd "$out" && pwd)
python3 -m venv "$out/tools"
"$out/tools/bin/pip" install --quiet --disable-pip-version-check build
for kind in plain compiled; do
    began=$(date +%s)
    if [ $kind = plain ]; then export HATCH_BUILD_NO_HOOKS=true; else unset HATCH_BUILD_NO_HOOKS; fi
    "$out/tools/bin/python" -m build --wheel --outdir "$out/$kind" . > "$out/$kind.log" 2>&1 || { tail -20 "$out/$kind.log"; exit 1; }
    python3 -m venv "$out/$kind/env"
    "$out/$kind/env/bin/pip" install --quiet --disable-pip-version-check "$out/$kind"/*.whl
    said=$(cd / && "$out/$kind/env/bin/penstock" --version)
    echo "$kind: $(basename "$out/$kind"/*.whl), $(du -k "$out/$kind"/*.whl | cut -f1) KiB, $(($(date +%s) - began)) s: $said"
    case "$kind $said" in "plain "*"(not compiled)" | "compiled "*"(compiled)") ;; *) echo "error: this is no $kind wheel"; exit 1 ;; esac
    (
        cd "$out/$kind"
        env/bin/penstock up --data data --mqtt-port 0 --broker-port 0 --namesrv-port 0 --http-port 0 --console-port -1 > up.log &
        for _ in $(seq 120); do grep -q '^ready' up.log && break; sleep 0.5; done
        grep -o '^ready' up.log
        kill $! && wait $!
    )
done
