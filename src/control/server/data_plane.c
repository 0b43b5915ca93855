/*
 * The data plane's transports: see data_plane.h, and data_plane_internal.h for the map.
 *
 * Runs in the control server's loop. A transport without links is not polled, so that a server
 * whose clients are all plain pays nothing for it: its descriptors tell when somebody comes.
 *
 * Devices are opened once more beside the server's own, for a queue belongs to one thread, and the
 * store's memory is registered with them for local use alone: no peer is ever given a key to it.
 */
#include "control/server/data_plane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "control/server/data_plane_internal.h"

/* In the order in which clients like them. */
static const char *const kind_names[PLANE_MAX_KINDS] = {"shm", "verbs", "tcp"};

#define BUSY_NS	   UINT64_C(200000)
#define CALLED_NS  UINT64_C(10000000000) /* no listener waits so long for the rest of a greeting */
#define RECV_SLOTS 64u
#define RECV_SIZE  2048u /* the longest message is a plane_message */

_Static_assert(sizeof(struct plane_message) <= RECV_SIZE, "it fits");

/* ------------------------------------------------------------------------------------------
 * Opening
 */

static void on_events(struct control_watch *watch, uint32_t events)
{
	(void)events;
	list_entry(watch, struct plane_kind, events)->has_events = true;
}

static void on_callers(struct control_watch *watch, uint32_t events)
{
	struct plane_kind *kind = list_entry(watch, struct plane_kind, callers);

	(void)events;
	kind->has_callers = true;
	kind->plane->called_ns = clock_now_ns();
}

/* "verbs:mlx5_0" is of kind "verbs", and so is "fault:verbs". */
static bool is_of_kind(const char *device, const char *kind)
{
	if (strncmp(device, "fault:", 6) == 0)
		device += 6;
	return strncmp(device, kind, strlen(kind)) == 0;
}

/* A device that the server has at two addresses, as tcp at 127.0.0.1 and ::1, is here once: the
 * data plane listens at gRPC's host. */
static int find_devices(const struct data_plane *plane, const char *kind,
			const char *names[RMR_DOMAINS_MAX])
{
	const char *name;
	int count = 0;

	for (unsigned i = 0; (name = server_device_name(plane->control->server, i)); i++) {
		bool is_new = count < RMR_DOMAINS_MAX && is_of_kind(name, kind);

		for (int other = 0; other < count && is_new; other++)
			is_new = strcmp(names[other], name) != 0;
		if (is_new)
			names[count++] = name;
	}
	return count;
}

/* The host of the gRPC listener: "HOST:PORT" without its port. */
static void find_host(const struct kv_control_server *control, char host[CONTROL_ADDRESS])
{
	const char *colon = strrchr(control->address, ':');

	snprintf(host, CONTROL_ADDRESS, "%.*s", (int)(colon - control->address), control->address);
}

static bool is_every_host(const char *host)
{
	return strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "[::]") == 0;
}

/* Where to listen: at gRPC's host and the next of the ports; shm at a random name. */
static enum rmr_status make_address(struct plane_kind *kind, char text[CONTROL_ADDRESS])
{
	struct data_plane *plane = kind->plane;
	char host[CONTROL_ADDRESS];
	uint64_t random;

	if (strcmp(kind->name, "shm") != 0) {
		find_host(plane->control, host);
		snprintf(text, CONTROL_ADDRESS, "%.200s:%u", host, plane->next_port);
		plane->next_port += plane->next_port > 0;
		return RMR_OK;
	}
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return error_set(RMR_SYSTEM, "there are no random numbers");
	snprintf(text, CONTROL_ADDRESS, "kv-control-%016" PRIx64, random);
	return RMR_OK;
}

/* What clients are told. A listener at every address of the host is reached by the address that the
 * client has reached us by, which only the client knows: "*". */
static void tell_address(struct plane_kind *kind)
{
	const char *bound = rmr_domains_listener_address(kind->listener);
	char host[CONTROL_ADDRESS];

	find_host(kind->plane->control, host);
	if (strcmp(kind->name, "tcp") == 0 && is_every_host(host) && !strchr(bound, ','))
		snprintf(kind->address, sizeof(kind->address), "tcp:*%s", strrchr(bound, ':'));
	else
		snprintf(kind->address, sizeof(kind->address), "%s:%.240s", kind->name, bound);
}

/* For the first screen. */
static void note_address(struct kv_control_server *control, const struct plane_kind *kind)
{
	size_t used = strlen(control->data_addresses);

	snprintf(control->data_addresses + used, sizeof(control->data_addresses) - used, "%s%s",
		 used ? " " : "", kind->address);
}

static enum rmr_status kind_listen(struct plane_kind *kind, int devices)
{
	struct kv_control_server *control = kind->plane->control;
	bool any_user = server_takes_any_user(control->server);
	struct rmr_domains_listener_options options = {
		.listener.any_user = any_user,
		.listener.socket_mode = any_user ? 0666 : 0,
		/* A caller grants nothing before its token was seen. */
		.grants = &(struct rmr_grant_limits){0},
	};
	char address[RMR_DOMAINS_MAX][CONTROL_ADDRESS];
	const char *addresses[RMR_DOMAINS_MAX];
	enum rmr_status status = RMR_OK;

