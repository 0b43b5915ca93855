/*
 * Two adapters: one process reads another's memory over two devices at once.
 *	03_two_adapters [device address device address]		default: tcp 127.0.0.1:0, twice
 * With real ones: 03_two_adapters verbs:mlx5_0 10.0.0.1:0 verbs:mlx5_1 10.1.0.1:0
 */
#include <err.h>
#include <remora/domains.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (16u << 20)
static alignas(64) char memory[SIZE];

static void check(enum rmr_status status)
{
	if (status != RMR_OK)
		errx(1, "%s", rmr_error_message());
}

/* Waits for the next event, which must be this. */
static struct rmr_link_event await(struct rmr_domains *domains, enum rmr_op op)
{
	struct rmr_link_event event = {0};

	if (rmr_domains_wait(domains, &event, 1, 5000) != 1 || event.op != op || event.status)
		errx(1, "something else came: %s", rmr_status_text(event.status));
	return event;
}

int main(int argc, char **argv)
{
	const char *names[2] = {"tcp", "tcp"}, *where[2] = {"127.0.0.1:0", "127.0.0.1:0"};
	char address[512] = "";
	struct rmr_domains *domains;	   /* both devices */
	struct rmr_domains_region *region; /* memory, registered on both */
	struct rmr_link *link;		   /* a connection over each */
	int fd[2], result = pipe(fd), child = fork();

	for (int i = 0; i < 2 && argc == 5; i++)
		names[i] = argv[1 + 2 * i], where[i] = argv[2 + 2 * i];
	close(fd[child > 0 ? 0 : 1]); /* so that the child is not left waiting if we fail */
	check(rmr_domains_open(names, 2, NULL, &domains));
	check(rmr_domains_region_open(domains, memory, SIZE, RMR_READ, &region));
	if (child > 0) {
		struct rmr_domains_listener *listener;
		struct rmr_link_request *request;
		struct rmr_link_work send = {RMR_OP_SEND, .local = memory, .region = region};

		check(rmr_domains_listen(domains, where, NULL, &listener));
		dprintf(fd[1], "%s%c", rmr_domains_listener_address(listener), 0);
		check(rmr_domains_listener_next(listener, 5000, &request));
		check(rmr_link_accept(request, NULL, &link));
		check(rmr_link_export(link, region, send.local));
		send.length = sizeof(struct rmr_link_descriptor);
		check(rmr_link_post(link, &send));
		await(domains, RMR_OP_SEND);
		waitpid(child, &result, 0); /* asleep: the READ comes and goes without us */
		rmr_domains_listener_close(listener);
	} else {
		struct rmr_link_work get = {
			.op = RMR_OP_READ, .local = memory, .length = SIZE, .region = region};
		struct rmr_domains_info info;

		result = read(fd[0], address, sizeof(address) - 1) < 1;
		check(rmr_link_connect(domains, address, 5000, NULL, &link));
		check(rmr_link_remote_open(link, await(domains, RMR_OP_RECV).data, &get.remote));
		check(rmr_link_post(link, &get));
		await(domains, RMR_OP_READ); /* once, when all of it is there */
		rmr_domains_get_info(domains, &info);
		for (int i = 0; i < info.count; i++)
			printf("client read: %llu MiB over device %d, %s\n",
			       (unsigned long long)info.domain[i].read_bytes >> 20, i, names[i]);
	}
	rmr_link_close(link);
	rmr_domains_region_close(region);
	rmr_domains_close(domains);
	return result != 0;
}
