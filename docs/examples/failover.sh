#!/bin/bash
# What a group of three nodes promises, tried: thirteen checks, each with what it saw. It needs ports 1883, 9876, 10911,
# 10912, 8080 and 8090 of 127.0.77.1 to .7, bash, mosquitto's clients, and up to half an hour; SHORT=1: about three
# minutes, with fewer messages and deaths, and without a judgement of times.
#
#     bash docs/examples/failover.sh
#
#  1 a broker alone has no file of a group      2 the leader dies: all acknowledged is there, the next PUBACK comes soon
#  3 nodes die, all have the same bytes         4 the leader stands still and wakes: no receipt of it counts
#  5 a byte rots: seen, repaired, never read    6 a lost folder is refused under its name, and replaced
#  7 two copies or nothing; reads go on         8 QoS 2 while leaders die: each payload once
#  9 retention: the same bounds at all nodes   10 the planted bugs are caught (from the source tree, with pytest)
# 11 without the key a node hears nothing      12 nodes stop and start one by one under load, as in an upgrade
# 13 a majority is lost for good: nothing is stored, reads go on, an operator's words make the last node lead
#
# What no shell can show: speed (`make bench`), power loss, cuts of the network (`make soak`).
set -uo pipefail
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
HOSTS=${HOSTS:-127.0.77}
if [ -n "${SHORT:-}" ]; then MESSAGES=300 KILLS=1 DEVICE_MESSAGES=200 DEVICE_KILLS=1 STOP_S=3 SOON_MS=600000
else MESSAGES=5000 KILLS=${KILLS:-100} DEVICE_MESSAGES=10000 DEVICE_KILLS=5 STOP_S=10 SOON_MS=3000; fi
folder=$(mktemp -d); cd "$folder" || exit 1
declare -A PID HOST JOIN EXTRA
HOST=([a]=$HOSTS.1 [b]=$HOSTS.2 [c]=$HOSTS.3 [c2]=$HOSTS.4 [x]=$HOSTS.5 [y]=$HOSTS.6 [z]=$HOSTS.7)
JOIN=([b]=a [c]=a [c2]=a [y]=x [z]=a)
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
# Every acknowledged message is there once, at the queue and offset of its receipt, and no other receipt names that.
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
shared = len(acked) - len({(a[1], a[2]) for a in acked})
print(f"{len(acked)} acknowledged, {len(lost)} lost, {len(moved)} moved, {len(twice)} twice, {shared} at a place of others")
PYTHON
check() { penstock consume "$1" --end --json 2>/dev/null | python3 check.py "$1"; }
SOUND="acknowledged, 0 lost, 0 moved, 0 twice, 0 at a place of others"
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
took=$(( $(tail -1 orders.acked | cut -d' ' -f4) - killed ))
if [ "$took" -le "$SOON_MS" ]; then good "$was was killed; the next message was acknowledged after $took ms"
else bad "$was was killed; the next message was acknowledged after $took ms, not $SOON_MS"; fi
start "$was"; until_level 3
was=$(leader); one=$([ "$was" = a ] && say b || say a)
mosquitto_pub -h "${HOST[$one]}" -q 1 -t by/device -m before || bad "a device cannot publish"
killed=$(now_ms); crash "$was"
until mosquitto_pub -h "${HOST[$one]}" -q 1 -t by/device -m after 2> /dev/null; do sleep 0.05; done
took=$(( $(now_ms) - killed ))
if [ "$took" -le "$SOON_MS" ]; then good "$was was killed; the next PUBACK of a gateway came after $took ms"
else bad "$was was killed; the next PUBACK of a gateway came after $took ms, not $SOON_MS"; fi
expect "messages" "$(check orders)" "$((MESSAGES + 1)) $SOUND"
start "$was"; until_level 3

