/*
 * Fuzzes a live shm listener and what it accepts: an impostor calls, introduces itself in a way the
 * input decides, and when it is let in, writes the rest of the input into its ring and control
 * words while the server polls, exports to it, and sends.
 *
 * The input: one byte of choices, then packets of sizeof(struct shm_packet) bytes that are laid
 * over a good HELLO (xor), then the contents of the ring.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/internal.h"
#include "fabric_shm/impostor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum choice {
	BARE = 1 << 0,	     /* send the input as it is, not laid over a good packet */
	NO_FDS = 1 << 1,     /* no descriptors */
	WRONG_FDS = 1 << 2,  /* descriptors of the wrong kind */
	SECOND = 1 << 3,     /* another packet after the first */
	LYING_HEAD = 1 << 4, /* the control words come from the input, too */
	ANSWER = 1 << 5,     /* the server sends to it */
	DROP_EARLY = 1 << 6, /* hang up before the server accepts */
};

static struct rmr_device *device;
static struct rmr_queue *queue;
static struct rmr_listener *listener;
static struct rmr_region *region;
static char path[64];

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void leave(void)
{
	rmr_listener_close(listener); /* removes the socket file */
}

static void set_up(void)
{
	struct rmr_arena *arena;

	log_set_level(LOG_LEVEL_ERROR);
	snprintf(path, sizeof(path), "/tmp/remora-fuzz-%d.sock", getpid());
	require(rmr_device_open("shm", NULL, &device) == RMR_OK);
	require(rmr_queue_open(device,
			       &(struct rmr_queue_options){.recv_slots = 4, .recv_size = 256},
			       &queue) == RMR_OK);
	require(rmr_listener_open(device, path, NULL, &listener) == RMR_OK);
	require(rmr_arena_open(4096, 0, &arena) == RMR_OK);
	require(rmr_region_open(device, rmr_arena_base(arena), 64, RMR_READ, &region) == RMR_OK);
	atexit(leave);
}

/* Takes up to length bytes from the input; the rest of out is left as it is. */
static size_t take(const uint8_t **data, size_t *size, void *out, size_t length)
{
	size_t taken = *size < length ? *size : length;

	memcpy(out, *data, taken);
	*data += taken;
	*size -= taken;
	return taken;
}

static void send_packet(struct impostor *impostor, uint8_t choice, const uint8_t **data,
			size_t *size)
{
	struct shm_packet packet = impostor_hello();
	uint8_t bytes[sizeof(packet)] = {0};
	int good[2] = {impostor->segment_fd, impostor->table_fd}, wrong[2] = {0, impostor->socket};
	size_t length = take(data, size, bytes, sizeof(bytes));

	if (choice & BARE) {
		memcpy(&packet, bytes, sizeof(bytes));
	} else {
		for (size_t i = 0; i < sizeof(bytes); i++)
			((uint8_t *)&packet)[i] ^= bytes[i];
		length = sizeof(packet);
	}
	impostor_send(impostor, &packet, length ? length : 1, choice & WRONG_FDS ? wrong : good,
		      choice & NO_FDS ? 0 : packet_fds(packet.type) % 3);
}

/* The server's side of the story: everything it would do with a guest. */
static void serve(struct rmr_conn *conn, struct impostor *impostor, uint8_t choice,
		  const uint8_t *data, size_t size)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = "hello",
				.length = 5};
	struct rmr_completion completions[8];
	struct rmr_descriptor descriptor;
	struct rmr_remote *remote;

	if (choice & LYING_HEAD)
		take(&data, &size, impostor->segment, 192);
	if (size > sizeof(impostor->segment->ring))
		size = sizeof(impostor->segment->ring);
	memcpy(impostor->segment->ring, data, size);
	if (size >= sizeof(descriptor)) {
		memcpy(&descriptor, data, sizeof(descriptor));
		if (rmr_remote_open(conn, &descriptor, &remote) == RMR_OK)
			rmr_remote_close(remote);
	}
	if (rmr_region_export(region, conn, &descriptor) != RMR_OK)
		return;
	for (int i = 0; i < 8; i++) {
		int count;

		if ((choice & ANSWER) && rmr_post(conn, &work, 1) < 0)
			break;
		count = rmr_poll(queue, completions, 8);
		for (int k = 0; k < count; k++) {
			if (completions[k].op != RMR_OP_RECV)
				continue;
			require(completions[k].length <= 256);
			rmr_recv_release(queue, completions[k].data);
		}
		if (rmr_queue_arm(queue) == RMR_OK)
			continue; /* the next poll reads the sockets */
	}
}

/* Whatever was passed to us is closed again. Looked at now and then only: it takes its time. */
static void check_descriptors(void)
{
	static unsigned runs, expected;
	unsigned count = 0;
	DIR *directory;

	if (runs++ % 64 != 0)
		return;
	directory = opendir("/proc/self/fd");
	require(directory != NULL);
	while (readdir(directory))
		count++;
	closedir(directory);
	if (expected == 0)
		expected = count;
	require(count == expected);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rmr_request *request;
	struct impostor impostor;
	struct rmr_conn *conn;
	uint8_t choice = 0;

	if (!device)
		set_up();
	take(&data, &size, &choice, 1);
	require(impostor_open(&impostor, path));
	send_packet(&impostor, choice, &data, &size);
	if (choice & SECOND)
		send_packet(&impostor, choice ^ BARE, &data, &size);
	if (choice & DROP_EARLY)
		shutdown(impostor.socket, SHUT_RDWR);
	if (rmr_listener_next(listener, 0, &request) == RMR_OK &&
	    rmr_accept(request, queue, NULL, &conn) == RMR_OK) {
		serve(conn, &impostor, choice, data, size);
		rmr_conn_close(conn);
	}
	impostor_close(&impostor);
	check_descriptors();
	return 0;
}