	for (int i = 0; i < devices && status == RMR_OK; i++) {
		status = make_address(kind, address[i]);
		addresses[i] = address[i];
	}
	if (status == RMR_OK)
		status = rmr_domains_listen(kind->domains, addresses, &options, &kind->listener);
	if (status != RMR_OK)
		return status;
	tell_address(kind);
	kind->events.fd = rmr_domains_fd(kind->domains);
	kind->events.ready = on_events;
	kind->callers.fd = rmr_domains_listener_fd(kind->listener);
	kind->callers.ready = on_callers;
	if (!control_watch_add(control, &kind->events, EPOLLIN))
		return error_set(RMR_SYSTEM, "its descriptor cannot be watched");
	if (!control_watch_add(control, &kind->callers, EPOLLIN)) {
		control_watch_remove(control, &kind->events);
		return error_set(RMR_SYSTEM, "its descriptor cannot be watched");
	}
	return RMR_OK;
}

/* Legal on one that is half open, and not watched. */
static void kind_fini(struct plane_kind *kind)
{
	rmr_domains_listener_close(kind->listener);
	rmr_domains_region_close(kind->letters);
	rmr_domains_region_close(kind->arena);
	rmr_domains_close(kind->domains);
}

static enum rmr_status kind_init(struct plane_kind *kind, const char *const *names, int count)
{
	struct data_plane *plane = kind->plane;
	struct rmr_arena *arena = server_arena(plane->control->server);
	static const struct rmr_grant_limits grants = {
		.arenas = PLANE_MAX_CLIENTS * PLANE_MAX_BUFFERS, .bytes = PLANE_ALL_BYTES};
	struct rmr_domains_options options = {.device.grants = &grants,
					      .queue.recv_slots = RECV_SLOTS,
					      .queue.recv_size = RECV_SIZE};
	enum rmr_status status = rmr_domains_open(names, count, &options, &kind->domains);

	if (status == RMR_OK)
		status = rmr_domains_region_open(kind->domains, rmr_arena_base(arena),
						 rmr_arena_size(arena), 0, &kind->arena);
	if (status == RMR_OK)
		status = rmr_domains_region_open(kind->domains, rmr_arena_base(plane->letters),
						 rmr_arena_size(plane->letters), 0, &kind->letters);
	if (status == RMR_OK)
		status = kind_listen(kind, count);
	if (status == RMR_OK)
		return RMR_OK;
	kind_fini(kind);
	return status;
}

/* With all devices of its kind, or else with the first that works: an address to listen at may be
 * of one adapter alone. */
static enum rmr_status kind_open(struct data_plane *plane, struct plane_kind *kind,
				 const char *name, const char *const *devices, int count)
{
	unsigned port = plane->next_port;
	enum rmr_status status;

	*kind = (struct plane_kind){.plane = plane, .name = name};
	status = kind_init(kind, devices, count);
	for (int i = 0; status != RMR_OK && count > 1 && i < count; i++) {
		*kind = (struct plane_kind){.plane = plane, .name = name};
		plane->next_port = port;
		status = kind_init(kind, &devices[i], 1);
	}
	return status;
}

static void open_kinds(struct data_plane *plane)
{
	for (unsigned i = 0; i < PLANE_MAX_KINDS; i++) {
		struct plane_kind *kind = &plane->kinds[plane->kind_count];
		const char *names[RMR_DOMAINS_MAX];
		int count = find_devices(plane, kind_names[i], names);

		if (!count)
			continue;
		if (kind_open(plane, kind, kind_names[i], names, count) != RMR_OK) {
			log_warn("no values are pushed by %s: %s", kind_names[i], error_chain());
			continue;
		}
		log_info("pushing values by %s", kind->address);
		note_address(plane->control, kind);
		plane->kind_count++;
	}
}

enum rmr_status data_plane_open(struct kv_control_server *control, struct data_plane **out)
{
	struct data_plane *plane = calloc(1, sizeof(*plane));
	enum rmr_status status;

	if (!plane)
		return error_set(RMR_NO_MEMORY, "no memory for the data plane");
	plane->control = control;
	plane->next_port = control->options.data_port;
	plane->held_most = rmr_arena_size(server_arena(control->server)) / PLANE_HELD_PART;
	list_init(&plane->clients);
	list_init(&plane->ending);
	status = error_set(RMR_NO_MEMORY, "no memory for the data plane");
	if (!plane_clients_open(plane) || !plane_transfers_open(plane))
		goto free_tables;
	status = rmr_arena_open((size_t)PLANE_MAX_CLIENTS * PLANE_MAX_BUFFERS * PLANE_LETTERS *
					PLANE_SHORT,
				0, &plane->letters);
	if (status != RMR_OK)
		goto free_tables;
	open_kinds(plane);
	if (!plane->kind_count) {
		status = error_set(RMR_NO_DEVICE, "no transport of the server can push values");
		goto close_letters;
	}
	*out = plane;
	return RMR_OK;

close_letters:
	rmr_arena_close(plane->letters);
free_tables:
	free(plane->all_clients);
	free(plane->all_transfers);
	free(plane);
	return status;
}