say "3. Nodes die $KILLS times under load; then all have the same bytes."
sent=$((MESSAGES + 1))
for _ in $(seq "$KILLS"); do
    load orders "$sent" 100 0 & loading=$!; sent=$((sent + 100))
    nodes=(a b c); one=${nodes[RANDOM % 3]}
    crash "$one"; wait "$loading"; start "$one"; until_level 3
done
expect "messages" "$(check orders)" "$sent $SOUND"
sealed() { (cd "data-$1/log" && ls | sort | head -n -1 | xargs -r sha256sum); }
# Facts go on coming: a file that one of them has sealed by now and the other has not is left out.
differ() { join -j 2 <(sealed a) <(sealed "$1") | awk '$2 != $3 { bad++ } END { print NR ? bad + 0 : "no files" }'; }
expect "sealed files of b that differ" "$(differ b)" "0"
expect "sealed files of c that differ" "$(differ c)" "0"

say "4. The leader stands still for $STOP_S s, and wakes."
was=$(leader); load orders "$sent" 50 0.1 & loading=$!; sleep 1
kill -STOP "${PID[$was]}"; until_leads "$was" > /dev/null; sleep "$STOP_S"; kill -CONT "${PID[$was]}"
wait "$loading"; sent=$((sent + 50)); until_level 3
expect "messages" "$(check orders)" "$sent $SOUND"
expect "$was is" "$(rows "next(one['role'] for one in rows if one['node'] == '$was')")" "voter"

say "5. A byte of a sealed file of one node rots."
one=$(rows "next(one['node'] for one in rows if one['role'] == 'voter')")
file=data-$one/log/$(ls "data-$one/log" | sort | head -1)
crash "$one"
python3 -c "f = open('$file', 'r+b'); f.seek(30_000); byte = f.read(1)[0]; f.seek(30_000); f.write(bytes([byte ^ 1]))"
penstock store verify --data "data-$one" > verify.out 2>&1 && bad "store verify sees nothing" || good "store verify says: $(grep -m1 -i damage verify.out)"
start "$one"
expect "messages, read at once" "$(check orders)" "$sent $SOUND"
until_level 3; begun=$(now_ms)
until cmp -s "$file" "data-$(leader)/log/$(basename "$file")" || [ $(( $(now_ms) - begun )) -gt 60000 ]; do sleep 0.2; done
expect "$one repaired within 60 s" "$(cmp -s "$file" "data-$(leader)/log/$(basename "$file")" && say yes)" "yes"
expect "messages" "$(check orders)" "$sent $SOUND"

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
expect "read from the observer" "$(python3 check.py jobs < jobs.json)" "100 $SOUND"
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
# What a node itself says of the queues of a topic.
cat > bounds.py <<'PYTHON'
import sys, trio
from penstock.client.wire_link import WireLinks, ask
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail
async def main():
    async with trio.open_nursery() as nursery:
        detail = await ask(WireLinks(nursery).link(sys.argv[1]), DescribeTopic("orders"), TopicDetail)
        print(*[f"{one.min}..{one.end}" for one in detail.bounds])
        nursery.cancel_scope.cancel()
trio.run(main)
PYTHON
bounds() { python3 bounds.py "${HOST[$1]}:10911"; }
begins() { ls "data-$1/log" | sort | head -1; }
begun=$(now_ms)
until [ "$(begins a)" = "$(begins b)" ] && [ "$(begins b)" = "$(begins c2)" ] && [ "$(begins a)" != "$(basename "$file")" ]; do
    [ $(( $(now_ms) - begun )) -gt 60000 ] && break; sleep 0.2; done
expect "first file of b" "$(begins b)" "$(begins a)"
expect "first file of c2" "$(begins c2)" "$(begins a)"
until_level 3
expect "bounds of the queues at b" "$(bounds b)" "$(bounds a)"
expect "bounds of the queues at c2" "$(bounds c2)" "$(bounds a)"

say "10. Bugs of a group that are planted are caught."
if ! (cd "$SOURCE" && [ -d tests/planted ] && python3 -c "import pytest") 2> /dev/null; then
    say "   left out: this is no source tree, or pytest is not there"
