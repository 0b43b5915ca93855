/* Options: what 0 stands for, and what makes no sense. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "rdma/easy/internal.h"

#define DEFAULT_RING	      (1u << 20)
#define DEFAULT_PEER_RING     (64u << 20)
#define DEFAULT_BACKLOG	      128
#define DEFAULT_CONNECT_MS    5000
#define DEFAULT_DEAD_AFTER_MS 10000
#define DEFAULT_SEND_DEPTH    128u
#define DEFAULT_RECV_DEPTH    256u
#define DEFAULT_READS	      16u
#define DEFAULT_SPIN_US	      50
#define DEPTH_MAX	      8192u

static enum rmr_status check(const RdmaOptions *options)
{
	if (options->mode != RDMA_NONBLOCKING && options->mode != RDMA_BLOCKING)
		return error_set(RMR_INVALID,
				 "mode %d; there are RDMA_NONBLOCKING and "
				 "RDMA_BLOCKING",
				 (int)options->mode);
	if (options->ringSize &&
	    (options->ringSize < WIRE_RING_MIN || options->ringSize > WIRE_RING_MAX))
		return error_set(RMR_INVALID, "ringSize %zu; it is from %u to %u",
				 options->ringSize, WIRE_RING_MIN, WIRE_RING_MAX);
	if (options->maxPeerRing &&
	    (options->maxPeerRing < WIRE_RING_MIN || options->maxPeerRing > WIRE_RING_MAX))
		return error_set(RMR_INVALID, "maxPeerRing %zu; it is from %u to %u",
				 options->maxPeerRing, WIRE_RING_MIN, WIRE_RING_MAX);
	if (options->backlog < 0 || options->connectTimeoutMs < 0 || options->deadAfterMs < 0)
		return error_set(RMR_INVALID, "backlog, connectTimeoutMs and deadAfterMs are not "
					      "negative");
	if (options->sendDepth > DEPTH_MAX || options->recvDepth > DEPTH_MAX)
		return error_set(RMR_INVALID, "sendDepth %u, recvDepth %u; at most %u",
				 options->sendDepth, options->recvDepth, DEPTH_MAX);
	if (options->retryCount > 7)
		return error_set(RMR_INVALID, "retryCount %d; at most 7", options->retryCount);
	if (options->cpu < 0 || options->cpu > sysconf(_SC_NPROCESSORS_CONF))
		return error_set(RMR_INVALID, "cpu %d; it is the number of a CPU plus 1, or 0",
				 options->cpu);
	return RMR_OK;
}

static uint64_t round_up(uint64_t size)
{
	uint64_t power = WIRE_RING_MIN;

	while (power < size)
		power *= 2;
	return power;
}

#define FILL(field, value)                                                                         \
	do {                                                                                       \
		if (!result->field)                                                                \
			result->field = (value);                                                   \
	} while (0)

enum rmr_status easy_options_take(const RdmaOptions *options, RdmaOptions *result)
{
	enum rmr_status status;

	*result = options ? *options : (RdmaOptions){0};
	status = check(result);
	if (status != RMR_OK)
		return status;
	FILL(ringSize, DEFAULT_RING);
	result->ringSize = round_up(result->ringSize);
	/* Two ends with the same options get along. */
	FILL(maxPeerRing,
	     result->ringSize > DEFAULT_PEER_RING ? result->ringSize : DEFAULT_PEER_RING);
	FILL(backlog, DEFAULT_BACKLOG);
	FILL(connectTimeoutMs, DEFAULT_CONNECT_MS);
	FILL(deadAfterMs, DEFAULT_DEAD_AFTER_MS);
	FILL(sendDepth, DEFAULT_SEND_DEPTH);
	FILL(recvDepth, DEFAULT_RECV_DEPTH);
	FILL(signalEvery, (result->sendDepth + 3) / 4);
	FILL(maxReads, DEFAULT_READS);
	if (result->maxReads > result->sendDepth)
		result->maxReads = result->sendDepth;
	FILL(spinUs, DEFAULT_SPIN_US);
	return RMR_OK;
}

void easy_options_name_device(const RdmaOptions *options, const char *wanted, char name[64])
{
	bool is_verbs = strncmp(wanted, "verbs", 5) == 0;
	int length;

	if (!is_verbs || !options->retryCount || strstr(wanted, "retry="))
		length = snprintf(name, 64, "%s", wanted);
	else
		length = snprintf(name, 64, "%s%sretry=%d", wanted, wanted[5] == ':' ? "," : ":",
				  options->retryCount < 0 ? 0 : options->retryCount);
	if (length >= 64)
		snprintf(name, 64, "%.63s", wanted);
}
