/*
 * One host of a link over several adapters (<remora/domains.h>), for two_hosts_test.py.
 *
 *	lab_link serve DEVICES ADDRESSES		serves links until it is killed
 *	lab_link call DEVICES ADDRESSES [MS]		moves bytes both ways; with MS, that is
 *							dead_after_ms, stays until it ends
 *
 * DEVICES are names with '+' between them, ADDRESSES are what rmr_link_connect takes. Both say what
 * they see, a line for each thing:
 *
 *	listening at 10.77.0.1:40001,10.78.0.1:40002
 *	lane 1: device 0, 1048576 bytes			for each connection of the caller's link
 *	right						all bytes came back as they were
 *	lost after 2012 ms: disconnected ...		the caller only
 *	closed						the caller, at its end
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <remora/domains.h>

#include "base/clock.h"

#define TRANSFER    ((size_t)1 << 20) /* four stripes */
#define MEMORY	    (2 * TRANSFER + sizeof(struct rmr_link_descriptor))
#define PATIENCE_MS 20000

struct host {
	struct rmr_domains *domains;
	struct rmr_domains_region *region;
	uint8_t *memory; /* what is written, what is read back, a message */
};

static void die(const char *what)
{
	printf("%s: %s\n", what, rmr_error_message());
	exit(1);
}

static void check(enum rmr_status status, const char *what)
{
	if (status != RMR_OK)
		die(what);
}

/* Splits text in place. */
static int split(char *text, const char *separator, const char *parts[RMR_DOMAINS_MAX])
{
	int count = 0;

	for (char *part; count < RMR_DOMAINS_MAX && (part = strsep(&text, separator)) != NULL;)
		parts[count++] = part;
	return count;
}

static void host_open(struct host *host, char *devices)
{
	const char *names[RMR_DOMAINS_MAX];
	int count = split(devices, "+", names);

	check(rmr_domains_open(names, count, NULL, &host->domains), "domains");
	host->memory = calloc(1, MEMORY);
	if (!host->memory)
		die("memory");
	check(rmr_domains_region_open(host->domains, host->memory, MEMORY, RMR_READ | RMR_WRITE,
				      &host->region),
	      "region");
}

static void host_close(struct host *host)
{
	rmr_domains_region_close(host->region);
	rmr_domains_close(host->domains);
	free(host->memory);
}

/* ------------------------------------------------------------------------------------------
 * Serving
 */
static void welcome(struct host *host, struct rmr_domains_listener *listener)
{
	struct rmr_link_descriptor *descriptor = (void *)(host->memory + 2 * TRANSFER);
	struct rmr_link_work work = {.op = RMR_OP_SEND,
				     .flags = RMR_UNSIGNALED,
				     .source = descriptor,
				     .length = sizeof(*descriptor),
				     .region = host->region};
	struct rmr_link_request *request;
	struct rmr_link *link;

	if (rmr_domains_listener_next(listener, 0, &request) != RMR_OK)
		return;
	if (rmr_link_accept(request, NULL, &link) != RMR_OK) {
		printf("not accepted: %s\n", rmr_error_message());
		return;
	}
	check(rmr_link_export(link, host->region, descriptor), "export");
	check(rmr_link_post(link, &work), "post");
}

static void serve(struct host *host, char *text)
{
	const char *addresses[RMR_DOMAINS_MAX] = {NULL};
	struct rmr_domains_listener *listener;

	(void)split(text, ",", addresses);
	check(rmr_domains_listen(host->domains, addresses, NULL, &listener), "listen");
	printf("listening at %s\n", rmr_domains_listener_address(listener));
	for (;;) {
		struct rmr_link_event event;

		welcome(host, listener);
		if (rmr_domains_wait(host->domains, &event, 1, 20) == 0)
			continue;
		if (event.op == RMR_OP_RECV) {
			rmr_domains_recv_release(host->domains, &event);
		} else if (event.op == RMR_OP_DISCONNECT) {
			printf("lost: %s\n", rmr_status_text(event.status));
			rmr_link_close(event.link);
		}
	}
}

/* ------------------------------------------------------------------------------------------
 * Calling
 */
static struct rmr_link_event next_event(struct host *host, enum rmr_op op)
{
	struct rmr_link_event event = {.status = RMR_TIMEOUT};

	(void)rmr_domains_wait(host->domains, &event, 1, PATIENCE_MS);
	if (event.op != op || event.status != RMR_OK) {
		printf("not operation %d came but %d: %s\n", op, event.op,
		       rmr_status_text(event.status));
		exit(1);
	}
	return event;
}

static struct rmr_link_remote *import(struct host *host, struct rmr_link *link)
{
	struct rmr_link_event event = next_event(host, RMR_OP_RECV);
	struct rmr_link_remote *remote;

	check(rmr_link_remote_open(link, event.data, &remote), "remote");
	rmr_domains_recv_release(host->domains, &event);
	return remote;
}

/* There and back again. */
static void move_bytes(struct host *host, struct rmr_link *link, struct rmr_link_remote *remote)
{
	struct rmr_link_work work = {.op = RMR_OP_WRITE,
				     .local = host->memory,
				     .length = TRANSFER,
				     .region = host->region,
				     .remote = remote};
	struct rmr_link_info info;

	for (size_t i = 0; i < TRANSFER; i++)
		host->memory[i] = (uint8_t)(i * 7 + i / 4096);
	check(rmr_link_post(link, &work), "write");
	(void)next_event(host, RMR_OP_WRITE);
	work.op = RMR_OP_READ;
	work.local = host->memory + TRANSFER;
	check(rmr_link_post(link, &work), "read");
	(void)next_event(host, RMR_OP_READ);
	rmr_link_get_info(link, &info);
	for (int i = 0; i < info.connections; i++)
		printf("lane %d: device %d, %llu bytes\n", i, info.connection[i].domain,
		       (unsigned long long)info.connection[i].bytes);
	printf("%s\n",
	       memcmp(host->memory, host->memory + TRANSFER, TRANSFER) == 0 ? "right" : "WRONG");
}

static void await_end(struct host *host)
{
	uint64_t begin_ns = clock_now_ns();
	struct rmr_link_event event = {0};

	while (event.op != RMR_OP_DISCONNECT)
		(void)rmr_domains_wait(host->domains, &event, 1, -1);
	printf("lost after %d ms: %s\n", (int)((clock_now_ns() - begin_ns) / 1000000),
	       rmr_status_text(event.status));
}

static void call(struct host *host, const char *addresses, int dead_after_ms)
{
	struct rmr_link_options options = {.dead_after_ms = dead_after_ms};
	struct rmr_link_remote *remote;
	struct rmr_link *link;

	check(rmr_link_connect(host->domains, addresses, PATIENCE_MS, &options, &link), "connect");
	remote = import(host, link);
	move_bytes(host, link, remote);
	if (dead_after_ms)
		await_end(host);
	rmr_link_remote_close(remote);
	rmr_link_close(link);
}

int main(int argc, char **argv)
{
	struct host host = {0};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && strcmp(argv[1], "serve") == 0) {
		host_open(&host, argv[2]);
		serve(&host, argv[3]);
	} else if ((argc == 4 || argc == 5) && strcmp(argv[1], "call") == 0) {
		host_open(&host, argv[2]);
		call(&host, argv[3], argc == 5 ? atoi(argv[4]) : 0);
		host_close(&host);
		printf("closed\n");
		return 0;
	}
	printf("usage: lab_link serve DEVICES ADDRESSES | call DEVICES ADDRESSES [MS]\n");
	return 2;
}
