/*
 * Links: one connection to a server, from opening the device to what the server lets us reach.
 *
 * Greeting, as kv/protocol.h has it: who we are, whether both know the secret, what may be reached.
 * When a link is lost its memory may still be looked at through views; then it stays, out of use,
 * until the last of them is released.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "client/internal.h"
#include "fabric/shared_device.h"

#define MAX_SLOT     65536u
#define SPARE_DEPTH  32u
#define LINK_SPIN_US 50
/* A client that had to take a slower path tries the faster ones again after a second, and if that
 * is in vain after twice the time, and so on; and not for long each time. */
#define MIN_BETTER_MS 1000u
#define MAX_BETTER_MS 60000u
#define BETTER_TRY_MS 50
/* Soft RDMA takes longer than 50 us, and adapters far less: who has either waits for it awake. */
#define VERBS_SPIN_US 300

/* ------------------------------------------------------------------------------------------
 * The end
 */

static void link_close(struct link *link)
{
	rmr_conn_close(link->conn); /* and its remotes */
	rmr_region_close(link->callers_region);
	for (unsigned i = 0; i < LINK_MAX_DETACHED; i++)
		rmr_region_close(link->detached[i]);
	rmr_region_close(link->buffer_region);
	rmr_region_close(link->slots_region);
	rmr_arena_close(link->buffer);
	if (link->slots)
		munmap(link->slots, link->slots_size);
	rmr_queue_close(link->queue);
	device_give(link->device);
	extents_fini(&link->buffer_space);
	extents_fini(&link->landing_space);
	free(link);
}

void link_drop(struct kv_client *client)
{
	struct link *link = client->link;

	if (!link)
		return;
	client->link = NULL;
	client->reader = NULL;
	client->touch_count = 0;
	client->has_held = false;
	index_forget(client);
	link->is_lost = true;
	if (!link->view_count) {
		link_close(link);
		return;
	}
	link->next = client->lost_links;
	client->lost_links = link;
}

void link_release(struct link *link)
{
	struct link **at = &link->client->lost_links;

	if (--link->view_count || !link->is_lost)
		return;
	while (*at && *at != link)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = link->next;
	link_close(link);
}

void link_close_all(struct kv_client *client)
{
	link_drop(client);
	while (client->lost_links) {
		struct link *link = client->lost_links;

		client->lost_links = link->next;
		link_close(link);
	}
}

/* ------------------------------------------------------------------------------------------
 * Greeting
 */

/* What a failure of the fabric means to the caller. */
static int from_fabric(enum rmr_status status)
{
	switch (status) {
	case RMR_OK:
		return KV_OK;
	case RMR_NO_MEMORY:
		return KV_INTERNAL;
	case RMR_PROTOCOL:
		return KV_PROTOCOL;
	case RMR_INVALID:
		return KV_INVALID;
	case RMR_DENIED:
		return KV_DENIED;
	case RMR_REFUSED:
		return strstr(error_chain(), KV_TOO_MANY_CLIENTS) ? KV_BUSY : KV_DISCONNECTED;
	default:
		return KV_DISCONNECTED;
	}
}

static enum rmr_status send_greeting(struct link *link, const void *greeting, size_t length)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_UNSIGNALED,
				.local = link->slots,
				.length = length,
				.region = link->slots_region};
	int posted;

	memcpy(work.local, greeting, length);
	posted = rmr_post(link->conn, &work, 1);
	if (posted == 1)
		return RMR_OK;
	return posted < 0 ? (enum rmr_status)posted : RMR_DISCONNECTED;
}

/* The server's next greeting; its op in *op. */
static enum rmr_status next_greeting(struct link *link, void *greeting, size_t room, int *op,
				     uint64_t deadline_ns)
{
	struct rmr_completion completion;

	do {
		if (rmr_wait(link->queue, &completion, 1, clock_remaining_ms(deadline_ns)) != 1)
			continue;
		if (completion.op == RMR_OP_DISCONNECT)
			return error_set(RMR_DISCONNECTED, "the server closed the connection");
		if (completion.op != RMR_OP_RECV || completion.status != RMR_OK)
			continue;
		*op = kv_decode_greeting(completion.data, completion.length, greeting, room);
		rmr_recv_release(link->queue, completion.data);
		if (!*op)
			return error_set(RMR_PROTOCOL, "the server's greeting makes no sense");
		return RMR_OK;
	} while (!clock_passed(deadline_ns));
	return error_set(RMR_TIMEOUT, "the server did not answer the greeting in time");
}