else
    numbers=$(cd "$SOURCE" && PYTHONPATH=$SOURCE python3 -c "
from tests.planted import test_planted_copies, test_planted_leaders, test_planted_nodes, test_planted_rafts
modules = test_planted_copies, test_planted_leaders, test_planted_nodes, test_planted_rafts
print(len({one[0] for module in modules for one in module.PLANTS if one[0][:1] == 'R'}))")
    expect "bugs that are planted" "$numbers" "28"
    if [ -z "${SHORT:-}" ]; then
        (cd "$SOURCE" && PYTHONPATH=$SOURCE python3 -m pytest -q -p no:cacheprovider tests/planted/test_planted_{copies,leaders,nodes,rafts}.py) > planted.out 2>&1
        expect "tests of them that fail" "$?" "0"
    fi
fi

say "11. A node with another key hears nothing."
(umask 077; penstock replica key > other.key)
timeout 10 penstock up --data data-z --mqtt-port 0 --broker-port 0 --namesrv-port 0 --http-port 0 --console-port -1 \
    --key other.key --node z --replica-port 0 --join "${HOST[a]}:10912" > z.out 2> z.log
expect "z was" "$(grep -c '^ready' z.out) times ready" "0 times ready"
expect "it is told that it has" "$(grep -m1 -o 'another key of the cluster' z.log | head -1)" "another key of the cluster"
expect "nodes" "$(rows "sorted(one['node'] for one in rows)")" "['a', 'b', 'c2']"

say "12. Nodes stop and start one by one under load."
# Retention has removed the beginning of orders: what is counted from here on is in a topic of its own.
for one in a b c2; do EXTRA[$one]=""; done
penstock topic create upgrades > /dev/null
load upgrades 0 $((MESSAGES / 5)) 0.05 & loading=$!
for one in a b c2; do
    [ "$(leader)" = "$one" ] && penstock replica move-leader "$([ $one = a ] && say b || say a)" > /dev/null
    kill -TERM "${PID[$one]}"; wait "${PID[$one]}" 2> /dev/null; start "$one"; until_level 3
done
wait "$loading"; until_level 3
expect "messages" "$(check upgrades)" "$((MESSAGES / 5)) $SOUND"

say "13. A majority is lost for good."
left=$(rows "next(one['node'] for one in rows if one['role'] == 'voter')")
lost=(); for one in a b c2; do [ "$one" = "$left" ] || { lost+=("$one"); crash "$one"; }; done
until [ "$(rows "any(one['role'] == 'leader' for one in rows)")" = False ]; do sleep 0.1; done
PENSTOCK_SERVER=${HOST[$left]}:9876
timeout 20 python3 -c "
from penstock.blocking import Producer
from penstock.errors import PenstockError
try:
    with Producer(timeout_s=2) as producer: producer.send('upgrades', b'nobody has it')
except PenstockError as error: print('   good: not stored:', type(error).__name__)
else: print('   BAD: it was acknowledged')"
until penstock consume upgrades --end --json > left.json 2> /dev/null; do sleep 0.2; done
expect "read from the last node" "$(python3 check.py upgrades < left.json)" "$((MESSAGES / 5)) $SOUND"
force() { penstock replica force-leader "$left" --lost "${lost[0]}" --lost "${lost[1]}" --address "${HOST[$left]}:10911" --words "$1"; }
force "yes" > force.out 2>&1 && bad "it leads without the words" || good "without the words nothing changes"
force "lose what only ${lost[0]} and ${lost[1]} had" > force.out 2>&1 || bad "it is not forced: $(tail -2 force.out)"
until_leads > /dev/null
load upgrades $((MESSAGES / 5)) 20 0
expect "messages, with those that came since" "$(check upgrades)" "$((MESSAGES / 5 + 20)) $SOUND"

[ "$failed" = 0 ] && say "All that was checked is good." || say "Something is BAD."
exit "$failed"
