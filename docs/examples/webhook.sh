#!/bin/bash
# A device publishes, a rule matches, an HTTP API gets JSON of its own form; the API fails, and a redrive delivers.
#
#     PENSTOCK_EVENTS_PRIVATE_TARGETS=127.0.0.1/32 penstock up --events-port 8095     (in another terminal)
#     bash docs/examples/webhook.sh
set -euo pipefail
MQTT=${MQTT:-127.0.0.1:1883}
folder=$(mktemp -d)

# The API: answers with the status that stands in a file, and notes what it got.
echo 200 > "$folder/status"
cat > "$folder/api.py" <<'PYTHON'
import pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
folder = pathlib.Path(sys.argv[1])
class Api(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = int((folder / "status").read_text())
        with open(folder / ("taken" if status == 200 else "refused"), "ab") as file:
            file.write(body + b"\n")
        self.send_response(status)
        self.end_headers()
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", 0), Api)
(folder / "new").write_text(str(server.server_port))
(folder / "new").rename(folder / "port")
server.serve_forever()
PYTHON
python3 "$folder/api.py" "$folder" & api=$!
trap 'kill $api; rm -r "$folder"' EXIT
until [ -e "$folder/port" ]; do sleep 0.1; done
wait_for() { until [ -s "$folder/$1" ] && [ "$(wc -l < "$folder/$1")" -ge "$2" ]; do sleep 0.1; done; }

# What devices publish under plant/... are events of the bus `default`: type mqtt.publish, subject the MQTT name.
penstock event source put default plant '{"topic": "plant"}' > "$folder/out"
penstock event target put default api \
  "{\"kind\": \"http\", \"url\": \"http://127.0.0.1:$(cat "$folder/port")/in\"}" > "$folder/out"
penstock event rule put default hot '{
  "target": "api",
  "pattern": {"type": ["mqtt.publish"], "subject": [{"suffix": "/temperature"}],
              "data": {"celsius": [{"numeric": [">", 40]}]}},
  "transform": {"kind": "template", "template": {"device": "${device}", "celsius": "${celsius}"},
                "variables": {"device": "$.subject", "celsius": "$.data.celsius"}},
  "retry": {"kind": "decay", "attempts": 2, "first_s": 0.1}}' > "$folder/out"

publish() { penstock mqtt pub --gateway "$MQTT" plant/d7/temperature "$1"; }
publish '{"celsius": 20}'   # the rule does not want it
publish '{"celsius": 50}'
wait_for taken 1
echo "delivered: $(cat "$folder/taken")"

echo 500 > "$folder/status"
publish '{"celsius": 41}'
wait_for refused 2
until penstock event dlq list default hot --json | grep -q 'HTTP 500, after 2 attempts'; do sleep 0.1; done
penstock event dlq list default hot

echo 200 > "$folder/status"
penstock event dlq redrive default hot
wait_for taken 2
echo "delivered after the redrive: $(tail -1 "$folder/taken")"
