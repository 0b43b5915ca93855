/*
 * The two ends of a test: the other process, and what a process has open. See fixture.h.
 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fixture fixture;

const char *fixture_address(char address[128])
{
	static unsigned count;

	if (fixture.host != NULL)
		snprintf(address, 128, "%s:0", fixture.host);
	else
		snprintf(address, 128, "%s/s%d.%u", test_tmpdir(), getpid(), count++);
	return address;
}

static void peer_main(void *arg)
{
	struct peer *peer = arg;
	struct node node = {.arg = peer->arg, .pipe = &peer->pipe};

	test_pipe_take(&peer->pipe, TEST_CHILD);
	peer->role(&node);
}

void peer_start(struct peer *peer, role_function *role, void *arg)
{
	*peer = (struct peer){.role = role, .arg = arg};
	test_pipe_open(&peer->pipe);
	peer->pid = test_spawn(peer_main, peer);
	test_pipe_take(&peer->pipe, TEST_PARENT);
}

void peer_join(struct peer *peer)
{
	test_wait(peer->pid);
	test_pipe_close(&peer->pipe);
}

void peer_kill(struct peer *peer)
{
	test_kill(peer->pid);
	test_pipe_close(&peer->pipe);
}

void node_open(struct node *node, const struct rmr_queue_options *options)
{
	struct rmr_device_options device_options = {.fault_plan = fixture.fault_plan};
	struct node fresh = {.arg = node->arg, .pipe = node->pipe};

	*node = fresh;
	CHECK_OK(rmr_device_open(fixture.device, &device_options, &node->device));
	node->info = rmr_device_info(node->device);
	node_open_queue(node, options);
}

void node_open_queue(struct node *node, const struct rmr_queue_options *options)
{
	CHECK_OK(rmr_queue_open(node->device, options, &node->queue));
	node->aside = calloc(1, sizeof(*node->aside));
	CHECK(node->aside != NULL);
}

void node_close_queue(struct node *node)
{
	rmr_queue_close(node->queue);
	free(node->aside);
}

void node_close(struct node *node)
{
	rmr_remote_close(node->remote);
	rmr_conn_close(node->conn);
	rmr_listener_close(node->listener);
	node_close_queue(node);
	memory_close(&node->memory);
	rmr_device_close(node->device);
	*node = (struct node){.arg = node->arg, .pipe = node->pipe};
}

void node_listen(struct node *node)
{
	char address[128];

	CHECK_OK(rmr_listener_open(node->device, fixture_address(address), NULL, &node->listener));
	snprintf(address, sizeof(address), "%s", rmr_listener_address(node->listener));
	test_send(node->pipe, TEST_CHILD, address, sizeof(address));
}

void node_accept(struct node *node, const struct rmr_conn_options *options)
{
	struct rmr_request *request;

	if (node->listener == NULL)
		node_listen(node);
	CHECK_OK(rmr_listener_next(node->listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, node->queue, options, &node->conn));
}

void node_connect(struct node *node, struct peer *peer, const struct rmr_conn_options *options)
{
	if (peer->address[0] == '\0')
		test_recv(&peer->pipe, TEST_PARENT, peer->address, sizeof(peer->address));
	CHECK_OK(rmr_connect(node->queue, peer->address, PATIENCE_MS, options, &node->conn));
}

unsigned memory_rights(const struct node *node, enum memory_kind kind)
{
	unsigned atomic = kind == MEMORY_PLAIN ? RMR_CAP_ATOMIC_PLAIN : RMR_CAP_ATOMIC;

	if (kind == MEMORY_SEALED)
		return RMR_READ;
	return RMR_READ | RMR_WRITE | (node->info->capabilities & atomic ? RMR_ATOMIC : 0);
}

void memory_open(struct node *node, struct memory *memory, enum memory_kind kind, size_t size,
		 unsigned rights)
{
	*memory = (struct memory){.size = size};
	if (kind == MEMORY_PLAIN) {
		memory->base = calloc(1, size);
		CHECK(memory->base != NULL);
	} else {
		CHECK_OK(rmr_arena_open(size, kind == MEMORY_ARENA ? RMR_ARENA_PEERS_WRITE : 0,
					&memory->arena));
		memory->base = rmr_arena_base(memory->arena);
	}
	CHECK_OK(rmr_region_open(node->device, memory->base, size, rights, &memory->region));
}

void memory_close(struct memory *memory)
{
	rmr_region_close(memory->region);
	if (memory->arena != NULL)
		rmr_arena_close(memory->arena);
	else
		free(memory->base);
	*memory = (struct memory){0};
}

void node_memory(struct node *node, enum memory_kind kind, size_t size, unsigned rights)
{
	memory_open(node, &node->memory, kind, size, rights);
}

void node_export(struct node *node)
{
	struct rmr_descriptor descriptor;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE,
				.local = &descriptor,
				.length = sizeof(descriptor)};

	CHECK_OK(rmr_region_export(node->memory.region, node->conn, &descriptor));
	node_do(node, &work);
}

void node_import(struct node *node)
{
	struct rmr_completion c = node_expect(node, RMR_OP_RECV, RMR_OK);

	CHECK_EQ(c.length, sizeof(node->descriptor));
	memcpy(&node->descriptor, c.data, sizeof(node->descriptor));
	rmr_recv_release(node->queue, c.data);
	CHECK_OK(rmr_remote_open(node->conn, &node->descriptor, &node->remote));
}
