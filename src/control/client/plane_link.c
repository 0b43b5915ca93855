/*
 * The data plane of a client: registers, connects a link by the first transport that works, and
 * tells the server of its buffers. What does not work is remembered in words, and tried again after
 * a while; until then values travel inside messages.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "control/client/internal.h"

#define KINDS	     3
#define MAX_ENTRIES  32
#define DEVICE_NAME  96
#define ADDRESS_MOST 1024u
#define RETRY_NS     UINT64_C(5000000000)
#define CONNECT_MS   2000
#define EVENTS	     8
#define LINK_DEPTH   (2 * PLANE_MAX_BUFFERS)
#define RECV_SIZE    2048u
#define HEARTBEATS   3u /* in the time after which we would be forgotten */

/* In the order in which they are tried. */
static const char *const kind_names[KINDS] = {"shm", "verbs", "tcp"};

/* What there is to connect by. */
struct devices {
	char names[RMR_DOMAINS_MAX * KINDS][DEVICE_NAME];
	int count;
};

/* What the server has answered. */
struct registration {
	char addresses[KINDS][ADDRESS_MOST]; /* "": not by this kind */
	bool is_right;
	struct control_plane *plane;
};

/* ------------------------------------------------------------------------------------------
 * Devices
 */

static bool is_of_kind(const char *name, const char *kind)
{
	if (strncmp(name, "fault:", 6) == 0)
		name += 6;
	return strncmp(name, kind, strlen(kind)) == 0;
}

static void add_device(struct devices *devices, const char *name, size_t length)
{
	if (devices->count < RMR_DOMAINS_MAX * KINDS && length < DEVICE_NAME)
		snprintf(devices->names[devices->count++], DEVICE_NAME, "%.*s", (int)length, name);
}

/* From a list with commas. A word that is no device is an option of the one before it. */
static void split_devices(const char *list, struct devices *devices)
{
	while (*list) {
		size_t length = strcspn(list, ",");
		bool is_device = false;

		for (int i = 0; i < KINDS; i++)
			is_device |= is_of_kind(list, kind_names[i]);
		if (is_device) {
			add_device(devices, list, length);
		} else if (devices->count) {
			char *last = devices->names[devices->count - 1];
			size_t used = strlen(last);

			snprintf(last + used, DEVICE_NAME - used, ",%.*s", (int)length, list);
		}
		list += length + (list[length] == ',');
	}
}

static void find_devices(const kv_control_t *control, struct devices *devices)
{
	struct rmr_device_entry entries[MAX_ENTRIES];
	size_t count;

	devices->count = 0;
	if (control->options.devices) {
		split_devices(control->options.devices, devices);
		return;
	}
	add_device(devices, "shm", 3);
	count = rmr_device_list(entries, MAX_ENTRIES);
	for (size_t i = 0; i < count && i < MAX_ENTRIES; i++) {
		if (entries[i].usable && is_of_kind(entries[i].name, "verbs"))
			add_device(devices, entries[i].name, strlen(entries[i].name));
	}
	add_device(devices, "tcp", 3);
}

/* ------------------------------------------------------------------------------------------
 * Registering
 */

static void keep_address(struct registration *registration, const ProtobufCBinaryData *address)
{
	for (int i = 0; i < KINDS; i++) {
		size_t length = strlen(kind_names[i]);

		if (address->len > length + 1 && address->len - length <= ADDRESS_MOST &&
		    memcmp(address->data, kind_names[i], length) == 0 &&
		    address->data[length] == ':')
			snprintf(registration->addresses[i], ADDRESS_MOST, "%.*s",
				 (int)(address->len - length - 1),
				 (const char *)address->data + length + 1);
	}
}

