// Drives MQTT.js; the argument is the protocol level. The same commands as driver.py, one per line.
"use strict";
const fs = require("node:fs");
const readline = require("node:readline");
const mqtt = require("mqtt");

const level = Number(process.argv[2]);
const connections = new Map();
const emit = (event) => process.stdout.write(JSON.stringify(event) + "\n");

const commands = {
  connect({ name, host, port, client_id, clean, will, scheme, ca }) {
    return new Promise((resolve, reject) => {
      const options = { host, port, clientId: client_id, clean, protocolVersion: level, reconnectPeriod: 0 };
      options.protocol = { tcp: "mqtt", tls: "mqtts", ws: "ws", wss: "wss" }[scheme];
      if (scheme === "ws" || scheme === "wss") options.path = "/mqtt";
      if (ca) options.ca = fs.readFileSync(ca);
      if (level === 5) options.properties = { sessionExpiryInterval: clean ? 0 : 600 };
      if (will) options.will = { topic: will[0], payload: Buffer.from(will[1]), qos: will[2], retain: will[3] };
      const client = mqtt.connect(options);
      connections.set(name, client);
      client.on("message", (topic, payload, packet) =>
        emit({ message: [name, topic, payload.toString(), packet.qos, packet.retain] }));
      client.once("connect", (connack) => resolve(connack.sessionPresent));
      client.on("error", reject);
    });
  },
  async subscribe({ name, topic_filter, qos }) {
    const granted = await connections.get(name).subscribeAsync(topic_filter, { qos });
    return granted[0].qos;
  },
  async unsubscribe({ name, topic_filter }) {
    await connections.get(name).unsubscribeAsync(topic_filter);
  },
  async publish({ name, topic, payload, qos, retain }) {
    await connections.get(name).publishAsync(topic, payload, { qos, retain });
  },
  async disconnect({ name }) {
    await connections.get(name).endAsync();
    connections.delete(name);
  },
  async drop({ name }) {
    connections.get(name).stream.destroy();
    connections.delete(name);
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    try {
      emit({ answer: (await commands[command.do](command)) ?? null });
    } catch (error) {
      emit({ error: String(error) });
    }
  }
  process.exit(0);
}

main();
