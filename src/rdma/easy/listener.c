/*
 * Servers: a listener on every device that its address means, started, stopped, released.
 *
 * `serving` is the whole state, and a futex: rdmaServerStop() only changes it, wakes the runtime,
 * which then watches the descriptors or not, and who waits in rdmaServerStart(). So it may be
 * called in a signal handler.
 *
 * Threads in rdmaServerStart() count themselves, and the runtime frees no listener that has some.
 * None stays: who releases sets is_releasing and then changes `serving`; who starts changes
 * `serving` and then looks at is_releasing. All four are sequentially consistent, so either it is
 * woken, or it does not go to sleep.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "rdma/address.h"
#include "rdma/easy/internal.h"

#define SHM_PORT_MIN 49152
#define SHM_TRIES    64

/* One line for each device. */
static void tell(RdmaListener *listener, const char *device, const char *text)
{
	char *grown = NULL;

	if (asprintf(&grown, "%s%s: %s\n", listener->addresses, device, text) < 0)
		return;
	free(listener->addresses);
	listener->addresses = grown;
}

static enum rmr_status open_path(RdmaListener *listener, const struct address *way)
{
	struct rmr_listener_options options = {.backlog = listener->options.backlog};
	struct path *path = &listener->paths[listener->path_count];
	enum rmr_status status;
	char name[64];

	*path = (struct path){.source.kind = SOURCE_PATH, .owner = listener};
	easy_options_name_device(&listener->options, way->device, name);
	status = lane_init(&path->lane, &listener->options);
	if (status != RMR_OK)
		return status;
	status = lane_open(&path->lane, name, &listener->options);
	if (status != RMR_OK)
		goto fini_lane;
	status = rmr_listener_open(path->lane.device, way->address, &options, &path->listener);
	if (status != RMR_OK)
		goto close_lane;
	listener->path_count++;
	return RMR_OK;

close_lane:
	lane_close(&path->lane);
fini_lane:
	lane_fini(&path->lane);
	return status;
}

/* The port at the end of an address; 0: there is none. */
static int port_of(const char *address)
{
	const char *colon = strrchr(address, ':');

	return colon ? atoi(colon + 1) : 0;
}

/* Whether a way of several that fails is the caller's mistake, and not only something that this
 * machine has not: who asks for a port that another program has must not get a part of it. */
static bool is_mistake(const struct address *way, enum rmr_status status)
{
	if (status == RMR_ADDRESS_IN_USE)
		return true;
	return strcmp(way->device, "tcp") == 0 &&
	       (status == RMR_BAD_ADDRESS || status == RMR_DENIED);
}

/* Opens the ways that are not open yet. */
static enum rmr_status open_paths(RdmaListener *listener, const struct address_list *list,
				  const struct address *opened)
{
	enum rmr_status status = RMR_OK;

	for (unsigned i = 0; i < list->count && listener->path_count < PATHS_MAX; i++) {
		const struct address *way = &list->at[i];

		if (opened && strcmp(way->device, opened->device) == 0)
			continue;
		if (way->reason[0]) {
			tell(listener, way->device, way->reason);
			continue;
		}
		status = open_path(listener, way);
		if (status == RMR_OK)
			tell(listener, way->device, way->address);
		else
			tell(listener, way->device, rmr_error_message());
		if (status != RMR_OK && (list->is_chosen || (!opened && is_mistake(way, status))))
			return status;
	}
	if (listener->path_count > 0)
		return RMR_OK;
	return error_set(status == RMR_OK ? RMR_NO_DEVICE : status, "nothing listens:\n%s",
			 listener->addresses);
}

/* Port 0: the one network device that is asked first picks it, and the others take the same. */
static enum rmr_status pick_port(RdmaListener *listener, const struct address_list *list,
				 struct address *opened)
{
	for (unsigned i = list->count; i-- > 0;) {
		const struct address *way = &list->at[i];
		enum rmr_status status;

		if (way->reason[0] || address_device_is_shm(way->device))
			continue;
		status = open_path(listener, way);
		if (status != RMR_OK)
			return status;
		*opened = *way;
		tell(listener, way->device, rmr_listener_address(listener->paths[0].listener));
		listener->port = port_of(rmr_listener_address(listener->paths[0].listener));
		return RMR_OK;
	}
	listener->port = 0;
	return RMR_OK;
}