/* Waits for this greeting. KV_OK, or what a refusal, or something else, means. */
static int expect(struct link *link, void *greeting, size_t room, int wanted, uint64_t deadline_ns)
{
	enum rmr_status status;
	int op = 0;

	status = next_greeting(link, greeting, room, &op, deadline_ns);
	if (status != RMR_OK)
		return from_fabric(status);
	if (op == KV_OP_REFUSE) {
		struct kv_refuse *refuse = greeting;

		error_set(RMR_REFUSED, "the server refuses: %s", refuse->reason);
		return refuse->status < 0 ? refuse->status : KV_DENIED;
	}
	if (op != wanted) {
		error_set(RMR_PROTOCOL, "the server greets with %s", kv_op_name((unsigned)op));
		return KV_PROTOCOL;
	}
	return KV_OK;
}

/* The next session of this client. */
static enum rmr_status name_ourselves(struct kv_client *client, struct kv_hello *hello)
{
	enum rmr_status status = RMR_OK;

	static_assert(sizeof(client->id) == KV_NONCE_SIZE, "drawn like a nonce");
	if (client->id_pid != getpid()) {
		status = kv_make_nonce(client->id);
		client->id_pid = status == RMR_OK ? getpid() : 0;
	}
	memcpy(hello->client_id, client->id, sizeof(hello->client_id));
	hello->session = ++client->session_number;
	return status;
}