static bool take_registration(void *context, const uint8_t *bytes, size_t length)
{
	struct registration *registration = context;
	struct control_plane *plane = registration->plane;
	KvCache__RegisterClientResponse *response =
		kv_cache__register_client_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	if (response->link_token.len == PLANE_TOKEN_SIZE) {
		memcpy(plane->token, response->link_token.data, PLANE_TOKEN_SIZE);
		plane->has_token = registration->is_right = true;
	}
	for (size_t i = 0; i < response->n_server_domain_addresses; i++)
		keep_address(registration, &response->server_domain_addresses[i]);
	plane->expires_ns = response->expires_after_ms * 1000000u;
	if (response->inline_limit)
		plane->inline_limit = response->inline_limit;
	if (response->max_message_size)
		plane->max_message = response->max_message_size;
	kv_cache__register_client_response__free_unpacked(response, NULL);
	return true;
}

static int register_once(kv_control_t *control, struct devices *devices,
			 struct registration *registration, uint64_t deadline_ns)
{
	KvCache__RegisterClientRequest request = KV_CACHE__REGISTER_CLIENT_REQUEST__INIT;
	ProtobufCBinaryData names[RMR_DOMAINS_MAX * KINDS];
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/RegisterClient",
		.request = &request.base,
		.take = take_registration,
		.context = registration,
		.deadline_ns = deadline_ns,
	};
	int status;

	registration->plane = &control->plane;
	for (int i = 0; i < devices->count; i++)
		names[i] = (ProtobufCBinaryData){strlen(devices->names[i]),
						 (uint8_t *)devices->names[i]};
	request.client_id = control->plane.id;
	request.domain_addresses = names;
	request.n_domain_addresses = (size_t)devices->count;
	request.receive_buffer_size = control->options.buffer_size;
	if (control->plane.has_token)
		request.link_token = (ProtobufCBinaryData){PLANE_TOKEN_SIZE, control->plane.token};
	status = control_ask(control, &ask);
	if (status == KV_OK && !registration->is_right)
		return control_error(control, KV_PROTOCOL, "RegisterClient gave no token");
	control->plane.named_ns = clock_now_ns();
	return status;
}

/* Another client may have the number, or an earlier link of ours whose token was lost with its
 * answer. A number that we made up ourselves is made up anew. */
static int register_client(kv_control_t *control, struct devices *devices,
			   struct registration *registration, uint64_t deadline_ns)
{
	int status = register_once(control, devices, registration, deadline_ns);

	if (status != KV_EXISTS || control->options.client_id)
		return status;
	status = control_make_id(control);
	if (status != KV_OK)
		return status;
	control->plane.has_token = false;
	return register_once(control, devices, registration, deadline_ns);
}

/* ------------------------------------------------------------------------------------------
 * Linking
 */

/* "*:PORT" is the host that we have reached the server by. */
static void complete_address(const kv_control_t *control, const char *told,
			     char address[ADDRESS_MOST])
{
	bool is_v6 = strchr(control->url.host, ':') != NULL;

	if (told[0] == '*' && told[1] == ':')
		snprintf(address, ADDRESS_MOST, is_v6 ? "[%s]%s" : "%s%s", control->url.host,
			 told + 1);
	else
		snprintf(address, ADDRESS_MOST, "%s", told);
}

static int remaining_ms(uint64_t deadline_ns)
{
	int left = clock_remaining_ms(deadline_ns);

	return left < CONNECT_MS ? left : CONNECT_MS;
}