/* Only shm: a port is part of a name, so any will do that nobody has. */
static enum rmr_status pick_name(RdmaListener *listener, const char *ip)
{
	static atomic_uint next;
	unsigned first = (unsigned)getpid() * 31u + atomic_fetch_add(&next, 1);
	struct address_list list;
	enum rmr_status status = RMR_OK;

	for (unsigned i = 0; i < SHM_TRIES; i++) {
		listener->port = SHM_PORT_MIN + (int)((first + i * 257) % (65536 - SHM_PORT_MIN));
		status = address_find(ip, listener->port, ADDRESS_LISTEN, &list);
		if (status == RMR_OK)
			status = open_paths(listener, &list, NULL);
		if (status != RMR_ADDRESS_IN_USE)
			break;
	}
	return status;
}

static enum rmr_status listen_at(RdmaListener *listener, const char *ip, int port)
{
	struct address_list list;
	struct address opened = {0};
	enum rmr_status status = address_find(ip, port, ADDRESS_LISTEN, &list);
	bool is_named = ip && strncmp(ip, "shm:", 4) == 0 && strncmp(ip, "shm://", 6) != 0;

	if (status != RMR_OK)
		return status;
	/* A port in the name goes before the one beside it. */
	if (!is_named && list.count > 0)
		port = address_device_is_shm(list.at[0].device)
			       ? atoi(list.at[0].address + strlen("rdma-"))
			       : port_of(list.at[0].address);
	listener->port = port;
	if (port == 0 && !is_named) {
		status = pick_port(listener, &list, &opened);
		if (status != RMR_OK)
			return status;
		if (!listener->port)
			return pick_name(listener, ip);
		status = address_find(ip, listener->port, ADDRESS_LISTEN, &list);
		if (status != RMR_OK)
			return status;
	}
	return open_paths(listener, &list, opened.device[0] ? &opened : NULL);
}

static void close_paths(RdmaListener *listener)
{
	for (unsigned i = 0; i < listener->path_count; i++) {
		struct path *path = &listener->paths[i];

		rmr_listener_close(path->listener);
		lane_close(&path->lane);
		lane_fini(&path->lane);
	}
	free(listener->paths);
	free(listener->addresses);
	free(listener);
}

/* The runtime knows of it from now on; unless it was stopped since we asked for it. */
static enum rmr_status enter(RdmaListener *listener)
{
	enum rmr_status status = RMR_OK;

	runtime_lock();
	if (runtime.is_stopping || !runtime.is_running)
		status = error_set(RMR_CANCELED, "the runtime is being stopped");
	else
		list_add_tail(&runtime.listeners, &listener->registry_link);
	pthread_mutex_unlock(&runtime.mutex);
	return status;
}

int rdmaServerWithOptions(RdmaListener **result, const char *ip, int port,
			  const RdmaOptions *options)
{
	RdmaListener *listener = calloc(1, sizeof(*listener));
	enum rmr_status status;

	if (!listener) {
		error_set(RMR_NO_MEMORY, "no memory for a listener");
		return easy_fail();
	}
	list_init(&listener->request_link);
	listener->paths = calloc(PATHS_MAX, sizeof(*listener->paths));
	listener->addresses = strdup("");
	status = listener->paths && listener->addresses
			 ? RMR_OK
			 : error_set(RMR_NO_MEMORY, "no memory for a listener");
	if (status == RMR_OK)
		status = easy_options_take(options, &listener->options);
	if (status == RMR_OK)
		status = runtime_need(&listener->options);
	if (status == RMR_OK)
		status = listen_at(listener, ip, port);
	if (status == RMR_OK)
		status = enter(listener);
	if (status != RMR_OK) {
		easy_fail();
		close_paths(listener);
		return RDMA_ERR;
	}
	*result = listener;
	return RDMA_OK;
}

int rdmaServer(RdmaListener **listener, const char *ip, int port)
{
	return rdmaServerWithOptions(listener, ip, port, NULL);
}

