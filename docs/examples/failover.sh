#!/bin/bash
# What a group of three nodes promises, tried: nine checks, each with what it saw. It needs ports 1883, 9876, 10911, 10912,
# 8080 and 8090 of 127.0.77.1 to .6, bash, mosquitto's clients, and ten minutes; SHORT=1: two.
#
#     bash docs/examples/failover.sh
set -uo pipefail
HOSTS=${HOSTS:-127.0.77}
if [ -n "${SHORT:-}" ]; then MESSAGES=300 KILLS=1 DEVICE_MESSAGES=200 DEVICE_KILLS=1 STOP_S=3
else MESSAGES=5000 KILLS=${KILLS:-100} DEVICE_MESSAGES=10000 DEVICE_KILLS=5 STOP_S=10; fi
folder=$(mktemp -d); cd "$folder" || exit 1
declare -A PID HOST JOIN EXTRA
HOST=([a]=$HOSTS.1 [b]=$HOSTS.2 [c]=$HOSTS.3 [c2]=$HOSTS.4 [x]=$HOSTS.5 [y]=$HOSTS.6)
JOIN=([b]=a [c]=a [c2]=a [y]=x)
GROUP_OF_THREE=${HOST[a]}:9876,${HOST[b]}:9876,${HOST[c]}:9876
export PENSTOCK_SERVER=$GROUP_OF_THREE
failed=0
say() { printf '%s\n' "$*"; }
good() { say "   good: $*"; }
bad() { say "   BAD: $*"; failed=1; }
expect() { if [ "$2" = "$3" ]; then good "$1: $2"; else bad "$1: $2, not $3"; fi; }
end() { for one in "${!PID[@]}"; do kill -9 "${PID[$one]}" 2>/dev/null; done; wait 2>/dev/null; cd /; rm -rf "$folder"; }
trap end EXIT

# ---------------------------------------------------------------- nodes