static int greet(struct link *link, uint64_t deadline_ns)
{
	struct kv_client *client = link->client;
	struct kv_hello hello = {.op = KV_OP_HELLO, .window = client->window};
	struct kv_proof proof = {.op = KV_OP_PROOF};
	_Alignas(8) uint8_t bytes[KV_MAX_GREETING];
	struct kv_challenge challenge;
	enum rmr_status status;
	int result;

	/* Before HELLO leaves: the server answers it. */
	link->alive_ticks = clock_ticks();
	status = kv_make_nonce(hello.nonce);
	if (status == RMR_OK)
		status = name_ourselves(client, &hello);
	if (status == RMR_OK)
		status = send_greeting(link, &hello, sizeof(hello));
	if (status != RMR_OK)
		return from_fabric(status);
	result = expect(link, bytes, sizeof(bytes), KV_OP_CHALLENGE, deadline_ns);
	if (result != KV_OK)
		return result;
	memcpy(&challenge, bytes, sizeof(challenge));
	if (challenge.needs_proof && !client->secret.length) {
		error_set(RMR_DENIED,
			  "the server wants a key, and none was given: set key_file, or "
			  "REMORA_KEY_FILE in the environment");
		return KV_DENIED;
	}
	if (!challenge.needs_proof && client->secret.length) {
		error_set(RMR_DENIED, "a key was given, but this server has none: it cannot prove "
				      "that it is the right one");
		return KV_DENIED;
	}
	if (challenge.needs_proof &&
	    !kv_prove(&client->secret, KV_CLIENT_PROVES, hello.nonce, challenge.nonce, proof.proof))
		return from_fabric(RMR_SYSTEM);
	status = send_greeting(link, &proof, sizeof(proof));
	if (status != RMR_OK)
		return from_fabric(status);
	client->has_proved = true;
	result = expect(link, bytes, sizeof(bytes), KV_OP_WELCOME, deadline_ns);
	if (result != KV_OK)
		return result;
	memcpy(&link->welcome, bytes, sizeof(link->welcome));
	if (challenge.needs_proof &&
	    !kv_proof_is_right(&client->secret, KV_SERVER_PROVES, hello.nonce, challenge.nonce,
			       link->welcome.proof)) {
		error_set(RMR_DENIED, "the server does not know the key");
		return KV_DENIED;
	}
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * What the server lets us reach
 */

static enum rmr_status open_remotes(struct link *link)
{
	const struct kv_welcome *welcome = &link->welcome;
	enum rmr_status status;
	const void *memory;

	if (welcome->window < 1 || welcome->eager_limit < KV_MIN_EAGER)
		return error_set(RMR_PROTOCOL, "the server's limits make no sense");
	if (welcome->capabilities & KV_CAN_READ) {
		status = rmr_remote_open(link->conn, &welcome->arena, &link->arena);
		if (status != RMR_OK)
			return error_context(status, "the store's memory");
		link->arena_length = rmr_remote_length(link->arena);
		memory = rmr_remote_pointer(link->arena);
		if (memory) {
			status = reader_init(&link->reader, memory, link->arena_length);
			if (status != RMR_OK)
				return status;
			link->is_mapped = true;
		}
	}
	if (welcome->capabilities & KV_CAN_COUNT) {
		status = rmr_remote_open(link->conn, &welcome->cells, &link->cells);
		if (status != RMR_OK)
			return error_context(status, "the counters' memory");
	}
	return RMR_OK;
}

static size_t slot_size(const struct link *link)
{
	return (link->max_send + 63) & ~(size_t)63;
}

/* Shared, not private: a fork does not copy pages that an adapter writes to. */
static enum rmr_status map_slots(struct link *link, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return error_errno(RMR_NO_MEMORY, errno, "cannot map %zu bytes for calls", size);
	link->slots = memory;
	link->slots_size = size;
	return RMR_OK;
}

/* Makes the memory of the slots. Calls use it once the link is taken into use: until then they may
 * have another link (link_seek_better). */
static enum rmr_status open_slots(struct link *link)
{
	struct rmr_conn_info info;
	enum rmr_status status;

	rmr_conn_get_info(link->conn, &info);
	if (info.max_send < KV_REQUEST_EXTRA + KV_MIN_EAGER)
		return error_set(RMR_PROTOCOL, "it takes messages of %zu bytes only",
				 info.max_send);
	link->max_send = MIN(info.max_send, MAX_SLOT);
	link->max_inline = rmr_device_info(link->device)->max_inline;
	status = map_slots(link, slot_size(link) * link->client->window);
	if (status != RMR_OK)
		return status;
	return rmr_region_open(link->device, link->slots, link->slots_size, 0, &link->slots_region);
}

static void set_limits(struct link *link)
{
	const kv_client_options_t *options = &link->client->options;
	size_t limit = MIN(link->max_send - KV_REQUEST_EXTRA, link->welcome.eager_limit);

	/* Keys must fit whatever the caller prefers. */
	if (options->eager_limit)
		limit = MIN(limit, options->eager_limit);
	link->eager_limit = limit;
	link->reply_room = KV_MIN_REPLY - sizeof(struct kv_reply);
	/* Hardware has to be told about every page. */
	link->registers_freely = !link->is_mapped &&
				 !(rmr_device_info(link->device)->capabilities & RMR_CAP_OFFLOAD);
	link->next_id = 1;
	link->cells_epoch = link->welcome.cells_epoch;
	link->clock_ahead_ms = INT64_MAX;
}

static enum rmr_status open_queue(struct link *link, const struct target *target,
				  uint64_t deadline_ns)
{
	struct kv_introduction introduction = {KV_PROTOCOL_MAGIC, KV_PROTOCOL_VERSION, 0};
	uint32_t window = link->client->window;
	struct rmr_queue_options queue_options = {
		.recv_slots = window + 8,
		.recv_size = (KV_MIN_REPLY + 63) & ~63u,
		.spin_us = LINK_SPIN_US,
		.never_woken = true,
	};
	/* The store, its cells and a landing buffer; the store may lie in huge pages. */
	static const struct rmr_grant_limits grants = {
		.arenas = 16, .bytes = (uint64_t)1 << 46, .huge = true};
	struct rmr_conn_options conn_options = {
		.depth = 2 * window + SPARE_DEPTH,
		.private_data = &introduction,
		.private_length = sizeof(introduction),
		.grants = &grants,
	};
	const struct rmr_device_info *info;
	enum rmr_status status;

	status = device_take(target->device, &link->device);
	if (status != RMR_OK)
		return status;
	info = rmr_device_info(link->device);
	if (strstr(info->name, "verbs"))
		queue_options.spin_us = VERBS_SPIN_US;
	queue_options.recv_slots = MIN(queue_options.recv_slots, info->max_slots);
	conn_options.depth = MIN(conn_options.depth, info->max_depth);
	status = rmr_queue_open(link->device, &queue_options, &link->queue);
	if (status != RMR_OK)
		return status;
	return rmr_connect(link->queue, target->address, clock_remaining_ms(deadline_ns),
			   &conn_options, &link->conn);
}

/* *is_final: the server itself has refused us, which it would by any other path. */
static int try_target(struct kv_client *client, const struct target *target, uint64_t deadline_ns,
		      struct link **result, bool *is_final)
{
	struct link *link = calloc(1, sizeof(*link));
	enum rmr_status status;
	int outcome;

	if (!link) {
		error_set(RMR_NO_MEMORY, "a connection");
		return KV_INTERNAL;
	}
	link->client = client;
	status = open_queue(link, target, deadline_ns);
	if (status == RMR_OK)
		status = open_slots(link);
	if (status != RMR_OK) {
		outcome = from_fabric(status);
		*is_final = outcome == KV_BUSY;
		goto close_link;
	}
	outcome = greet(link, deadline_ns);
	if (outcome != KV_OK) {
		*is_final = outcome == KV_DENIED || outcome == KV_BUSY;
		goto close_link;
	}
	status = open_remotes(link);
	if (status != RMR_OK) {
		/* Mostly because it is lost already. */
		outcome = status == RMR_PROTOCOL ? KV_PROTOCOL : KV_DISCONNECTED;
		goto close_link;
	}
	set_limits(link);
	*result = link;
	return KV_OK;
close_link:
	link_close(link);
	return outcome;
}

/* ------------------------------------------------------------------------------------------
 * Connecting
 */

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
							 const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
}

