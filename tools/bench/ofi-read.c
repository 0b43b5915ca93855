/*
 * ofi-read: what libfabric's tcp provider does, as a yardstick for ours. READs of SIZE bytes with
 * DEPTH of them in flight, reliable datagram endpoints ("tcp;ofi_rxm"), straight on the API of
 * libfabric: no layer of ours, no allocation or lookup between operations.
 *
 * The target only makes progress while it calls into libfabric, so it polls its completion queue in
 * a loop on its own core: the best case for it. The client posts with FI_MORE as long as there is
 * room, which lets the provider hold back its doorbell, and takes completions by the batch.
 *
 * Parent and child tell each other their endpoint's name, and the parent learns the target's memory
 * key, through a socket pair.
 */
#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define MAX_DEPTH 4096
#define NAME_SIZE 128

/* What each side tells the other. */
struct greeting {
	char name[NAME_SIZE];
	uint64_t key;
	uint64_t address;
};

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *endpoint;
	struct fid_mr *mr;
	char *buffer;
	fi_addr_t peer;
	struct greeting other;
};

static void check(const char *what, long ret)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-ret));
	exit(1);
}

static void find_provider(struct side *side)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		pair_die("fi_allocinfo");
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
	check("fi_getinfo(tcp;ofi_rxm)",
	      fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &side->info));
	fi_freeinfo(hints);
}

static void open_side(struct side *side, size_t size)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .size = 2 * MAX_DEPTH};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 2};

	find_provider(side);
	side->buffer = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
	if (!side->buffer)
		pair_die("memory");
	memset(side->buffer, 0x5a, size);
	check("fi_fabric", fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
	check("fi_domain", fi_domain(side->fabric, side->info, &side->domain, NULL));
	check("fi_cq_open", fi_cq_open(side->domain, &cq_attr, &side->cq, NULL));
	check("fi_av_open", fi_av_open(side->domain, &av_attr, &side->av, NULL));
	check("fi_endpoint", fi_endpoint(side->domain, side->info, &side->endpoint, NULL));
	check("fi_ep_bind(cq)", fi_ep_bind(side->endpoint, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_ep_bind(av)", fi_ep_bind(side->endpoint, &side->av->fid, 0));
	check("fi_enable", fi_enable(side->endpoint));
	check("fi_mr_reg",
	      fi_mr_reg(side->domain, side->buffer, size, FI_READ | FI_WRITE | FI_REMOTE_READ, 0, 1,
			0, &side->mr, NULL));
}

/* Remote addresses count from 0, unless the provider asked for virtual ones. */
static void greet(struct side *side, int fd)
{
	struct greeting mine = {.key = fi_mr_key(side->mr)};
	size_t length = sizeof(mine.name);

	if (side->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		mine.address = (uint64_t)(uintptr_t)side->buffer;
	check("fi_getname", fi_getname(&side->endpoint->fid, mine.name, &length));
	if (write(fd, &mine, sizeof(mine)) != sizeof(mine) ||
	    recv(fd, &side->other, sizeof(side->other), MSG_WAITALL) != sizeof(side->other))
		pair_die("greeting");
	if (fi_av_insert(side->av, side->other.name, 1, &side->peer, 0, NULL) != 1)
		pair_die("fi_av_insert");
}

static void close_side(struct side *side)
{
	fi_close(&side->mr->fid);
	fi_close(&side->endpoint->fid);
	fi_close(&side->av->fid);
	fi_close(&side->cq->fid);
	fi_close(&side->domain->fid);
	fi_close(&side->fabric->fid);
	fi_freeinfo(side->info);
	free(side->buffer);
}

/* Makes progress until the client's end of the socket pair is closed; looks now and then. */
static void serve(int fd, const struct pair_options *options)
{
	struct fi_cq_entry entry;
	struct side side = {0};
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	pair_pin(options->server_cpu);
	open_side(&side, options->size);
	greet(&side, fd);
	for (unsigned turn = 1;; turn++) {
		fi_cq_read(side.cq, &entry, 1);
		pair_yield(turn);
		if (turn % 65536 == 0 && recv(fd, &byte, 1, MSG_DONTWAIT) == 0)
			break;
	}
	close_side(&side);
}

/* Takes what completed; returns how many. */
static int reap(struct side *side, struct fi_cq_entry *entries, int max)
{
	ssize_t n = fi_cq_read(side->cq, entries, (size_t)max);

	if (n == -FI_EAGAIN)
		return 0;
	if (n < 0) {
		struct fi_cq_err_entry error = {0};

		fi_cq_readerr(side->cq, &error, 0);
		fprintf(stderr, "ofi-read: an operation failed: %s\n", fi_strerror(error.err));
		exit(1);
	}
	return (int)n;
}

static bool post(struct side *side, size_t size, struct fi_context *context, bool more)
{
	struct iovec iov = {side->buffer, size};
	struct fi_rma_iov rma = {side->other.address, size, side->other.key};
	void *descriptor = fi_mr_desc(side->mr);
	struct fi_msg_rma message = {.msg_iov = &iov,
				     .desc = &descriptor,
				     .iov_count = 1,
				     .addr = side->peer,
				     .rma_iov = &rma,
				     .rma_iov_count = 1,
				     .context = context};
	ssize_t ret = fi_readmsg(side->endpoint, &message, FI_COMPLETION | (more ? FI_MORE : 0));

	if (ret == -FI_EAGAIN)
		return false;
	check("fi_readmsg", ret);
	return true;
}

static void measure(struct side *side, const struct pair_options *options, double seconds,
		    struct pair_result *result)
{
	static struct fi_context contexts[MAX_DEPTH];
	static struct fi_cq_entry entries[MAX_DEPTH];
	static uint64_t sent_at[MAX_DEPTH];
	uint64_t start = pair_now_ns(), now = start, limit = (uint64_t)(seconds * 1e9);
	uint64_t sent = 0, done = 0, depth = (uint64_t)options->depth;
	unsigned in_vain = 0;

	pair_result_reset(result);
	while (now - start < limit || done < sent) {
		while (now - start < limit && sent - done < depth) {
			uint64_t slot = sent % depth;

			sent_at[slot] = now;
			if (!post(side, options->size, &contexts[slot], sent + 1 - done < depth))
				break;
			sent++;
		}
		int n = reap(side, entries, options->depth);

		now = pair_now_ns();
		in_vain = n ? 0 : in_vain + 1;
		pair_yield(in_vain);
		for (int i = 0; i < n; i++)
			pair_result_add(result, now - sent_at[done++ % depth]);
	}
	result->elapsed_ns = now - start;
}

int main(int argc, char **argv)
{
	static const char *const modes[] = {"read", NULL};
	struct pair_options options;
	struct pair_result result;
	struct side side = {0};
	int fds[2];
	pid_t pid;

	pair_parse(argc, argv, modes, &options);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		pair_die("socketpair");
	pid = fork();
	if (pid < 0)
		pair_die("fork");
	if (!pid) {
		close(fds[0]);
		serve(fds[1], &options);
		_exit(0);
	}
	close(fds[1]);
	pair_pin(options.client_cpu);
	open_side(&side, options.size);
	greet(&side, fds[0]);
	pair_result_init(&result);
	measure(&side, &options, options.warmup, &result);
	measure(&side, &options, options.seconds, &result);
	pair_result_print(&result, "libfabric-tcp", "read", &options);
	close_side(&side);
	close(fds[0]);
	waitpid(pid, NULL, 0);
	return 0;
}
