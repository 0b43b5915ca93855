/*
 * The protocol spoken by hand, over a plain socket: a peer that can break every rule. It knows
 * the bytes (frame.h, handshake.h) and nothing else of the provider.
 */
#ifndef TESTS_FABRIC_TCP_RAW_H
#define TESTS_FABRIC_TCP_RAW_H

#include "fabric/tcp/frame.h"
#include "fabric/tcp/handshake.h"
#include "harness/test.h"

#define RAW_DEPTH 16

/* A socket connected to "127.0.0.1:port". */
int raw_connect(const char *address);
/* A socket that listens; writes its address. */
int raw_listen(char address[64]);

struct handshake raw_greeting(enum handshake_kind kind);
/* Connects, says HELLO with this depth, and expects ACCEPT. */
int raw_call(const char *address, uint32_t depth);

void raw_send(int fd, const void *bytes, size_t length);
void raw_frame(int fd, const struct frame *frame);

/* Reads exactly so many bytes; false at the end of the stream. Waits 5 s at most. */
bool raw_read(int fd, void *bytes, size_t length);
/* Reads a frame's header; false at the end of the stream. */
bool raw_read_frame(int fd, struct frame *frame);
/* That the other side hangs up; what it sends before is read away. */
void raw_expect_end(int fd);
/* That it says ERROR with this status for this sequence, and hangs up. */
void raw_expect_error(int fd, uint32_t sequence, enum rmr_status status);

#endif