/* Whether a path behind this one can be tried. */
static bool has_more(const struct target_list *list, int number)
{
	while (++number < list->count)
		if (!list->targets[number].reason[0])
			return true;
	return false;
}

/* A path may take half of the time that is left, the last one all of it: one that hangs does not
 * keep the others from being tried. */
static uint64_t share_of(uint64_t deadline_ns, bool is_last)
{
	uint64_t now = clock_now_ns();

	if (is_last || deadline_ns == CLOCK_NEVER || deadline_ns <= now)
		return deadline_ns;
	return now + (deadline_ns - now) / 2;
}

/* When to try the paths before the present one again, if there are any. */
static void plan_better(struct kv_client *client)
{
	client->better_ns = CLOCK_NEVER;
	for (int i = 0; i < client->target; i++)
		if (!client->targets.targets[i].reason[0])
			client->better_ns = clock_deadline_ns((int)client->better_wait_ms);
}

static void take_into_use(struct kv_client *client, struct link *link)
{
	client->link = link;
	link->generation = ++client->generation;
	link->opened_ns = clock_now_ns();
	client->was_connected = true;
	for (unsigned i = 0; i < client->window; i++)
		client->calls[i].slot = link->slots + i * slot_size(link);
	life_begin(client);
	if (client->instance != link->welcome.instance) {
		client->instance = link->welcome.instance;
		locations_clear(&client->locations);
	}
	locations_clear_cells(&client->locations);
}

int link_open(struct kv_client *client, uint64_t deadline_ns)
{
	char reasons[CLIENT_ERROR_SIZE] = "";
	int status = KV_DISCONNECTED;
	struct link *link = NULL;
	bool is_final = false;
	int i;

	for (i = 0; i < client->targets.count; i++) {
		const struct target *target = &client->targets.targets[i];
		const char *reason = target->reason;

		if (!*reason) {
			error_clear();
			status = try_target(client, target,
					    share_of(deadline_ns, !has_more(&client->targets, i)),
					    &link, &is_final);
			if (status == KV_OK)
				break;
			reason = error_chain();
		}
		/* Of what is not here the first words will do: kv-doctor knows the rest. */
		append(reasons, sizeof(reasons), "%s%s: %.*s", *reasons ? "; " : "", target->device,
		       (int)(*target->reason ? strcspn(reason, ";") : strlen(reason)), reason);
		if (is_final || clock_passed(deadline_ns))
			break;
	}
	if (!link) {
		if (client->targets.count == 0)
			append(reasons, sizeof(reasons), "no adapter is there for this mode");
		return client_fail(client, status, "%s", reasons);
	}
	snprintf(client->transport, sizeof(client->transport), "%s%s%s%s",
		 client->targets.targets[i].device, *reasons ? " (" : "", reasons,
		 *reasons ? ")" : "");
	client->target = i;
	client->better_wait_ms = MIN_BETTER_MS;
	plan_better(client);
	take_into_use(client, link);
	return KV_OK;
}

void link_seek_better(struct kv_client *client)
{
	struct link *found = NULL;
	bool is_final, is_ended = false;
	int at = 0;

	/* Nothing may hang on the present link: it is closed when a better one is there. Nor is
	 * this the time within an operation of several calls, which has a deadline of its own. */
	if (clock_quick_ns() < client->better_ns || client->deadline_ns ||
	    client->calls_under_way || client->async_under_way || client->turning ||
	    client->leftover_count || !client->link || client->link->is_lost ||
	    client->link->callers_region || client->link->view_count)
		return;
	for (int i = 0; i < client->target && !found && !is_ended; i++) {
		const struct target *target = &client->targets.targets[i];
		int status;

		if (*target->reason)
			continue;
		error_clear();
		client->has_proved = false;
		status = try_target(client, target, clock_deadline_ns(BETTER_TRY_MS), &found,
				    &is_final);
		if (status == KV_OK)
			at = i;
		/* A proof that is looked at late still ends the present session, and what is sent
		 * there would have no answer: so the client connects again. */
		is_ended = status != KV_OK && status != KV_DENIED && client->has_proved;
	}
	error_clear();
	if (is_ended)
		link_lose(client->link, "another path was too slow to take its place");
	/* At the same name by another path another server may listen. */
	if (found && found->welcome.instance != client->instance) {
		link_close(found);
		found = NULL;
	}
	if (!found) {
		client->better_wait_ms = MIN(2 * client->better_wait_ms, MAX_BETTER_MS);
		plan_better(client);
		return;
	}
	link_drop(client);
	client->target = at;
	snprintf(client->transport, sizeof(client->transport), "%s",
		 client->targets.targets[at].device);
	client->better_wait_ms = MIN_BETTER_MS;
	plan_better(client);
	take_into_use(client, found);
}
