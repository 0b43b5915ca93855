/*
 * A caller of a shm listener that does as it likes: it speaks the protocol by hand, so that tests
 * and fuzzers can break every rule of it.
 */
#ifndef TESTS_FABRIC_SHM_IMPOSTOR_H
#define TESTS_FABRIC_SHM_IMPOSTOR_H

#include "fabric/shm/packet.h"
#include "fabric/shm/segment.h"

struct impostor {
	int socket;
	struct shm_segment *segment; /* its own, writable */
	int segment_fd;
	int table_fd;
	void *table;
};

#define IMPOSTOR_REGIONS 16u

/* Makes the shared memory; connects to the socket at path. False when that fails. */
bool impostor_open(struct impostor *impostor, const char *path);
void impostor_close(struct impostor *impostor);

/* A HELLO as a good caller would send it. */
struct shm_packet impostor_hello(void);

/* Sends length bytes as one packet with count descriptors. */
bool impostor_send(struct impostor *impostor, const void *bytes, size_t length, const int *fds,
		   unsigned count);

/* Sends a good HELLO with good descriptors. */
bool impostor_introduce(struct impostor *impostor);

/* Sends a good GRANT of a new arena. */
bool impostor_grant(struct impostor *impostor, uint64_t id);

/* A memfd of this size, sealed or not. */
int impostor_memory(size_t size, bool sealed);

#endif