void data_plane_close(struct data_plane *plane)
{
	if (!plane)
		return;
	plane_clients_close(plane);
	for (unsigned i = 0; i < plane->kind_count; i++) {
		control_watch_remove(plane->control, &plane->kinds[i].events);
		control_watch_remove(plane->control, &plane->kinds[i].callers);
		kind_fini(&plane->kinds[i]);
	}
	rmr_arena_close(plane->letters);
	free(plane->all_clients);
	free(plane->all_transfers);
	free(plane);
}

/* ------------------------------------------------------------------------------------------
 * Polling
 */

static void take_event(struct plane_kind *kind, const struct rmr_link_event *event)
{
	struct plane_client *client = rmr_link_user(event->link);

	switch (event->op) {
	case RMR_OP_RECV:
		if (client->state == PLANE_LINKED)
			plane_client_message(client, event->data, event->length);
		rmr_domains_recv_release(kind->domains, event);
		break;
	case RMR_OP_READ:
	case RMR_OP_WRITE:
		plane_transfer_done(kind->plane, event);
		break;
	case RMR_OP_DISCONNECT:
		plane_client_end(client, NULL);
		break;
	default: /* a letter that did not arrive: the end of the link follows */
		break;
	}
}

static int take_callers(struct plane_kind *kind)
{
	struct rmr_link_request *request;
	int count = 0;

	kind->has_callers = false;
	while (rmr_domains_listener_next(kind->listener, 0, &request) == RMR_OK) {
		plane_link_arrived(kind, request);
		count++;
	}
	return count;
}

static int poll_kind(struct plane_kind *kind)
{
	struct rmr_link_event events[PLANE_EVENTS];
	int count;

	kind->has_events = false;
	count = rmr_domains_poll(kind->domains, events, PLANE_EVENTS);
	for (int i = 0; i < count; i++)
		take_event(kind, &events[i]);
	return count;
}

int data_plane_poll(struct data_plane *plane)
{
	int count = 0;

	for (unsigned i = 0; i < plane->kind_count; i++) {
		struct plane_kind *kind = &plane->kinds[i];

		if (kind->has_callers)
			count += take_callers(kind);
		if (kind->links || kind->has_events)
			count += poll_kind(kind);
	}
	plane_reap(plane);
	return count;
}

bool data_plane_arm(struct data_plane *plane)
{
	for (unsigned i = 0; i < plane->kind_count; i++) {
		if (plane->kinds[i].links && rmr_domains_arm(plane->kinds[i].domains) != RMR_OK)
			return false;
	}
	return true;
}

bool data_plane_is_busy(const struct data_plane *plane)
{
	/* One that stands still is no reason to stay awake. */
	return plane->transfer_count > 0 && clock_quick_ns() < plane->moved_ns + BUSY_NS;
}

bool data_plane_needs_ticks(const struct data_plane *plane)
{
	return !list_is_empty(&plane->clients) ||
	       (plane->called_ns && clock_now_ns() < plane->called_ns + CALLED_NS);
}

void data_plane_tick(struct data_plane *plane, uint64_t now_ns)
{
	/* Callers of whom only a part came are dropped in there. */
	for (unsigned i = 0; i < plane->kind_count; i++)
		take_callers(&plane->kinds[i]);
	plane_clients_check(plane, now_ns);
	plane_reap(plane);
}

/* ------------------------------------------------------------------------------------------
 * Figures
 */

static uint64_t look(const _Atomic uint64_t *figure)
{
	/* Relaxed: ordered with nothing. */
	return atomic_load_explicit(figure, memory_order_relaxed);
}

size_t data_plane_figures(const struct data_plane *plane, char *text, size_t room)
{
	const struct plane_figures *figures = &plane->figures;
	const struct {
		const char *name;
		const _Atomic uint64_t *value;
	} rows[] = {
		{"clients", &figures->clients},		{"clients_total", &figures->registered},
		{"clients_expired", &figures->expired}, {"links", &figures->links},
		{"links_refused", &figures->refused},	{"buffers", &figures->buffers},
		{"transfers", &figures->transfers},	{"transfers_failed", &figures->failed},
		{"pushes", &figures->pushes},		{"pulls", &figures->pulls},
		{"bytes_pushed", &figures->bytes_out},	{"bytes_pulled", &figures->bytes_in},
		{"bytes_held", &figures->held},
	};
	size_t used = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		used += (size_t)snprintf(
			used < room ? text + used : NULL, used < room ? room - used : 0,
			"control.plane.%s %" PRIu64 "\n", rows[i].name, look(rows[i].value));
	return used;
}