start() { # NODE: returns when it serves
    cat > "$1.toml" <<END
host = "${HOST[$1]}"
[broker]
segment_bytes = 65536
lease_s = 12                 # a name server forgets so late who has died without a successor
register_every_s = 3
${EXTRA[$1]:-}
END
    : > "$1.out"
    penstock up --data "data-$1" --config "$1.toml" --key cluster.key --node "$1" --replica-port 10912 \
        ${JOIN[$1]:+--join "${HOST[${JOIN[$1]}]}:10912"} >> "$1.out" 2>> "$1.log" & PID[$1]=$!
    until grep -q '^ready' "$1.out"; do
        kill -0 "${PID[$1]}" 2>/dev/null || return 1
        sleep 0.1
    done
}
crash() { kill -9 "${PID[$1]}"; wait "${PID[$1]}" 2>/dev/null; }
# Of the group: what a row of `replica list --json` says, by python expressions over `rows`.
rows() { penstock replica list --json 2>/dev/null | python3 -c "import json, sys
rows = [json.loads(line) for line in sys.stdin]
print($1)"; }
leader() { rows "next((one['node'] for one in rows if one['role'] == 'leader'), '')"; }
until_leads() { until l=$(leader) && [ -n "$l" ] && [ "$l" != "${1:-}" ]; do sleep 0.1; done; say "$l"; }
until_level() { # COUNT: so many nodes, all level
    until [ "$(rows "len(rows) == $1 and all(one['level'] for one in rows)")" = True ]; do sleep 0.2; done; }
now_ms() { date +%s%3N; }

# A program that sends numbered messages and notes what is acknowledged; it tries each until it is.
cat > load.py <<'PYTHON'
import sys, time
from penstock.blocking import Producer
from penstock.errors import PenstockError
topic, first, count, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
with Producer(timeout_s=60) as producer, open(f"{topic}.acked", "a") as acked:
    for number in range(first, first + count):
        receipt = producer.send(topic, b"%d" % number)
        print(number, receipt.queue.number, receipt.offset, round(time.time() * 1000), file=acked, flush=True)
        time.sleep(pause)
PYTHON
# Every acknowledged message is there once, at the queue and offset of its receipt.
cat > check.py <<'PYTHON'
import json, sys
stored = {}
for line in sys.stdin:
    row = json.loads(line)
    stored.setdefault(row["body"], []).append((row["queue"], row["offset"]))
acked = [line.split() for line in open(f"{sys.argv[1]}.acked")]
lost = [a[0] for a in acked if a[0] not in stored]
moved = [a[0] for a in acked if a[0] in stored and (int(a[1]), int(a[2])) not in stored[a[0]]]
twice = [body for body, places in stored.items() if len(places) > 1]
print(f"{len(acked)} acknowledged, {len(lost)} lost, {len(moved)} moved, {len(twice)} twice")
PYTHON
check() { penstock consume "$1" --end --json 2>/dev/null | python3 check.py "$1"; }
load() { python3 load.py "$@" 2>> load.log; }

# ---------------------------------------------------------------- checks

say "1. A broker alone has no more files than before, but for its promises."
penstock up --data data-alone --mqtt-port 0 --broker-port 0 --namesrv-port 0 --http-port 0 --console-port 0 > alone.out 2> alone.log & PID[alone]=$!
until grep -q '^ready' alone.out; do sleep 0.1; done
expect "of copies it has" "$(cd data-alone && ls -A replica 2>/dev/null | grep -v '^state$' | wc -l) files" "0 files"
kill "${PID[alone]}"; wait "${PID[alone]}" 2>/dev/null

say "2. Three nodes; the leader is killed; the next message is acknowledged soon."
(umask 077; penstock replica key > cluster.key)
start a && start b && start c || bad "they do not start: $(tail -3 [abc].log)"
until_level 3
penstock replica promote b c > /dev/null || bad "they are not promoted"
until_level 3
expect "voters and leaders" "$(rows "[sum(one['role'] != 'observer' for one in rows), sum(one['role'] == 'leader' for one in rows)]")" "[3, 1]"
penstock topic create orders > /dev/null
load orders 0 "$MESSAGES" 0
was=$(leader); killed=$(now_ms); crash "$was"
load orders "$MESSAGES" 1 0
good "$was was killed; the next message was acknowledged after $(( $(tail -1 orders.acked | cut -d' ' -f4) - killed )) ms"
expect "messages" "$(check orders)" "$((MESSAGES + 1)) acknowledged, 0 lost, 0 moved, 0 twice"
start "$was"; until_level 3

say "3. Nodes die $KILLS times under load; then all have the same bytes."
sent=$((MESSAGES + 1))
for _ in $(seq "$KILLS"); do
    load orders "$sent" 100 0 & loading=$!; sent=$((sent + 100))
    nodes=(a b c); one=${nodes[RANDOM % 3]}
    crash "$one"; wait "$loading"; start "$one"; until_level 3
done
expect "messages" "$(check orders)" "$sent acknowledged, 0 lost, 0 moved, 0 twice"
sealed() { (cd "data-$1/log" && ls | sort | head -n -1 | xargs -r sha256sum); }
expect "sealed files of b" "$(sealed b | sha256sum)" "$(sealed a | sha256sum)"
expect "sealed files of c" "$(sealed c | sha256sum)" "$(sealed a | sha256sum)"

say "4. The leader stands still for $STOP_S s, and wakes."
was=$(leader); load orders "$sent" 50 0.1 & loading=$!; sleep 1
kill -STOP "${PID[$was]}"; until_leads "$was" > /dev/null; sleep "$STOP_S"; kill -CONT "${PID[$was]}"
wait "$loading"; sent=$((sent + 50)); until_level 3
expect "messages" "$(check orders)" "$sent acknowledged, 0 lost, 0 moved, 0 twice"
expect "$was is" "$(rows "next(one['role'] for one in rows if one['node'] == '$was')")" "voter"

say "5. A byte of a sealed file of one node rots."
one=$(rows "next(one['node'] for one in rows if one['role'] == 'voter')")
file=data-$one/log/$(ls "data-$one/log" | sort | head -1)
crash "$one"
python3 -c "f = open('$file', 'r+b'); f.seek(30_000); byte = f.read(1)[0]; f.seek(30_000); f.write(bytes([byte ^ 1]))"
penstock store verify --data "data-$one" > verify.out 2>&1 && bad "store verify sees nothing" || good "store verify says: $(grep -m1 -i damage verify.out)"
start "$one"; until_level 3
begun=$(now_ms)
until cmp -s "$file" "data-$(leader)/log/$(basename "$file")" || [ $(( $(now_ms) - begun )) -gt 60000 ]; do sleep 0.2; done
expect "$one repaired within 60 s" "$(cmp -s "$file" "data-$(leader)/log/$(basename "$file")" && say yes)" "yes"
expect "messages" "$(check orders)" "$sent acknowledged, 0 lost, 0 moved, 0 twice"

say "6. A folder is lost: under its old name the node is refused, a new one takes its place."
[ "$(leader)" = c ] && { penstock replica move-leader a > /dev/null; }
crash c; rm -rf data-c; : > c.log
if timeout 20 bash -c "penstock up --data data-c --config c.toml --key cluster.key --node c --replica-port 10912 --join ${HOST[a]}:10912 > c.out 2>> c.log"; then
    bad "a folder that was made anew was let in"; else good "refused: $(grep -m1 -i 'made anew' c.log)"; fi
start c2; until [ "$(rows "any(one['node'] == 'c2' and one['level'] for one in rows)")" = True ]; do sleep 0.2; done
penstock replica replace c --by c2 > /dev/null || bad "c is not replaced"
until_level 3
expect "nodes" "$(rows "sorted(one['node'] for one in rows)")" "['a', 'b', 'c2']"

say "7. One voter and one observer, two copies."
start x && start y
PENSTOCK_SERVER=${HOST[x]}:9876,${HOST[y]}:9876
until_level 2; penstock replica copies 2 > /dev/null; penstock topic create jobs > /dev/null
load jobs 0 100 0
crash y
until [ -n "$(rows "rows[0]['refusal'] or ''")" ]; do sleep 0.1; done
python3 -c "
from penstock.blocking import Producer
from penstock.errors import NoQuorum, PenstockError
try:
    with Producer(timeout_s=2) as producer: producer.send('jobs', b'too few')
except NoQuorum as error: print('   good: refused:', error.message)
except PenstockError as error: print('   BAD: it ended', type(error).__name__, error.message)
else: print('   BAD: it was acknowledged')"
start y; until_level 2; crash x
until penstock consume jobs --end --json > jobs.json 2>/dev/null; do sleep 0.2; done
expect "read from the observer" "$(python3 check.py jobs < jobs.json)" "100 acknowledged, 0 lost, 0 moved, 0 twice"
crash y
PENSTOCK_SERVER=$GROUP_OF_THREE

say "8. A device with QoS 2, while leaders die."
gateway=${HOST[a]}
mosquitto_sub -h "$gateway" -i reader -c -q 2 -t 'devices/#' -C "$DEVICE_MESSAGES" > device.out 2> device.err & subscriber=$!
sleep 1
seq "$DEVICE_MESSAGES" | mosquitto_pub -h "$gateway" -i writer -c -q 2 -t devices/d -l & publisher=$!
for _ in $(seq "$DEVICE_KILLS"); do
    sleep 1; was=$(leader); [ "$was" = a ] && { penstock replica move-leader b > /dev/null; was=$(until_leads a); }
    crash "$was"; until_leads "$was" > /dev/null; start "$was"; until_level 3
done
wait "$publisher"; timeout 60 tail --pid=$subscriber -f /dev/null; kill "$subscriber" 2>/dev/null
expect "payloads, each once" "$(sort -u device.out | wc -l) of $(wc -l < device.out)" "$DEVICE_MESSAGES of $DEVICE_MESSAGES"

say "9. Retention removes the same at all nodes."
for one in a b c2; do
    EXTRA[$one]="retention_bytes = 131072"; [ "$(leader)" = "$one" ] && { penstock replica move-leader "$([ $one = a ] && say b || say a)" > /dev/null; }
    crash "$one"; start "$one"; until_level 3
done
load orders "$sent" $((MESSAGES / 2)) 0; until_level 3
begins() { ls "data-$1/log" | sort | head -1; }
begun=$(now_ms)
until [ "$(begins a)" = "$(begins b)" ] && [ "$(begins b)" = "$(begins c2)" ] && [ "$(begins a)" != "$(basename "$file")" ]; do
    [ $(( $(now_ms) - begun )) -gt 60000 ] && break; sleep 0.2; done
expect "first file of b" "$(begins b)" "$(begins a)"
expect "first file of c2" "$(begins c2)" "$(begins a)"

[ "$failed" = 0 ] && say "All that was checked is good." || say "Something is BAD."
exit "$failed"
