/* Embedding: the few things of a server that the layer above uses. Any thread. */
#include "server/embed.h"

#include "server/internal.h"

struct store *server_store(const struct kv_server *server)
{
	return server->store;
}

struct rmr_arena *server_arena(const struct kv_server *server)
{
	return server->arena;
}

uint64_t server_max_value(const struct kv_server *server)
{
	return server->max_value;
}

const char *server_node_id(const struct kv_server *server)
{
	return server->node_id;
}

uint64_t server_instance(const struct kv_server *server)
{
	return server->instance;
}

const char *server_address(const struct kv_server *server)
{
	return server->address;
}

bool server_takes_any_user(const struct kv_server *server)
{
	return server->options.any_user;
}

const char *server_device_name(const struct kv_server *server, unsigned number)
{
	for (unsigned i = 0; i < server->path_count; i++) {
		if (server->paths[i].device && number-- == 0)
			return server->paths[i].name;
	}
	return NULL;
}

void server_count_request(struct kv_server *server, unsigned op, uint64_t ns)
{
	counter_add(&server->above.requests[PATH_GRPC][op], 1);
	times_record(&server->above_times, op, ns);
}

void server_count_again(struct kv_server *server)
{
	counter_add(&server->above.again, 1);
}

void server_count_bytes(struct kv_server *server, int64_t in, int64_t out)
{
	counter_add(&server->above.bytes_in, in);
	counter_add(&server->above.bytes_out, out);
}

void server_count_clients(struct kv_server *server, int64_t change)
{
	counter_add(&server->above.present[PATH_GRPC], change);
	if (change > 0)
		counter_add(&server->above.sessions, change);
}
