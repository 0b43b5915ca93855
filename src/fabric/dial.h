/*
 * Calling a socket of another host, with a deadline. For providers whose connections begin with a
 * TCP connection. Runs in the thread of the caller, which waits.
 */
#ifndef FABRIC_DIAL_H
#define FABRIC_DIAL_H

#include <stdint.h>

#include <remora/status.h>

/* Connects a socket to "host:port"; it is non-blocking. Errors: RMR_BAD_ADDRESS (no such name),
 * RMR_REFUSED (nobody listens there, or no way to it), RMR_TIMEOUT. */
enum rmr_status dial(const char *address, uint64_t deadline_ns, int *fd);

/* Waits until the socket is ready for events of poll(2), or the deadline comes: RMR_TIMEOUT. What
 * goes into the message: "from the listener". */
enum rmr_status dial_await(int fd, short events, uint64_t deadline_ns, const char *what);

#endif