void listener_look(RdmaListener *listener)
{
	bool is_wanted = atomic_load(&listener->serving) == SERVING;

	if (atomic_load(&listener->is_releasing))
		return;
	for (unsigned i = 0; i < listener->path_count; i++) {
		struct path *path = &listener->paths[i];

		loop_watch_path(path, is_wanted && !path->is_gone);
	}
}

/* The runtime's: its connections are gone. */
void listener_free(RdmaListener *listener)
{
	struct waiter *releaser;

	for (unsigned i = 0; i < listener->path_count; i++)
		loop_remove_lane(&listener->paths[i].lane);
	pthread_mutex_lock(&runtime.mutex);
	list_remove(&listener->registry_link);
	releaser = listener->releaser;
	pthread_mutex_unlock(&runtime.mutex);
	close_paths(listener);
	if (releaser)
		waiter_complete(releaser);
	runtime_wake();
}

/* From the one state to the other. False: it was in another. */
static bool change(RdmaListener *listener, enum serving from, enum serving to)
{
	uint32_t expected = from;

	return atomic_compare_exchange_strong(&listener->serving, &expected, to);
}

/* Serves until it is stopped or released. */
static int serve(RdmaListener *listener)
{
	/* A stop that came before the start is not lost between the two. */
	do {
		if (change(listener, SERVING_STOPPED_EARLY, SERVING_NOT))
			return RDMA_OK;
		if (atomic_load(&listener->serving) == SERVING) {
			error_set(RMR_INVALID, "this listener is being served already");
			return easy_fail();
		}
	} while (!change(listener, SERVING_NOT, SERVING));
	runtime_wake();
	while (atomic_load(&listener->serving) == SERVING && !atomic_load(&listener->is_releasing))
		syscall(SYS_futex, &listener->serving, FUTEX_WAIT_PRIVATE, SERVING, NULL, NULL, 0);
	return RDMA_OK;
}

int rdmaServerStart(RdmaListener *listener)
{
	int result;

	if (runtime_is_here()) {
		error_set(RMR_INVALID, "rdmaServerStart() waits, which a callback must not; use "
				       "rdmaServerStartAsync()");
		return easy_fail();
	}
	atomic_fetch_add(&listener->starters, 1);
	result = serve(listener);
	/* From here on it may be freed. */
	atomic_fetch_sub(&listener->starters, 1);
	runtime_wake();
	return result;
}

int rdmaServerStartAsync(RdmaListener *listener)
{
	if (!change(listener, SERVING_NOT, SERVING) &&
	    !change(listener, SERVING_STOPPED_EARLY, SERVING)) {
		error_set(RMR_INVALID, "this listener is being served already");
		return easy_fail();
	}
	runtime_wake();
	return RDMA_OK;
}

int rdmaServerStop(RdmaListener *listener)
{
	int saved = errno;

	if (!change(listener, SERVING, SERVING_NOT)) {
		change(listener, SERVING_NOT, SERVING_STOPPED_EARLY);
		return RDMA_OK;
	}
	syscall(SYS_futex, &listener->serving, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
	runtime_wake();
	errno = saved;
	return RDMA_OK;
}

bool listener_begin_end(RdmaListener *listener)
{
	/* In this order: see above. */
	if (atomic_exchange(&listener->is_releasing, true))
		return false;
	rdmaServerStop(listener);
	return true;
}

void rdmaServerRelease(RdmaListener *listener)
{
	struct waiter waiter;
	bool waits = !runtime_is_here();

	if (!listener || !listener_begin_end(listener))
		return;
	waiter_init(&waiter);
	runtime_lock();
	listener->releaser = waits ? &waiter : NULL;
	list_add_tail(&runtime.releases, &listener->request_link);
	pthread_mutex_unlock(&runtime.mutex);
	runtime_wake();
	if (waits)
		waiter_sleep(&waiter);
}

int rdmaServerPort(const RdmaListener *listener)
{
	return listener->port;
}

const char *rdmaServerAddresses(const RdmaListener *listener)
{
	return listener->addresses;
}

void rdmaServerSetUserData(RdmaListener *listener, void *data)
{
	listener->user_data = data;
}

void *rdmaServerUserData(const RdmaListener *listener)
{
	return listener->user_data;
}
