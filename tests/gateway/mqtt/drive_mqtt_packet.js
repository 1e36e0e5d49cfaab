// mqtt-packet over pipes: each line in is a JSON list of [level, packet in hex]; each line out a JSON list with, for
// each, {again: the packet as mqtt-packet writes what it has read} or {error: why it has not read it}.
'use strict'
const mqtt = require('mqtt-packet')
const lines = require('readline').createInterface({ input: process.stdin })

function judge ([level, hex]) {
  const parser = mqtt.parser({ protocolVersion: level })
  let packet = null
  let error = null
  parser.on('packet', (one) => { packet = packet || one })
  parser.on('error', (one) => { error = error || one.message })
  try {
    parser.parse(Buffer.from(hex, 'hex'))
  } catch (thrown) {
    return { error: 'thrown: ' + thrown.message }
  }
  if (error !== null || packet === null) return { error: error === null ? 'incomplete' : error }
  try {
    return { again: mqtt.generate(packet, { protocolVersion: level }).toString('hex') }
  } catch (thrown) {
    return { again: null, error: 'written: ' + thrown.message }
  }
}

lines.on('line', (line) => process.stdout.write(JSON.stringify(JSON.parse(line).map(judge)) + '\n'))
