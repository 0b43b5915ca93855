/*
 * The ofi provider: the fabric on whatever libfabric drives, by reliable datagram endpoints. AWS
 * EFA, Slingshot, Omni-Path, and plain TCP for trying it without any of them.
 *
 * It is the engine of the tcp provider (src/fabric/tcp/internal.h: works, frames, windows, rights,
 * the helper thread) on another wire. The frames travel in packets:
 *
 *	posting thread				peer
 *	--------------				----
 *	post   -> work FIFO -> block
 *	flush  -> fi_send of a packet ------>	fi_cq_read brings it (queue.c), packet.c sorts them,
 *						the engine executes and delivers
 *	poll   <- fi_cq_read  <--------------	one packet with all answers
 *
 * Why so, and not one libfabric call for each operation:
 *  - Many small operations between two flushes leave in one packet. Over TCP libfabric makes about
 *    three system calls an operation; packed it is as many a packet of 16 KiB.
 *  - Nothing is assumed of the provider but that a message arrives. Packets are numbered, so their
 *    order is ours; what the contract says about order, rights, stale keys and errors holds because
 *    the owner of the memory executes each access, as it does over tcp. A bad key given to
 *    libfabric's own RMA would, over TCP, end the link to that peer for every connection on it.
 *  - READ and WRITE go on although the target program calls nothing, since the helper stands in.
 *  - Closing is safe at any moment: libfabric has nothing of the program's memory in hand, which it
 *    could not be made to let go of while a peer is stopped in the middle of a transfer.
 * The price is that what travels is copied once on each side. So the data of long READs goes
 * another way, straight into memory that the initiator lends (lend.c).
 *
 * A connection begins with a TCP connection by which endpoint addresses are exchanged (greeting.h).
 * It stays open: its end tells that the peer closed, or died (control.c).
 */
#ifndef FABRIC_OFI_OFI_H
#define FABRIC_OFI_OFI_H

#include "fabric/provider.h"

extern const struct rmr_provider ofi_provider;

#endif
