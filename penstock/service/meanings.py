"""The one table of figures: the meaning of each in one line, as ``/metrics`` has it (``# HELP``).

Sorted by the service that counts it: name server, broker, gateway or process. docs/guide/metrics.md says more of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_REFUSED: Final = "gateway_refused_"
_TOTAL: Final = "_total"

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # ---- broker
        "rocketmq_messages_in_total": "Messages stored.",
        "rocketmq_messages_out_total": "Messages read, by anybody.",
        "rocketmq_throughput_in_total": "Bytes of messages stored.",
        "rocketmq_throughput_out_total": "Bytes of messages read, by anybody.",
        "rocketmq_storage_size": "Bytes of the commit log.",
        "rocketmq_storage_flush_behind_bytes": "Bytes of the commit log that are not synced yet.",
        "penstock_messages_refused_total": "Messages refused with an error.",
        "penstock_messages_repeated_total": "Messages that a producer sent again and that are stored once.",
        "penstock_producers": "Producers whose repeated messages are recognised.",
        "penstock_syncs_total": "Syncs of the commit log to the disk.",
        "penstock_disk_full": "1 while the disk has no room and messages are refused.",
        "penstock_trace_dropped_total": "Rows of message traces that were dropped at the limit.",
        "penstock_trace_rows_total": "Rows of message traces that were stored.",
        "penstock_index_unwritable": "1 while index/ or checkpoint/ cannot be written.",
        "penstock_limit_used": "How much of a limit on what the broker keeps is used, 0 to 1, by limit.",
        "penstock_damaged_frames_total": "Stretches of the log that reads, or the last start, found damaged or gone.",
        "penstock_topics": "Topics, without those that gateways keep for themselves.",
        "penstock_empty_topics_deleted_total": "Topics that were deleted because they had been empty for long.",
        "penstock_retained_messages": "Retained messages.",
        "penstock_open_filters": "MQTT filters with a light queue.",
        "penstock_parked_requests": "Requests that wait for something to answer.",
        "penstock_mqtt_sessions": "MQTT sessions whose home is this broker.",
        "penstock_session_bytes": "Bytes that are kept of MQTT sessions.",
        "penstock_sessions_away": "MQTT sessions whose clients are away.",
        "penstock_sessions_lag_messages": "Messages that durable sessions have not been sent, by client.",
        "penstock_sessions_lag_messages_most": "Messages that the session furthest behind has to come, by client.",
        "penstock_sessions_lagging": "Durable sessions that are more than 1,000 messages behind, by client.",
        "penstock_shares": "Shared subscriptions.",
        "penstock_shared_unsettled": "Messages of shared subscriptions that are on their way, or passed over and owed.",
        "penstock_shared_redelivered_total": "Messages of shared subscriptions that went out again.",
        "penstock_shared_lost_total": "Messages of shared subscriptions that damage took before anybody had them.",
        "penstock_timers": "Delayed messages that wait.",
        "penstock_timer_bytes": "Bytes of delayed messages that wait.",
        "penstock_timers_fired_total": "Delayed messages that were delivered.",
        "penstock_timers_refused_total": "Delayed messages that were refused when due: dead letters.",
        "penstock_timers_damaged_total": "Delayed messages that damage took before they were due.",
        "penstock_timers_late_seconds": "How late the delayed messages are that are delivered now.",
        "penstock_timers_frozen_s": "Seconds that the clock has jumped while delayed messages are held back for that.",
        "penstock_halves": "Halves of transactions that wait for their outcome.",
        "penstock_halves_parked": "Halves of transactions that an operator has to decide.",
        "penstock_halves_committed_total": "Halves of transactions that were committed.",
        "penstock_halves_rolled_back_total": "Halves of transactions that were rolled back.",
        "penstock_halves_checked_total": "How often producers were asked for the outcome of a half.",
        "penstock_popped_leased": "Messages that groups have popped and not acknowledged.",
        "penstock_popped_owed": "Popped messages whose lease has ended and that wait for redelivery.",
        "penstock_popped_redelivered_total": "Popped messages that were redelivered.",
        "penstock_retries_total": "Messages that consumers returned for a later retry.",
        "penstock_given_back_again_total": "Messages that consumers returned again after a lost answer; stored once.",
        "penstock_dead_letters_total": "Messages that consumers returned after their last attempt.",
        "penstock_sessions_unreadable": "Durable sessions whose saved bytes cannot be read: their lag is unknown.",
        "penstock_shares_lag_messages": "Messages that shared subscriptions have not settled.",
        "penstock_shares_lag_messages_most": "Messages that the shared subscription furthest behind has not settled.",
        "penstock_shares_lagging": "Shared subscriptions with more than 1,000 messages not settled.",
        "penstock_shares_unattended": "Shared subscriptions with messages and without a gateway.",
        "penstock_unread_age_s": "Age of the oldest message that somebody has not done with, by reader.",
        "penstock_gateway_silent_s": "Seconds since a gateway was heard at the home of sessions, by gateway.",
        "penstock_gateway_sessions": "Sessions that a gateway has, as the home of sessions knows, by gateway.",
        "penstock_namesrv_away": "Name servers that do not answer the broker.",
        "penstock_store_time_ahead_s": "Seconds that store times are ahead of the clock.",
        "penstock_ages_behind_s": "Seconds that the clock is ahead of the time by which ages are judged.",
        "penstock_unfinished_bytes": "Bytes of requests that are not complete or wait to be carried out.",
        "penstock_untaken_bytes": "Bytes of replies that clients have not taken.",
        "penstock_waiting_connections": "Connections that wait for room, which others hold.",
        # ---- name server
        "namesrv_brokers": "Brokers that live.",
        "namesrv_brokers_away": "Brokers that are away, whose topics wait for them.",
        "namesrv_topics": "Topics that have a broker, without those that gateways keep for themselves.",
        "namesrv_refused_total": "Requests refused that spoke for a broker without a proof of it.",
        "namesrv_unfinished_bytes": "Bytes of requests that are not complete or wait to be carried out.",
        "namesrv_untaken_bytes": "Bytes of replies that brokers and clients have not taken.",
        "namesrv_waiting_connections": "Connections that wait for room, which others hold.",
        # ---- the front for RocketMQ's clients
        "remoting_connections": "Connections of RocketMQ's clients.",
        "remoting_commands_total": "Commands of RocketMQ's clients.",
        # ---- process
        "process_clock_jump_s": "Seconds that the machine's clock has jumped, until that is over or believed.",
        "process_clock_jumps_total": "Jumps of the machine's clock.",
        "process_resident_memory_bytes": "Resident memory of the process in bytes.",
        "process_open_fds": "Files and sockets that the process has open.",
        "process_max_fds": "Files and sockets that the process may have open.",
        # ---- gateway: connections
        "gateway_connections": "Connections of devices.",
        "gateway_connections_most": "The most connections that there were at a time.",
        "gateway_connections_half_open": "Connections without an accepted CONNECT.",
        "gateway_connections_failed_total": "Connections ended by an error that nobody has foreseen.",
        "gateway_connects_total": "Connections since the start, by listener.",
        "gateway_listener_connections": "Connections of devices, by listener.",
        "gateway_listener_refused_total": "Connections closed at the door, by listener.",
        "gateway_listener_accepts_paced_total": "How often a listener waited before it accepted more, by listener.",
        "gateway_handshakes_failed_total": "Connections ended by a wrong or unfinished handshake, by listener.",
        "gateway_certificate_ends_at_s": "When the listener's first certificate ends, in seconds since 1970.",
        "gateway_crl_ends_at_s": "When the listener's list of revoked certificates ends, in seconds since 1970.",
        "gateway_over_receive_max_total": "How often more than the Receive Maximum was taken of a client, by listener.",
        "gateway_bytes_in_total": "MQTT bytes from devices, by listener.",
        "gateway_bytes_out_total": "MQTT bytes to devices, by listener.",
        "gateway_packets_in_total": "MQTT packets from devices, by listener.",
        "gateway_packets_out_total": "MQTT packets to devices, by listener.",
        "gateway_publications_in_total": "PUBLISH packets from devices, by listener.",
        "gateway_publications_out_total": "PUBLISH packets to devices, by listener.",
        "gateway_paced": "Clients that are not read now because they were too fast.",
        "gateway_subscribing": "Clients whose SUBSCRIBE or UNSUBSCRIBE waits for its turn.",
        "gateway_takeovers_total": "Sessions taken over by another connection of their client.",
        # ---- gateway: sessions and messages
        "gateway_sessions": "Sessions of connected devices.",
        "gateway_sessions_refused_total": "Openings and saves of sessions for which their home had no room.",
        "gateway_subscriptions": "Subscriptions of connected devices.",
        "gateway_filters_open": "Light queues held open at all brokers.",
        "gateway_filters_refused_total": "Subscriptions for which a broker had no room.",
        "gateway_appends_total": "Batches of messages sent to brokers.",
        "gateway_unanswered": "Batches of messages that brokers have not answered yet.",
        "gateway_unfinished_bytes": "Bytes of incomplete packets that are held for all clients.",
        "gateway_untaken_bytes": "Bytes of output that all clients have not taken.",
        "gateway_unstored_bytes": "Bytes of all clients: messages that no broker has stored, and answers that wait.",
        "gateway_held": "1 while the gateway stores nothing because it may have lost sessions.",
        "gateway_published_total": "Messages of devices that were stored.",
        "gateway_publish_dropped_total": "Messages of devices that were refused or given up.",
        "gateway_publish_unauthorized_total": "Messages and wills that access rules refused, or for $ topics.",
        "gateway_delivered_total": "Messages sent to devices.",
        "gateway_delivery_dropped_total": "Messages not sent: QoS 0 to a slow device, or too large for it.",
        "gateway_delivery_lost_total": "Messages gone from the log before they were sent.",
        "gateway_shares": "Shared subscriptions with members here.",
        "gateway_shared_settled_total": "Messages of shared subscriptions that need not go to anybody any more.",
        "gateway_shared_returned_total": "Messages of shared subscriptions given back to the broker.",
        "gateway_replays": "Subscriptions that are sent history now.",
        "gateway_replayed_total": "Messages of history sent.",
        "gateway_position_commits_total": "Reports to brokers of how far named positions have come.",
        "gateway_position_commits_refused_total": "Reports of named positions that a broker refused.",
        "gateway_brokers_away": "Known brokers that do not answer the gateway.",
        # ---- gateway: logins
        "gateway_access_files_failed_total": "Changed password, access and key files that could not be taken.",
        "gateway_logins_checked_total": "Passwords that were checked.",
        "gateway_logins_remembered_total": "Passwords that had been right a while ago and were not checked again.",
        "gateway_logins_proven_total": "Clients that proved by SCRAM who they are.",
        "gateway_logins_tokens_total": "Tokens that were right.",
        "gateway_logins_expired_total": "Connections that ended with what was shown at their login.",
        "gateway_logins_refused_total": "Clients whose credentials were refused, by cause.",
        "gateway_logins_busy_total": "Clients told to come back because too many passwords waited to be checked.",
        "gateway_logins_unchecked_total": "Clients refused because an error ended the check of their password.",
    }
)


def meaning_of(family: str) -> str:
    """What a family of figures means, in a line of ASCII that needs no escaping; empty for one that nobody knows."""
    if family.startswith(_REFUSED) and family.endswith(_TOTAL):
        limit = family.removeprefix(_REFUSED).removesuffix(_TOTAL)
        return f"What the gateway's limit {limit} turned away."
    return MEANINGS.get(family, "")
