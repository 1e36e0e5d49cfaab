"""What has come to a client, taken off and acknowledged."""

from __future__ import annotations

from rig import Client

from gateway.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel


def publishes(client: Client) -> list[Publish]:
    return [packet for packet in client.got() if isinstance(packet, Publish)]


def drain(client: Client) -> list[bytes]:
    """Acknowledges whatever comes until nothing comes any more."""
    payloads: list[bytes] = []
    while got := client.got():
        answers: list[Packet] = []
        for packet in got:
            if isinstance(packet, Publish):
                payloads.append(packet.payload)
                answers += {1: [Puback(packet.packet_id)], 2: [Pubrec(packet.packet_id)]}.get(packet.qos, [])
            elif isinstance(packet, Pubrel):
                answers.append(Pubcomp(packet.packet_id))
        if answers:
            client.send(*answers)
    return payloads
