/*
 * Hosts: what people write for one, and whether it is this one. Any thread.
 */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include <remora/status.h>
#include <stdbool.h>

struct host_name {
	char host[200]; /* without brackets */
	int port;
};

/* Takes "host", "host:port", "[v6]:port", "[v6]" or "v6" apart. `port` is for a name that has none;
 * a name without a host is "localhost". RMR_BAD_ADDRESS. */
RMR_MUST_CHECK enum rmr_status host_parse(const char *text, int port, struct host_name *name);

/* Whether an address of this host is meant. Asks the resolver, unless it can be told without. */
bool host_is_this(const char *host);

#endif