static enum rmr_status link_by(kv_control_t *control, const char *kind, const char *told,
			       const struct devices *devices, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	struct rmr_domains_options options = {.queue.recv_size = RECV_SIZE};
	struct rmr_link_options link = {.depth = LINK_DEPTH,
					.private_data = plane->token,
					.private_length = PLANE_TOKEN_SIZE};
	const char *names[RMR_DOMAINS_MAX];
	char address[ADDRESS_MOST];
	enum rmr_status status;
	int count = 0;

	for (int i = 0; i < devices->count && count < RMR_DOMAINS_MAX; i++) {
		if (is_of_kind(devices->names[i], kind))
			names[count++] = devices->names[i];
	}
	complete_address(control, told, address);
	status = rmr_domains_open(names, count, &options, &plane->domains);
	if (status == RMR_OK)
		status = rmr_domains_region_open(plane->domains, rmr_arena_base(plane->letters),
						 rmr_arena_size(plane->letters), 0,
						 &plane->letters_region);
	if (status == RMR_OK)
		status = rmr_link_connect(plane->domains, address, remaining_ms(deadline_ns), &link,
					  &plane->link);
	if (status != RMR_OK)
		return status;
	plane->is_lost = false;
	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		if (plane->buffers[i].arena &&
		    !plane_memory_announce(control, &plane->buffers[i], deadline_ns))
			return error_status() == RMR_OK ? RMR_DISCONNECTED : error_status();
	}
	return RMR_OK;
}

/* Closes the link, and ends all access to our memory. Regions go first, for their end waits for
 * whoever is in them (by shm, where the server itself writes), but only over links that are open.
 */
static void unlink_all(kv_control_t *control)
{
	struct control_plane *plane = &control->plane;

	plane_memory_forget_regions(control);
	rmr_link_close(plane->link);
	plane->link = NULL;
	rmr_domains_region_close(plane->letters_region);
	plane->letters_region = NULL;
	rmr_domains_close(plane->domains);
	plane->domains = NULL;
	plane->is_lost = false;
}

void plane_close(kv_control_t *control)
{
	unlink_all(control);
	snprintf(control->plane.transport, sizeof(control->plane.transport), "inline");
}

static void add_reason(char *reasons, size_t size, const char *kind, const char *text)
{
	size_t used = strlen(reasons);

	snprintf(reasons + used, size - used, "%s%s: %s", used ? "; " : "", kind, text);
}

static bool has_kind(const struct devices *devices, const char *kind)
{
	for (int i = 0; i < devices->count; i++) {
		if (is_of_kind(devices->names[i], kind))
			return true;
	}
	return false;
}

/* By the first that works. */
static void link_any(kv_control_t *control, const struct devices *devices,
		     const struct registration *registration, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	char reasons[CONTROL_REASON - 16] = "";

	for (int i = 0; i < KINDS; i++) {
		const char *kind = kind_names[i];

		if (!has_kind(devices, kind))
			continue;
		if (!registration->addresses[i][0]) {
			add_reason(reasons, sizeof(reasons), kind, "the server has none");
			continue;
		}
		error_clear();
		if (link_by(control, kind, registration->addresses[i], devices, deadline_ns) ==
		    RMR_OK) {
			snprintf(plane->transport, sizeof(plane->transport),
				 reasons[0] ? "%s (%s)" : "%s%s", kind, reasons);
			return;
		}
		add_reason(reasons, sizeof(reasons), kind, error_chain());
		unlink_all(control);
	}
	snprintf(plane->transport, sizeof(plane->transport), "inline (%s)", reasons);
}

void plane_open(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	struct registration registration = {0};
	struct devices devices;
	int status;

	unlink_all(control);
	find_devices(control, &devices);
	if (!plane->letters && rmr_arena_open(PLANE_MAX_BUFFERS * sizeof(struct plane_message), 0,
					      &plane->letters) != RMR_OK) {
		snprintf(plane->transport, sizeof(plane->transport), "inline (%s)", error_chain());
		return;
	}
	status = register_client(control, &devices, &registration, deadline_ns);
	if (status == KV_OK)
		link_any(control, &devices, &registration, deadline_ns);
	else
		snprintf(plane->transport, sizeof(plane->transport), "inline (%.400s)",
			 control->error);
	if (!plane->link) {
		/* If nobody was there to ask, then at once when somebody is. */
		if (status != KV_DISCONNECTED)
			plane->retry_ns = clock_now_ns() + RETRY_NS;
		log_debug("control: %s", plane->transport);
	}
}

