"""One connection: accepted, admitted, served packet by packet, ended; with the gateway's lease, takeovers and wills."""
