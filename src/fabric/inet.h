/*
 * Internet addresses: "host:port" as people write them, and the other way round. For providers that
 * meet by sockets or by RDMA CM.
 */
#ifndef FABRIC_INET_H
#define FABRIC_INET_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <remora/status.h>

/* Resolves "host:port", "[v6]:port", "*:port" or ":port"; passive: to listen there. freeaddrinfo
 * the result. */
enum rmr_status inet_resolve(const char *address, bool passive, struct addrinfo **list);
/* Writes "1.2.3.4:5" or "[::1]:5". */
void inet_format(const struct sockaddr *address, socklen_t length, char *to, size_t size);
/* Whether an address belongs to the loopback device: 127.0.0.0/8, ::1, or a Unix socket's. */
bool inet_is_loopback(const struct sockaddr *address);
/* Writes the address that peers can use for a listening socket. */
void inet_reachable(int fd, char *to, size_t size);

/* A connected socket sends at once, and fails when the other host is silent for so long. */
void inet_keep_alive(int fd, int dead_after_ms);

/* A connected socket whose two ends have the same address, and so are on this host, gets a plain
 * congestion control: one like BBR, which a system may use for all, has no network to find out
 * about there, and holds data back meanwhile. Where BBR is the default a GET of 1 MiB from the same
 * host took about a quarter longer with it, a PUT an eighth. */
void inet_use_plain_control(int fd);

/* Resolves the address and tries what it stands for one after the other, until one works. Each gets
 * its share of the time, so that a dead one cannot use it all up. The last failure counts. */
typedef enum rmr_status inet_try(void *context, const struct addrinfo *at, uint64_t deadline_ns);
enum rmr_status inet_try_each(const char *address, uint64_t deadline_ns, inet_try *try_one,
			      void *context);

#endif