bool plane_is_ready(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;

	if (control->options.no_data_plane)
		return false;
	plane_poll(control);
	if (plane->link && !plane->is_lost)
		return true;
	if (!plane->link && clock_quick_ns() < plane->retry_ns)
		return false;
	plane_open(control, deadline_ns);
	return plane->link && !plane->is_lost;
}

/* ------------------------------------------------------------------------------------------
 * Events
 */

void plane_poll(kv_control_t *control)
{
	struct control_plane *plane = &control->plane;
	struct rmr_link_event events[EVENTS];
	int count;

	if (!plane->link)
		return;
	count = rmr_domains_poll(plane->domains, events, EVENTS);
	for (int i = 0; i < count; i++) {
		if (events[i].op == RMR_OP_RECV) {
			plane_memory_take_message(control, events[i].data, events[i].length);
			rmr_domains_recv_release(plane->domains, &events[i]);
		} else if (events[i].op == RMR_OP_DISCONNECT) {
			plane->is_lost = true;
			plane->retry_ns = 0; /* at once */
		}
	}
}

bool plane_await(kv_control_t *control, const uint64_t *key, bool is_there, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	struct rmr_link_event event;

	while ((*key != 0) != is_there) {
		if (plane->is_lost) {
			error_set(RMR_DISCONNECTED, "the server has closed the link");
			return false;
		}
		if (clock_passed(deadline_ns)) {
			error_set(RMR_TIMEOUT, "the server did not take our memory in time");
			return false;
		}
		if (rmr_domains_wait(plane->domains, &event, 1, clock_remaining_ms(deadline_ns)) <
		    1)
			continue;
		if (event.op == RMR_OP_RECV) {
			plane_memory_take_message(control, event.data, event.length);
			rmr_domains_recv_release(plane->domains, &event);
		} else if (event.op == RMR_OP_DISCONNECT) {
			plane->is_lost = true;
		}
	}
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Heartbeats
 */

struct beat {
	bool is_alive, is_linked;
};

static bool take_beat(void *context, const uint8_t *bytes, size_t length)
{
	struct beat *beat = context;
	KvCache__HeartbeatResponse *response =
		kv_cache__heartbeat_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	beat->is_alive = response->alive;
	beat->is_linked = response->linked;
	kv_cache__heartbeat_response__free_unpacked(response, NULL);
	return true;
}

static int send_beat(kv_control_t *control, struct beat *beat, uint64_t deadline_ns)
{
	KvCache__HeartbeatRequest request = KV_CACHE__HEARTBEAT_REQUEST__INIT;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Heartbeat",
		.request = &request.base,
		.take = take_beat,
		.context = beat,
		.deadline_ns = deadline_ns,
	};
	int status;

	request.client_id = control->plane.id;
	status = control_ask(control, &ask);
	if (status == KV_OK)
		control->plane.named_ns = clock_now_ns();
	return status;
}

void plane_keep_up(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	struct beat beat = {0};

	if (!plane->link || clock_quick_ns() < plane->named_ns + plane->expires_ns / HEARTBEATS)
		return;
	/* The call that comes next says what is wrong, if something is. */
	if (send_beat(control, &beat, deadline_ns) == KV_OK && !beat.is_alive)
		plane->is_lost = true;
}

int kv_control_heartbeat(kv_control_t *control)
{
	struct control_plane *plane = &control->plane;
	uint64_t deadline_ns = control_deadline(control);
	struct beat beat = {0};
	int status;

	if (control->options.no_data_plane || !plane_is_ready(control, deadline_ns))
		return control_ping(control, deadline_ns, NULL);
	status = send_beat(control, &beat, deadline_ns);
	if (status == KV_OK && (!beat.is_alive || !beat.is_linked)) {
		plane->is_lost = true;
		(void)plane_is_ready(control, deadline_ns);
	}
	return status;
}
