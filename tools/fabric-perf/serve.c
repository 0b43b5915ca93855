/*
 * `fabric-perf serve`: listens, and serves one client after the other.
 *
 * SIGINT, SIGTERM and SIGHUP end it cleanly. The handler only does what handlers may: it sets a
 * flag, makes an eventfd readable (which wakes the wait for callers), and wakes the queue of the
 * client that is being served.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "guest.h"
#include "perf.h"

static volatile sig_atomic_t stopping;
static int stop_fd = -1;
/* Written by the one thread there is, read by the handler that interrupts it. */
static struct rmr_queue *_Atomic served_queue;

static void on_signal(int number)
{
	struct rmr_queue *queue = atomic_load(&served_queue);
	int saved_errno = errno;
	uint64_t one = 1;

	(void)number;
	stopping = 1;
	if (write(stop_fd, &one, sizeof(one)) < 0) {
		/* Only if the counter is at its end: then it is readable anyway. */
	}
	if (queue)
		rmr_queue_wake(queue);
	errno = saved_errno;
}

static enum rmr_status catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "eventfd");
	if (sigaction(SIGINT, &action, NULL) || sigaction(SIGTERM, &action, NULL) ||
	    sigaction(SIGHUP, &action, NULL))
		return error_errno(RMR_SYSTEM, errno, "sigaction");
	return RMR_OK;
}

/* Waits for a caller or for a signal. RMR_AGAIN: look again whether to stop. */
static enum rmr_status next_caller(struct rmr_listener *listener, struct rmr_request **request)
{
	struct pollfd fds[] = {{.fd = rmr_listener_fd(listener), .events = POLLIN},
			       {.fd = stop_fd, .events = POLLIN}};
	enum rmr_status status;

	if (poll(fds, 2, -1) < 0 && errno != EINTR)
		return error_errno(RMR_SYSTEM, errno, "poll");
	if (stopping)
		return RMR_AGAIN;
	status = rmr_listener_next(listener, 0, request);
	return status == RMR_TIMEOUT ? RMR_AGAIN : status;
}

static void serve_guest(struct rmr_device *device, struct rmr_request *request, bool quiet)
{
	char peer[128];
	struct guest guest;
	enum rmr_status status;

	snprintf(peer, sizeof(peer), "%s", rmr_request_peer(request));
	status = guest_open(&guest, device, request);
	if (status == RMR_OK) {
		if (!quiet)
			fprintf(stderr, "fabric-perf: serving %s\n", peer);
		atomic_store(&served_queue, guest.queue);
		status = guest_serve(&guest, &stopping);
		atomic_store(&served_queue, NULL);
	}
	if (status != RMR_OK)
		fprintf(stderr, "fabric-perf: %s: %s\n", peer, rmr_error_message());
	else if (!quiet)
		fprintf(stderr, "fabric-perf: %s has left\n", peer);
	guest_close(&guest);
}

static enum rmr_status announce(const struct rmr_listener *listener, int address_fd)
{
	const char *address = rmr_listener_address(listener);
	size_t length = strlen(address) + 1;

	if (address_fd < 0) {
		printf("%s\n", address);
		fflush(stdout);
		return RMR_OK;
	}
	if (write(address_fd, address, length) != (ssize_t)length)
		return error_errno(RMR_SYSTEM, errno, "telling the parent where to connect");
	close(address_fd);
	return RMR_OK;
}

static enum rmr_status serve_callers(const struct perf_config *config, struct rmr_device *device,
				     struct rmr_listener *listener, bool quiet)
{
	while (!stopping) {
		struct rmr_request *request;
		enum rmr_status status = next_caller(listener, &request);

		if (status == RMR_AGAIN)
			continue;
		if (status != RMR_OK)
			return status;
		serve_guest(device, request, quiet);
		if (config->once)
			break;
	}
	return RMR_OK;
}

enum rmr_status perf_serve(const struct perf_config *config, int address_fd)
{
	const char *address = config->address;
	struct rmr_listener *listener = NULL;
	struct rmr_device *device = NULL;
	enum rmr_status status;

	if (!address)
		address = strstr(config->device, "shm") ? "fabric-perf" : "*:7471";
	status = perf_pin(config->cpu);
	if (status == RMR_OK)
		status = catch_signals();
	if (status == RMR_OK)
		status = rmr_device_open(config->device, NULL, &device);
	if (status == RMR_OK)
		status = rmr_listener_open(device, address, NULL, &listener);
	if (status == RMR_OK)
		status = announce(listener, address_fd);
	if (status == RMR_OK)
		status = serve_callers(config, device, listener, address_fd >= 0);
	rmr_listener_close(listener);
	rmr_device_close(device);
	return status;
}
